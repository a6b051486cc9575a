"""Teachers for training in rounds: `rounds` leaves each round's games, instances and model in a
folder of its own; `recorded` learns from games that `sparring selfplay` has put on record."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Episode, Sample
from sparring.credit.credit import Credit
from sparring.pipelines.matching.config import RoundsConfig
from sparring.pipelines.matching.measures import matching_measures
from sparring.run.config import Config
from sparring.run.lines import dump
from sparring.run.rundir import write_whole
from sparring.training.instances import (
    GAMES,
    TRAIN,
    Source,
    game_record,
    lessons,
    read_parquet,
    write_split,
)
from sparring.training.lessons import Teacher, teach
from sparring.training.requirements import TRUNCATED_DRAWS

CHECKPOINT = "checkpoint"
MEASURES = ("score", "agreement", "agreed_turns", "error_rate")  # of the round's own games


def round_folder(run: Path, iteration: int) -> Path:
    return run / f"iter_{iteration}"


class Rounds(Teacher):
    """On-policy: a round plays, keeps some tables back, learns from the others by credit."""

    def __init__(self, config: Config, credit: Credit, chat: Any) -> None:
        if len(config.games) != 1:
            raise ConfigError("teach.kind `rounds` is for one game; its files hold no other")
        super().__init__(config, credit, chat)
        self.rounds = config.section(RoundsConfig)
        name, options = next(iter(config.games.items()))
        given = {key: value for key, value in (options or {}).items() if key != "weight"}
        self.source = Source(name, given)

    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        folder = round_folder(run, iteration)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        tables = {group: i for i, group in enumerate(dict.fromkeys(e.group for e in episodes))}
        text = "".join(f"{dump(game_record(e, tables[e.group]))}\n" for e in episodes)
        write_whole(folder / GAMES, text.encode())
        train, _ = write_split(folder, self.source, episodes, self.rounds.val)
        return teach(self.credit, train), _measures(episodes)

    def learned(self, policies: Any, iteration: int, run: Path) -> None:
        from sparring.models.export import export_policy

        export_policy(policies, MAIN, self.config.policy, round_folder(run, iteration) / CHECKPOINT)
        keep = self.rounds.keep
        if keep is not None and iteration > keep:
            shutil.rmtree(round_folder(run, iteration - keep), ignore_errors=True)


class Recorded(Teacher):
    """Off-policy: every iteration goes once over the recorded instances. The importance ratios
    are those to the policy that played, by the logprobs on record."""

    def __init__(self, config: Config, credit: Credit, chat: Any) -> None:
        recorded = config.section(RoundsConfig).games
        if recorded is None:
            raise ConfigError("rounds.games says where the recorded games are; it is not set")
        if config.credit.kind not in ("group_relative", "leave_one_out"):
            raise ConfigError(
                f"credit.kind is {config.credit.kind!r}; recorded games are compared within their "
                "index, by `group_relative` or `leave_one_out`"
            )
        path = Path(recorded) / TRAIN
        source, rows = read_parquet(path)
        if source.truncated and config.learn.objective == "policy":
            raise ConfigError(
                f"the games of {path} were drawn with top_p, top_k or temperature 0, and "
                f"{TRUNCATED_DRAWS}. Record them with none of these (`sparring selfplay` with "
                "--temperature above 0), or learn from texts with learn.objective=likelihood"
            )
        if not rows:
            raise ConfigError(f"{path} holds no instances: programs leave none, models do")
        self.samples = lessons(
            rows,
            scale=config.credit.scale_rewards,
            leave_one_out=config.credit.kind == "leave_one_out",
        )
        for sample in self.samples:
            sample.policy = MAIN  # of any player: the learner of this run learns from it
        self.groups = len({one.index for one in rows})

    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        moved = sum(any(sample.advantages) for sample in self.samples)
        return self.samples, {
            "recorded/instances": len(self.samples),
            "recorded/groups": self.groups,
            "recorded/with_advantage": moved / len(self.samples),
        }


def _measures(episodes: Sequence[Episode]) -> dict[str, float]:
    fair = [e for e in episodes if e.void is None and "bounds" in e.facts]
    stats = matching_measures(fair)
    return {f"selfplay/{key}": stats[key] for key in MEASURES if key in stats}

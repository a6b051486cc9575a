"""`sparring selfplay`: one policy plays a game with itself, and every game becomes a line of a file
and training instances. Killed at any moment, it goes on where a whole batch of games ended."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean
from typing import Any

from sparring.collect import Job, collect
from sparring.curriculum.opponents import PROGRAMS
from sparring.evaluate.together import matching_measures
from sparring.game import Game, Speak, opened
from sparring.games import game_class, load_game
from sparring.instances import (
    GAMES,
    TRAIN,
    VAL,
    Grouping,
    Source,
    game_line,
    instances,
    split_tables,
    write_parquet,
)
from sparring.run.config import ConfigError, parse_yaml
from sparring.run.policy import load_player
from sparring.run.rundir import differing, mend, read_lines, write_whole
from sparring.types import Episode, Sampling, derive, episode_from_json

PLAN = "selfplay.json"
Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """All that decides what is played; the same plan gives the same games."""

    game: str
    policy: str
    games: int = 100
    options: dict[str, Any] = field(default_factory=dict)
    group: int = 4  # games on each table
    grouping: Grouping = "table"
    temperature: float = 0.7
    max_tokens: int = 256
    val: float = 0.1
    batch: int = 64  # games that are played at once and recorded at once
    seed: int = 0

    def source(self) -> Source:
        return Source(self.game, self.options, self.grouping)


def generate(
    plan: Plan,
    out: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Play the plan into a folder, from the start or from its last whole batch."""
    game = load_game(plan.game, **plan.options)
    if game.problems:
        raise ConfigError(f"{plan.game} does not make its own tasks; selfplay is for games that do")
    kept = _begun(plan, out, resume)
    speak, name, outside = _voice(plan, device)
    out.mkdir(parents=True, exist_ok=True)
    write_whole(out / PLAN, json.dumps(asdict(plan), indent=1).encode())
    _cut(out / GAMES, len(kept))
    episodes = asyncio.run(_play(plan, game, kept, speak, name, outside, out, progress))
    train, val = split_tables(episodes, plan.val)
    counts = {}
    for path, part, split in ((TRAIN, train, "train"), (VAL, val, "val")):
        found = instances(part, plan.grouping)
        write_parquet(out / path, plan.source(), found, split)
        counts[f"{split}_instances"] = len(found)
    return {"out": str(out), "games": len(episodes), **counts, **summary(episodes)}


async def _play(
    plan: Plan,
    game: Game,
    kept: list[Episode],
    speak: Speak,
    name: str,
    outside: Callable[[], Any] | None,
    out: Path,
    progress: Progress | None,
) -> list[Episode]:
    episodes = list(kept)
    rewards = [_reward(episode) for episode in kept]

    def tell(episode: Episode) -> None:
        rewards.append(_reward(episode))
        if progress is not None:
            progress({"iteration": len(rewards), "reward/avg_batch_reward": fmean(rewards)})

    async with opened([game]):
        while len(episodes) < plan.games:
            numbers = range(len(episodes), min(len(episodes) + plan.batch, plan.games))
            played = await collect(
                _jobs(plan, game, name, numbers),
                speak,
                sampling=Sampling(temperature=plan.temperature, max_tokens=plan.max_tokens),
                outside=outside,
                on_episode=tell,
            )
            by_table = plan.grouping == "table"
            lines = [
                game_line(e, i // plan.group if by_table else i)
                for i, e in zip(numbers, played, strict=True)
            ]
            _append(out / GAMES, lines)
            episodes += played
    return episodes


def _reward(episode: Episode) -> float:
    return fmean(episode.rewards.values()) if episode.void is None else 0.0


def _jobs(plan: Plan, game: Game, name: str, numbers: Sequence[int]) -> list[Job]:
    return [
        Job(
            id=str(i),
            name=plan.game,
            game=game,
            task=game.task(derive(plan.seed, "selfplay", "table", i // plan.group)),
            seed=derive(plan.seed, "selfplay", i),
            seating=dict.fromkeys(game.seats, name),
            group=str(i // plan.group),
            learned=frozenset([name]),
        )
        for i in numbers
    ]


def _voice(plan: Plan, device: str) -> tuple[Speak, str, Callable[[], Any] | None]:
    """Who speaks, by which name, and what holds the engine while a judge rules."""
    if plan.policy in PROGRAMS:
        return _nobody, plan.policy, None
    engine, name = load_player(plan.policy, device=device)
    return engine.act, name, engine.outside


async def _nobody(request: Any) -> Any:
    raise RuntimeError(f"{request.policy} is a program and has nobody to ask")


def _begun(plan: Plan, out: Path, resume: bool) -> list[Episode]:
    """The games that are there already, in whole batches; a folder of other games is refused."""
    if not (out / PLAN).exists():
        if out.exists() and any(out.iterdir()):
            raise ConfigError(f"{out} is not empty and holds no self-play; choose another folder")
        return []
    changed = differing(json.loads((out / PLAN).read_text()), asdict(plan))
    if changed:
        raise ConfigError(
            f"{out} holds games of another plan ({', '.join(changed)} differ); "
            "give these another folder with --out"
        )
    if not resume:
        raise ConfigError(f"{out} holds these games already; add --resume to go on with them")
    mend(out / GAMES)
    found = [episode_from_json(line["episode"]) for line in read_lines(out / GAMES)]
    return found if len(found) >= plan.games else found[: len(found) // plan.batch * plan.batch]


def _cut(path: Path, lines: int) -> None:
    """Leave the first so many lines; those of a batch that was not whole are played again."""
    if path.exists():
        with path.open("rb") as file:
            write_whole(path, b"".join(line for _, line in zip(range(lines), file, strict=False)))


def _append(path: Path, lines: Sequence[str]) -> None:
    with path.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        os.fsync(file.fileno())


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """What the games came to: a matching's own measures, or the mean reward of each seat."""
    fair = [e for e in episodes if e.void is None]
    found: dict[str, Any] = {"void": len(episodes) - len(fair)}
    if fair and "bounds" in fair[0].facts:
        return found | _rounded(matching_measures(fair))
    seats = fair[0].rewards if fair else {}
    return found | _rounded({f"reward_{s}": fmean(e.rewards[s] for e in fair) for s in seats})


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {key: round(value, 4) for key, value in values.items()}


def make_plan(
    game: str, options: Sequence[str], own: Mapping[str, Any], *, grouping: str, **settings: Any
) -> Plan:
    """A plan from what a person typed. `own` are the options the policy was trained with; the
    variable MAX_LENGTH sets the game's own option, where it has one."""
    if grouping not in ("table", "game"):
        raise ConfigError(f"--grouping is {grouping!r}; it is `table` or `game`")
    chosen = dict(own)
    if os.environ.get("MAX_LENGTH") and "max_length" in _fields(game):
        chosen["max_length"] = parse_yaml(os.environ["MAX_LENGTH"], "the variable MAX_LENGTH")
    for option in options:
        key, separator, value = option.partition("=")
        if not separator:
            raise ConfigError(f"{option!r} is no option of a game; write option=value")
        chosen[key] = parse_yaml(value, repr(option))
    load_game(game, **chosen)
    return Plan(
        game, options=chosen, grouping="table" if grouping == "table" else "game", **settings
    )


def _fields(game: str) -> list[str]:
    return [f.name for f in fields(game_class(game))]

"""`sparring selfplay`: one policy plays a game with itself, and every game becomes a line of a file
and training instances. Killed at any moment, it goes on where a whole batch of games ended."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.game import Game, opened
from sparring.core.scripted import PROGRAMS, ScriptedEngine
from sparring.core.types import Episode, derive, episode_from_json
from sparring.credit.credit import earned
from sparring.engines.engine import Engine
from sparring.engines.load import load_player
from sparring.models.trained import trained_sampling
from sparring.run import interrupt
from sparring.run.config import parse_yaml
from sparring.run.games import game_class, load_game, option_types, parse_options
from sparring.run.lines import in_batches, refuse_others
from sparring.run.lock import writing
from sparring.run.rundir import write_json
from sparring.training.instances import GAMES, Grouping, Source, game_record, write_split

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


def play_plan(
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
    with interrupt.listening(), writing(out):
        refuse_others(out / PLAN, asdict(plan), "self-play", resume=resume, grows="games")
        engine, name = None, plan.policy
        if plan.policy not in PROGRAMS:
            engine, name = load_player(plan.policy, device=device)
        write_json(out / PLAN, asdict(plan))
        episodes = asyncio.run(_play(plan, game, engine, name, out, progress))
        source = Source(plan.game, plan.options, plan.grouping)
        _, counts = write_split(out, source, episodes, plan.val)
    return {"out": str(out), "games": len(episodes), **counts, **game_stats(episodes)}


async def _play(
    plan: Plan,
    game: Game,
    engine: Engine | None,
    name: str,
    out: Path,
    progress: Progress | None,
) -> list[Episode]:
    sampling = replace(
        trained_sampling(plan.policy), temperature=plan.temperature, max_tokens=plan.max_tokens
    )

    async def play(numbers: range) -> list[dict[str, Any]]:
        played = await collect(
            _jobs(plan, game, name, numbers),
            engine.act if engine else ScriptedEngine({}).act,
            sampling=sampling,
            outside=engine.outside if engine else None,
            on_episode=lambda episode: report(numbers.start, episode),
        )
        by_table = plan.grouping == "table"
        return [
            game_record(e, i // plan.group if by_table else i)
            for i, e in zip(numbers, played, strict=True)
        ]

    rewards: list[float] = []  # of the games that this process has seen, less void ones
    seen = count()

    def report(before: int, episode: Episode) -> None:
        done = before + next(seen) % plan.batch + 1
        if episode.void is None and episode.rewards:
            rewards.append(fmean(earned(episode, seat) for seat in episode.rewards))
        if progress is not None:
            mean = {"reward/avg_batch_reward": fmean(rewards)} if rewards else {}
            progress({"iteration": done, **mean})

    ids = [str(i) for i in range(plan.games)]
    async with opened([game]):
        records = await in_batches(out / GAMES, ids, play, batch=plan.batch, what="game")
    return [episode_from_json(record["episode"]) for record in records]


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


def game_stats(episodes: Sequence[Episode]) -> dict[str, Any]:
    """What the games came to: the game's own measures, or the mean reward of each seat."""
    fair = [e for e in episodes if e.void is None]
    counts: dict[str, Any] = {"void": len(episodes) - len(fair)}
    own = load_game(fair[0].game).measures(fair, "") if fair else {}
    if own:
        return counts | _rounded(own)
    rewards: dict[str, list[float]] = {}  # of those who were asked
    for episode in fair:
        for seat in episode.rewards:
            rewards.setdefault(seat, []).append(earned(episode, seat))
    return counts | _rounded({f"reward_{seat}": fmean(own) for seat, own in rewards.items()})


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
    if os.environ.get("MAX_LENGTH") and "max_length" in option_types(game_class(game)):
        chosen["max_length"] = parse_yaml(os.environ["MAX_LENGTH"], "the variable MAX_LENGTH")
    chosen |= parse_options(options)
    load_game(game, **chosen)
    return Plan(
        game, options=chosen, grouping="table" if grouping == "table" else "game", **settings
    )

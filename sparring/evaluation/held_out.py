"""How the players do on tasks that are not trained on, in any game whose tasks are given."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import TYPE_CHECKING

from sparring.core.collect import Job
from sparring.core.game import Game
from sparring.core.scripted import seated_as
from sparring.core.types import Episode, Sampling, derive
from sparring.credit.credit import earned
from sparring.evaluation.sampling import as_trained
from sparring.run.config import Config
from sparring.run.players import own_seating
from sparring.tasks.source import held_out_tasks

if TYPE_CHECKING:
    from sparring.engines.engine import OwnEngine


async def evaluate_held_out(
    config: Config, games: Mapping[str, Game], engine: OwnEngine
) -> dict[str, float]:
    """`eval/GAME/held_out/…`: rewards and what the game sums up; `eval/score`, the mean over games
    that have one, of games that are sampled as in training. Without one of them, since all that was
    played is void, the mean would be another number."""
    metrics: dict[str, float] = {}
    scores: list[float] = []
    unfair = False
    if not config.tasks.holdout or not config.evaluate.games:
        return metrics
    heat = config.evaluate.temperature
    for name, game in games.items():
        if game.problems:
            fair = await play_held_out(config, name, game, engine, as_trained(config, heat))
            metrics |= {f"eval/{name}/held_out/{k}": v for k, v in _numbers(game, fair).items()}
            score = game.score(fair) if fair else None
            if score is not None and heat != config.sampling.temperature:
                fair = await play_held_out(config, name, game, engine, as_trained(config))
                score = game.score(fair) if fair else None
            unfair |= not fair and type(game).score is not Game.score
            scores += [] if score is None else [score]
    return metrics | ({"eval/score": fmean(scores)} if scores and not unfair else {})


async def play_held_out(
    config: Config, name: str, game: Game, engine: OwnEngine, sampling: Sampling
) -> list[Episode]:
    """As many games as `evaluate.games` says, over all tasks held out in turn, less void ones."""
    tasks = [t for t in held_out_tasks(config.tasks, game.problems) if not game.unusable(t)]
    if not tasks:
        return []
    jobs = [
        Job(
            id=f"held-out-{i}",
            name=name,
            game=game,
            task=tasks[i % len(tasks)],
            seed=derive(config.seed, "held out", i),
            seating={s: seated_as(game, p) for s, p in own_seating(config, game.seats).items()},
        )
        for i in range(config.evaluate.games)
    ]
    played = await engine.collect(
        jobs,
        concurrency=config.collect.concurrency,
        sampling=sampling,
    )
    return [episode for episode in played if episode.void is None]


def _numbers(game: Game, episodes: list[Episode]) -> dict[str, float]:
    if not episodes:
        return {}
    own = {seat: [earned(e, seat) for e in episodes if seat in e.rewards] for seat in game.seats}
    seats = {f"reward/{seat}": fmean(rewards) for seat, rewards in own.items() if rewards}
    plain = {key.partition("/")[2] or key: value for key, value in game.summary(episodes).items()}
    return {"games": float(len(episodes)), **seats, **plain}

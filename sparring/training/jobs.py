"""Which games an iteration plays: on what, with which seeds, and who sits where."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from sparring.core.collect import Job
from sparring.core.game import Game
from sparring.core.types import Task, derive
from sparring.run.config import Config
from sparring.run.players import learned_policies, learning_seats
from sparring.run.schedule import Step
from sparring.training.difficulty import DifficultyGate
from sparring.training.opponents import Opponents


def make_jobs(
    config: Config,
    games: dict[str, Game],
    opponents: Opponents,
    iteration: int,
    tasks: Mapping[str, Sequence[Task]] | None = None,
    step: Step | None = None,
    batch: int = 0,
    gate: DifficultyGate | None = None,
) -> list[Job]:
    """One iteration's games. Their seeds and tasks come from the run's seed, so that any
    iteration can be played again without those before it. A step of a schedule says which seat
    learns, and from which stage. Further batches replace games of the first."""
    gate = gate or DifficultyGate(config.tasks.gate)
    names = list(games)
    weights = [float(config.games[name].get("weight", 1.0)) for name in names]
    learned = frozenset(learned_policies(config, games.values()))
    learning = learning_seats(config, games.values())
    stages = None
    if step is not None:
        learning &= {step.seat}
        stages = None if config.schedule.together else frozenset({step.name})
    tables = -(-config.collect.episodes // config.collect.group)
    jobs = list[Job]()
    first = batch * tables
    for table in range(first, first + tables):
        # What the games of a group share: it is to compare like with like.
        of_group = derive(config.seed, iteration, "group", table)
        name = random.Random(of_group).choices(names, weights)[0]
        game, given = games[name], (tasks or {}).get(name)
        index = (iteration - 1) * tables + table
        if batch:  # any position: the iterations' first batches take all tasks in turn
            index = derive(of_group, "replacement")
        own_task = None if given else game.task(of_group)
        seating = opponents.seating(game.seats, index, derive(of_group, "seating"))
        numbers = range(table * config.collect.group, (table + 1) * config.collect.group)
        for i in numbers[: config.collect.episodes - len(jobs)]:
            seed = derive(config.seed, iteration, i)
            jobs.append(
                Job(
                    id=f"{iteration}-{i}",
                    name=name,
                    game=game,
                    task=own_task
                    or gate.choose_task(name, game.suited(given or (), seed), config.seed, index),
                    seed=seed,
                    seating=seating,
                    group=f"{iteration}-{table}",
                    learned=learned,
                    learning=learning,
                    stages=stages,
                )
            )
    return jobs

"""Which games an iteration plays: on what, with which seeds, and who sits where. Tasks that are too
easy or too hard may be met less often."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from sparring.core.collect import Job
from sparring.core.scripted import seated_as
from sparring.core.types import Episode, Task, derive
from sparring.credit.credit import earned
from sparring.run.players import learned_policies, learning_seats
from sparring.run.sections import GateConfig
from sparring.tasks import choose_task

if TYPE_CHECKING:
    from sparring.training.state import Parts

Pool = Literal["unknown", "easy", "normal", "hard"]


class DifficultyGate:
    """Keeps each task's mean reward of the policies that learn, as an exponential moving average,
    and pools tasks by it."""

    def __init__(self, config: GateConfig) -> None:
        self.config = config
        self.rewards: dict[str, dict[str, tuple[float, int]]] = {}  # game -> task -> mean, games

    def pool(self, game: str, task: Task) -> Pool:
        mean, games = self.rewards.get(game, {}).get(task.id, (0.0, 0))
        if games < self.config.least:
            return "unknown"
        if mean >= self.config.easy_threshold:
            return "easy"
        return "hard" if mean <= self.config.hard_threshold else "normal"

    def choose_task(self, game: str, tasks: Sequence[Task], seed: int, position: int) -> Task:
        """The task at a position of the run's order. One that is easy or hard is kept in its share
        of cases, and replaced by a random one of the others otherwise."""
        task = choose_task(tasks, seed, position)
        shares = {"easy": self.config.easy_fraction, "hard": self.config.hard_fraction}
        rng = random.Random(derive(seed, "gate", position))
        if not self.config.enabled or rng.random() < shares.get(self.pool(game, task), 1.0):
            return task
        others = [one for one in tasks if self.pool(game, one) in ("unknown", "normal")]
        return rng.choice(others) if others else task

    def update(self, episodes: Sequence[Episode]) -> None:
        """Note what the policies that learn earned in these games; void ones say nothing."""
        for episode in episodes if self.config.enabled else ():
            seats = {turn.seat for turn in episode.turns if turn.trainable}
            if episode.void is None and seats:
                reward = fmean(earned(episode, seat) for seat in seats)
                known = self.rewards.setdefault(episode.game, {})
                mean, games = known.get(episode.task.id, (0.0, 0))
                rate = max(1 - self.config.decay, 1 / (games + 1))
                known[episode.task.id] = (mean + rate * (reward - mean), games + 1)

    def metrics(self, tasks: dict[str, list[Task]]) -> dict[str, float]:
        """How large the pools are, for each game whose tasks are given."""
        if not self.config.enabled:
            return {}
        pools: tuple[Pool, ...] = ("unknown", "easy", "normal", "hard")
        pools_of = {game: [self.pool(game, task) for task in own] for game, own in tasks.items()}
        return {
            f"tasks/{game}/{pool}": own.count(pool)
            for game, own in pools_of.items()
            for pool in pools
        }

    def state(self) -> dict[str, Any]:
        return {"rewards": self.rewards}

    def load(self, state: dict[str, Any]) -> None:
        self.rewards = state["rewards"]


def choose_game(names: Sequence[str], weights: Sequence[float], seed: int) -> str:
    """A game of a mixture. Not by the seed itself, which deals its cards: a third of all seeds
    would deal each of three games, and none of that third a Jack to the first player."""
    return random.Random(derive(seed, "game")).choices(names, weights)[0]


def make_jobs(parts: Parts, iteration: int, batch: int = 0) -> list[Job]:
    """One iteration's games. Their seeds and tasks come from the run's seed, so that any
    iteration can be played again without those before it. A step of a schedule says which seat
    learns, and from which stage. Further batches replace games of the first."""
    config, games = parts.config, parts.curriculum.games()
    names = list(games)
    weights = [float(config.games[name].get("weight", 1.0)) for name in names]
    learned = frozenset(learned_policies(config, games.values()))
    learning = learning_seats(config, games.values())
    stages = None
    if parts.steps:
        step = parts.steps[iteration - 1]
        learning &= {step.seat}
        stages = None if config.schedule.together else frozenset({step.name})
    tables = -(-config.collect.episodes // config.collect.group)
    jobs = list[Job]()
    first = batch * tables
    for table in range(first, first + tables):
        # What the games of a group share: it is to compare like with like.
        of_group = derive(config.seed, iteration, "group", table)
        name = choose_game(names, weights, of_group)
        game, given = games[name], parts.tasks.get(name)
        index = (iteration - 1) * tables + table
        if batch:  # any position: the iterations' first batches take all tasks in turn
            index = derive(of_group, "replacement")
        own = [] if given else [game.task(of_group)]
        met = parts.opponents.seating(game.seats, index, derive(of_group, "seating"), learning)
        seating = {seat: seated_as(game, player) for seat, player in met.items()}
        numbers = range(table * config.collect.group, (table + 1) * config.collect.group)
        for i in numbers[: config.collect.episodes - len(jobs)]:
            seed = derive(config.seed, iteration, i)
            jobs.append(
                Job(
                    id=f"{iteration}-{i}",
                    name=name,
                    game=game,
                    task=own[0]
                    if own
                    else parts.gate.choose_task(
                        name, game.suited(given or (), seed), config.seed, index
                    ),
                    seed=seed,
                    seating=seating,
                    group=f"{iteration}-{table}",
                    learned=learned,
                    learning=learning,
                    stages=stages,
                )
            )
    return jobs

"""Where a batch of games comes from: played in turn with learning, or ahead of it.

Ahead, games of later iterations are played while earlier ones are learned from, by workers in other
processes whose weights are a copy. Which weights play which batch is a rule, not a race: with
`collect.ahead` = k, the games of iteration i are played with the weights after iteration i - 1 - k
(the first ones, where there are none so old). So no turn is staler than k updates, however slow or
fast anyone is, and a run that died and was resumed plays what it would have played.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from sparring.core.collect import Job
from sparring.core.types import Episode, Sampling, episode_from_json, episode_to_json
from sparring.credit.group_relative import differing, groups
from sparring.models.compute_thread import bench, on_bench
from sparring.run import interrupt
from sparring.run.rundir import encode_episodes
from sparring.training.jobs import make_jobs

if TYPE_CHECKING:
    from sparring.models.policies import Snapshot
    from sparring.training.state import Parts

Result = TypeVar("Result")


@dataclass
class Played:
    """One iteration's games, and what was seen while they were played."""

    episodes: list[Episode]
    seconds: float = 0.0
    split: dict[str, float] = field(default_factory=dict)
    canary: dict[str, float] = field(default_factory=dict)  # policy -> gap, where checked already

    @cached_property
    def encoded(self) -> bytes:
        """The episodes as they are written down, which holds their credit too: not to be asked for
        before it has been given."""
        return encode_episodes(self.episodes)

    def to_json(self) -> dict[str, Any]:
        return {"episodes": [episode_to_json(e) for e in self.episodes], "canary": self.canary}


class InTurn:
    """Collect, then learn, in turn: no turn is stale."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def played(self, iteration: int) -> Played:
        return await interrupt.in_time(_play(self.parts, partial(make_jobs, self.parts, iteration)))

    async def learn(self, lesson: Callable[[], Result]) -> Result:
        async with self.parts.engine.learning():
            return await on_bench(lesson)

    def learned(self, iteration: int) -> None:
        """Called when the weights of an iteration are final."""

    async def rolled_back(self, iteration: int) -> None:
        """Called when the weights were rolled back to a checkpoint."""

    async def state(self, iteration: int) -> list[dict[str, Any]]:
        """Episodes that a checkpoint of an iteration must hold."""
        return []

    async def close(self) -> None:
        pass


@dataclass
class _Planned:
    after: int  # the iteration whose weights play it
    games: asyncio.Future[Played]


class Ahead:
    """One batch after the other is played by workers, on a copy of the weights, while a thread of
    this process learns."""

    def __init__(self, parts: Parts, first: int) -> None:
        self.parts = parts
        self.bound, self.last = parts.config.collect.ahead, parts.config.iterations
        # A CPU computes on one thread; a GPU takes from several.
        self._learning = bench() or ThreadPoolExecutor(1, thread_name_prefix="learn")
        self._canary = bench() or ThreadPoolExecutor(1, thread_name_prefix="canary")
        self._planned: dict[int, _Planned] = {}
        self._known: dict[str, int] = {}  # versions that the copy has, or is going to be given
        for number, batch in enumerate(parts.in_hand, first + 1):
            done = asyncio.get_running_loop().create_future()
            episodes = [episode_from_json(e) for e in batch["episodes"]]
            done.set_result(Played(episodes, canary=batch["canary"]))  # its time is past
            self._planned[number] = _Planned(first - 1, done)
        self.learned(first)

    async def played(self, iteration: int) -> Played:
        started = time.perf_counter()
        played = await self._planned[iteration].games
        del self._planned[iteration]
        played.split["blocked"] = time.perf_counter() - started
        return played

    async def learn(self, lesson: Callable[[], Result]) -> Result:
        from sparring.models.device import on_own_stream

        def apart() -> Result:
            with on_own_stream(self.parts.learner.policies.device):
                return lesson()

        async with self.parts.engine.learning():
            return await asyncio.get_running_loop().run_in_executor(self._learning, apart)

    def learned(self, iteration: int) -> None:
        """Schedule the batches that may be played with the current weights."""
        begin = max(self._planned, default=iteration) + 1
        wanted = range(begin, min(iteration + self.bound + 1, self.last) + 1)
        if not wanted:
            return
        snapshot = self.parts.learner.policies.snapshot(self._known)
        self._known = dict(snapshot.versions)
        for number in wanted:
            weights = snapshot if number == begin else None  # the next is played with the same
            games = self._play(
                make_jobs(self.parts, number), weights, self._planned.get(number - 1)
            )
            self._planned[number] = _Planned(iteration, asyncio.ensure_future(games))

    async def _play(
        self, jobs: list[Job], snapshot: Snapshot | None, before: _Planned | None
    ) -> Played:
        from sparring.learn.canary import spoken_gaps

        if before is not None:
            await asyncio.wait([before.games])
            before.games.result()  # nothing is played after a failure
        collecting, learner, config = self.parts.collecting, self.parts.learner, self.parts.config
        if snapshot is not None:
            collecting.policies.load_snapshot(snapshot)
        played = await _play(self.parts, lambda batch: jobs)
        # Before the copy moves on: afterwards the weights that generated are gone.
        played.canary = await asyncio.get_running_loop().run_in_executor(
            self._canary,
            partial(spoken_gaps, learner, collecting.policies, played.episodes, config.canary),
        )
        return played

    async def rolled_back(self, iteration: int) -> None:
        """Drop all batches: they were played with weights that no longer exist."""
        await self._drop()
        self._known = {}  # versions repeat after a roll-back, weights do not
        self.parts.collecting.publish()
        self.learned(iteration)

    async def state(self, iteration: int) -> list[dict[str, Any]]:
        """The batches that were begun with weights older than this iteration's. They are waited
        for; the one that is played with this iteration's can be played again from it."""
        old = [plan for _, plan in sorted(self._planned.items()) if plan.after < iteration]
        return [(await plan.games).to_json() for plan in old]

    async def close(self) -> None:
        await self._drop()
        # Whoever is learning ends its iteration; nothing may move once the run is over.
        await asyncio.get_running_loop().run_in_executor(self._learning, int)
        for thread in {self._learning, self._canary} - {bench()}:
            thread.shutdown()

    async def _drop(self) -> None:
        games = [plan.games for plan in self._planned.values()]
        for task in games:
            task.cancel()
        await asyncio.gather(*games, return_exceptions=True)
        self._planned.clear()
        # A thread cannot be cancelled; it must not use the copy when that is given to others.
        await asyncio.get_running_loop().run_in_executor(self._canary, int)
        await self.parts.collecting.idle()


def held_to_who_spoke(stats: Mapping[str, float], canary: Mapping[str, float]) -> dict[str, float]:
    """For stale games the learner's canary measures how far the policy has moved (`drift`); the
    canary proper was measured when they were played."""
    metrics = dict(stats)
    for name, gap in canary.items():
        prefix = f"learn/{name}/" if f"learn/{name}/canary" in stats else "learn/"
        if f"{prefix}canary" in metrics:
            metrics[f"{prefix}drift"] = metrics[f"{prefix}canary"]
            metrics[f"{prefix}canary"] = gap
    return metrics


async def _play(parts: Parts, jobs: Callable[[int], list[Job]]) -> Played:
    config, engine = parts.config, parts.collecting
    started, _ = time.perf_counter(), engine.clock.lap()
    episodes: list[Episode] = []
    missing = None  # games to be replaced; None: all are to be played
    wanted = -(-config.collect.episodes // config.collect.group)
    for batch in range(config.collect.max_num_gen_batches):
        episodes += await engine.collect(
            jobs(batch)[:missing],
            concurrency=config.collect.concurrency,
            sampling=Sampling(**config.sampling.model_dump()),
        )
        if not config.collect.filter_groups:
            break
        missing = config.collect.group * (wanted - groups(differing(episodes, parts.credit)))
        if missing <= 0:
            break
    return Played(episodes, time.perf_counter() - started, engine.clock.lap())

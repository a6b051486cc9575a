"""Many workers as one engine. Whole games are played where the engines are, and come back as
episodes; single requests go in one message per tick. Weights go to all workers once per change; a
worker that dies is replaced, and what it had under way is begun again elsewhere, with its seed."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import logging
import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparring.core.clock import Clock
from sparring.core.collect import Job, play_all
from sparring.core.table import Speak
from sparring.core.tree import Infoset
from sparring.core.types import Episode, Request, Sampling, Turn
from sparring.engines.engine import OwnEngine, settle
from sparring.engines.shared_weights import SharedWeights, Transport, last_line
from sparring.engines.worker import Message, Reply, pack_game, portable, without_state
from sparring.run.rundir import RunError

log = logging.getLogger(__name__)
Key = tuple[Any, ...]

_SLACK = 4  # items that a worker may be ahead of the least busy one and still keep its own
_REMEMBERED = 65_536  # beginnings whose worker is known
_OPENING = 32  # ids, or _OPENING * 8 characters, that tell one beginning from another
_STOP_S = 10.0  # for a worker to stop its judges
_TRIES = 8  # workers that may die under one item before it is the item's fault


class PoolLost(RunError):
    """No worker is left, and none could be started."""


class _WorkerDied(Exception):
    """Raised in whoever waits for something that a dead worker had under way."""


def choose(loads: Sequence[int | None], home: int | None, slack: int = _SLACK) -> int | None:
    """The worker for an item: its home, if that is not too far ahead of the least busy one; else
    the least busy. None stands for a worker that is gone."""
    there = [(load, i) for i, load in enumerate(loads) if load is not None]
    if not there:
        return None
    least, index = min(there)
    if home is not None and loads[home] is not None and loads[home] <= least + slack:  # type: ignore[operator]
        return home
    return index


def beginning(request: Request) -> Key:
    """What requests share that a worker has read already: the opening of a conversation."""
    if request.previous is not None:
        return (request.policy, *request.previous.prompt_ids[:_OPENING])
    return (request.policy, request.messages[0]["content"][: _OPENING * 8])


@dataclass
class _Slot:
    worker: Any
    pending: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    alive: bool = True
    games: set[str] = field(default_factory=set)  # those that the worker has
    outbox: Message = field(default_factory=Message)  # sent at the end of this tick
    flushing: bool = False
    seen: int = 0  # what has been received from the worker
    listener: asyncio.Task[None] | None = None


class WorkerPool(OwnEngine):
    """Stands where an engine of the run's own stands; `own` keeps the policies that learn."""

    def __init__(
        self,
        own: OwnEngine,
        transport: Transport,
        *,
        patience_s: float = 300.0,
        whole: bool = True,  # whether `own` has weights to generate with
    ) -> None:
        self.whole, self.patience_s = whole, patience_s
        self.own, self.chat, self.policies, self.base = own, own.chat, own.policies, own.base
        self.clock: Clock = Clock()
        self.replaced = self.replayed = 0
        self._transport = transport
        self._failures: tuple[type[Exception], ...] = (TimeoutError, *transport.lost)
        self._numbers = itertools.count(1)
        self._homes: OrderedDict[Key, int] = OrderedDict()
        self.shared = SharedWeights(transport)
        self._speak: Speak | None = None  # answers what workers ask of engines elsewhere
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Lock()
        self._change = asyncio.Event()
        self._background: set[asyncio.Task[None]] = set()
        self._replacing: set[asyncio.Task[None]] = set()
        self._slots = [_Slot(worker) for worker in transport.start_all()]

    async def act(self, request: Request) -> Turn:
        """One turn. Workers may die under it; it is then played again, with the same seed."""
        await self._enter()
        light, key = without_state(request), beginning(request)

        def send(slot: _Slot, number: int) -> None:
            slot.outbox.requests.append((number, light))

        with self.clock.generating():
            turn: Turn = await self._ask(key, send)
        self.shared.check(turn)
        self._remember((request.policy, *turn.prompt_ids[:_OPENING]), self._homes[key])
        return turn

    async def collect(
        self,
        jobs: Sequence[Job],
        *,
        speak: Speak | None = None,
        elsewhere: frozenset[str] = frozenset(),
        outside: Callable[[], Any] | None = None,
        concurrency: int = 512,
        sampling: Sampling | None = None,
        on_episode: Callable[[Episode], None] | None = None,
    ) -> list[Episode]:
        """Play all jobs on the workers. A job has its own seed, so it does not matter which worker
        plays it; an episode is counted when it has arrived, so none is lost or counted twice."""
        await self._enter()
        self._speak = speak
        games = _packed(jobs)
        share = -(-concurrency // len(self._slots))

        async def play_one(job: Job, order: int) -> Episode:
            name, packed = games[id(job.game)]
            sent = replace(job, game=name)  # type: ignore[arg-type]

            def send(slot: _Slot, number: int) -> None:
                if name not in slot.games:
                    slot.games.add(name)
                    slot.outbox.games[name] = packed
                slot.outbox.elsewhere, slot.outbox.concurrency = elsewhere, share
                slot.outbox.jobs.append((number, sent, sampling))

            episode: Episode = await self._ask(("group", job.group or job.id), send)
            for turn in episode.turns:
                self.shared.check(turn)
            return episode

        await self._laps()
        # More than are played at a time, so that no worker waits for the next message; where there
        # is one worker all of them, so that its batches do not depend on when messages arrive.
        sent = concurrency + concurrency // 2 if len(self._slots) > 1 else len(jobs)
        episodes = await play_all(jobs, play_one, sent, on_episode)
        self.clock.add_workers(await self._laps())
        return episodes

    async def _enter(self) -> None:
        """Locks and tasks belong to one event loop, and a run may have several, one after the
        other."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._gate, self._change = loop, asyncio.Lock(), asyncio.Event()
            self._replacing.clear()
            self._background.clear()
            for slot in self._slots:
                slot.pending, slot.outbox, slot.flushing, slot.listener = {}, Message(), False, None
        for index, slot in enumerate(self._slots):
            if slot.alive and slot.listener is None:
                slot.listener = loop.create_task(self._listen(index, slot))
        await self._share()

    async def _laps(self) -> list[dict[str, float]]:
        async def lap(slot: _Slot) -> dict[str, float] | None:
            try:
                spent: dict[str, float] = await slot.worker.lap.remote()
            except self._transport.lost:  # the listener replaces it
                return None
            return spent

        laps = await asyncio.gather(*(lap(slot) for slot in self._slots if slot.alive))
        return [spent for spent in laps if spent is not None]

    async def _ask(self, key: Key, send: Callable[[_Slot, int], None]) -> Any:
        """What a worker makes of an item; begun again elsewhere when the worker dies."""
        for _ in range(_TRIES):
            index = await self._free_slot(key)
            slot = self._slots[index]
            self._remember(key, index)
            number = next(self._numbers)
            future = slot.pending[number] = asyncio.get_running_loop().create_future()
            send(slot, number)
            self._flush_soon(slot)
            try:
                return await future
            except _WorkerDied:
                self.replayed += 1
            except asyncio.CancelledError:
                slot.outbox.cancelled.append(number)
                self._flush_soon(slot)
                raise
            finally:
                slot.pending.pop(number, None)
        raise PoolLost(f"{_TRIES} workers died under one item: {key[:2]}")

    def _flush_soon(self, slot: _Slot) -> None:
        if not slot.flushing:
            slot.flushing = True
            asyncio.get_running_loop().call_soon(self._flush, slot)

    def _flush(self, slot: _Slot) -> None:
        message, slot.outbox, slot.flushing = slot.outbox, Message(), False
        if not slot.alive:
            return
        try:
            slot.worker.deliver.remote(pickle.dumps(message, protocol=5))
        except Exception as error:  # what cannot be pickled
            self._fail(slot, error)

    async def _listen(self, index: int, slot: _Slot) -> None:
        try:
            while True:
                reply: Reply = pickle.loads(await slot.worker.results.remote(slot.seen))
                slot.seen = reply.last
                for number, answer in reply.finished:
                    if number < 0:
                        self._fail(slot, answer)  # type: ignore[arg-type]
                    elif (future := slot.pending.get(number)) is not None:
                        settle(future, answer)
                for number, request in reply.requests:
                    self._spawn(self._answer(slot, number, request))
        except self._transport.lost as error:
            self._lost(index, slot, error)
        except Exception as error:
            slot.listener = None
            self._fail(slot, error)

    def _fail(self, slot: _Slot, error: Exception) -> None:
        for future in slot.pending.values():
            settle(future, error)

    async def _answer(self, slot: _Slot, number: int, request: Request) -> None:
        """Answer a request that a worker's game makes of an engine that is not the worker's."""
        answer: Turn | Exception
        try:
            assert self._speak is not None  # workers are told of other policies with it
            answer = await self._speak(request)
        except Exception as error:
            answer = portable(error)
        slot.outbox.answers.append((number, answer))
        self._flush_soon(slot)

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def _free_slot(self, key: Key) -> int:
        while True:
            loads = [len(slot.pending) if slot.alive else None for slot in self._slots]
            index = choose(loads, self._homes.get(key))
            if index is not None:
                return index
            if not self._replacing:
                raise PoolLost(
                    "every worker died and none could be started again; the checkpoints are "
                    "whole. See why (with Ray: `ray status`), then --resume."
                )
            self._change.clear()
            await self._change.wait()

    def _remember(self, key: Key, index: int) -> None:
        self._homes[key] = index
        self._homes.move_to_end(key)
        if len(self._homes) > _REMEMBERED:
            self._homes.popitem(last=False)

    def _lost(self, index: int, slot: _Slot, error: Exception) -> None:
        """Begin to replace a worker, once, however much it took with it."""
        if self._slots[index] is not slot or not slot.alive:
            return
        slot.alive = False
        log.warning("worker %d is gone (%s); replacing it", index, last_line(error))
        task = self._spawn(self._replace(index))
        self._replacing.add(task)
        task.add_done_callback(self._replaced)
        self._fail(slot, _WorkerDied())

    def _replaced(self, task: asyncio.Task[None]) -> None:
        self._replacing.discard(task)
        self._change.set()  # not before: who wakes would see it under way and wait for ever

    async def _replace(self, index: int) -> None:
        try:
            worker = self._transport.start(index)
            async with asyncio.timeout(self.patience_s):
                await worker.ready.remote()
                await self.shared.bring_up_to_date(worker)
        except self._failures as error:
            log.warning("worker %d could not be replaced: %s", index, last_line(error))
        else:
            slot = self._slots[index] = _Slot(worker)
            slot.listener = asyncio.get_running_loop().create_task(self._listen(index, slot))
            self.replaced += 1

    async def _share(self) -> None:
        """Give the workers what has changed since they were last given anything. Nothing is being
        played when weights change, so nothing can be played with half of them."""
        if self.shared.stale(self.policies):
            async with self._gate:
                if self.shared.stale(self.policies):
                    with self.shared.publishing(self.policies) as changed:
                        await self._give(changed)

    async def _give(self, names: list[str]) -> None:
        """Send weights to all workers; where some are lost meanwhile, once more to the others. A
        group of processes that does not come together is given a second try too."""
        for attempt in range(_TRIES):
            slots = [(i, slot) for i, slot in enumerate(self._slots) if slot.alive]
            failures = await self.shared.send([slot.worker for _, slot in slots], names)
            lost = False
            for (index, slot), failure in zip(slots, failures, strict=True):
                if isinstance(failure, self._transport.lost):
                    self._lost(index, slot, failure)
                    lost = True
            if lost or (attempt == 0 and any(failures)):
                continue
            for failure in failures:
                self.shared.refuse(failure)
            return
        raise PoolLost(f"workers were lost {_TRIES} times while they were given weights")

    def publish(self) -> None:
        """Weights have changed under the same versions, as when a checkpoint was loaded."""
        self.shared.given = {}

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        if self.whole:
            return self.own.probabilities(policy, asked, sampling)
        if self.shared.stale(self.policies):
            raise RunError("nothing has been played with these weights yet, so no worker has them")
        worker = next(slot.worker for slot in self._slots if slot.alive)
        probabilities: list[list[float]] = self._transport.get(
            worker.probabilities.remote(policy, list(asked), sampling)
        )
        return probabilities

    def metrics(self) -> dict[str, float]:
        """What happened since this was last asked."""
        stats = {
            "pool/replicas": float(sum(slot.alive for slot in self._slots)),
            "pool/replaced": float(self.replaced),
            "pool/replayed": float(self.replayed),
        }
        self.replaced = self.replayed = 0
        return stats | self.shared.metrics()

    def kill(self) -> None:
        self._transport.close([slot.worker for slot in self._slots])

    async def close(self) -> None:
        listeners = [slot.listener for slot in self._slots if slot.listener is not None]
        for task in [*self._background, *listeners]:
            task.cancel()
        used = [slot.worker for slot in self._slots if slot.alive and slot.listener is not None]
        await asyncio.gather(*map(self._stop, used))
        self.kill()

    async def _stop(self, worker: Any) -> None:
        """Let a worker stop its judges; one that does not answer is killed all the same."""
        try:
            async with asyncio.timeout(_STOP_S):
                await worker.close.remote()
        except self._failures as error:
            log.warning("a worker did not stop by itself: %s", last_line(error))


def _packed(jobs: Sequence[Job]) -> dict[int, tuple[str, Any]]:
    """The games of some jobs as they travel, by identity: a name made of their content, and that
    content."""
    packed = {}
    for job in jobs:
        if id(job.game) not in packed:
            content = pack_game(job.name, job.game)
            digest = hashlib.blake2b(pickle.dumps(content), digest_size=12).hexdigest()
            packed[id(job.game)] = digest, content
    return packed

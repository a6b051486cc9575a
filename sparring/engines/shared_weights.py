"""Which weights the workers of a pool have: sent once per change, compared by checksum on arrival,
and named by version in every turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from sparring.core.types import BASE, REFERENCE, Turn
from sparring.engines.broadcast import Group, Layout, Offer, Root, choose_backend, flatten, gpu_of
from sparring.engines.published import PublishFailed, checksum

if TYPE_CHECKING:
    from torch import Tensor

    from sparring.models.policies import Policies


class Transport(Protocol):
    """How workers are started and reached. The methods of a worker are called as
    `worker.NAME.remote(…)`, which can be awaited."""

    lost: tuple[type[Exception], ...]  # raised by such a call when the worker is dead
    host: str  # by which workers reach this process

    def start(self, index: int) -> Any:
        """A worker, the first or one that takes the place of a dead one."""

    def start_all(self) -> list[Any]: ...
    def get(self, call: Any) -> Any:
        """The result of a call, outside of an event loop."""

    def close(self, workers: Sequence[Any]) -> None: ...


def last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2].strip() or type(error).__name__


class SharedWeights:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.given: dict[str, int] = {}  # versions that all workers have
        self._next: dict[str, int] = {}  # versions that they are being given
        self._stored: dict[str, tuple[Layout, Tensor]] = {}  # policy -> its weights, as bytes
        self._sums: dict[str, str] = {}  # policy -> their checksum
        self._changes = 0  # counts publishes: one may come while a worker is replaced
        self._device: Any = None  # where they are learned
        self._root: Root | None = None
        self._group: tuple[list[Any], list[Offer], Group] | None = None  # that was sent to last
        self.publishes = self.published_bytes = 0

    def stale(self, policies: Policies) -> bool:
        return _versions(policies) != self.given

    @contextmanager
    def publishing(self, policies: Policies) -> Iterator[list[str]]:
        """Gives the names of the policies that changed; to be sent in the block."""
        wanted = _versions(policies)
        changed = [n for n, v in wanted.items() if self.given.get(n) != v]
        kept = {n: stored for n, stored in self._stored.items() if n in wanted}
        for name in changed:
            state = policies.state(name)
            self._sums[name], kept[name] = checksum(state), flatten(state)
            self.published_bytes += len(kept[name][1])
        self._device = getattr(policies, "device", None)
        self._stored, self._next = kept, wanted
        self._changes += 1
        self.publishes += 1
        yield changed
        self.given = wanted

    async def send(self, workers: list[Any], names: list[str]) -> list[Exception | None]:
        """Broadcast the weights of some policies. Returns, for each worker, what went wrong."""
        stored = {name: self._stored[name] for name in names if name in self._stored}
        if not stored or not workers:
            return [None] * len(workers)
        sums = {name: self._sums[name] for name in stored}
        layouts = {name: layout for name, (layout, _) in stored.items()}
        try:
            offers, known = await self._offers(workers, layouts)
        except self._transport.lost as error:
            each = [await self._failure(worker.ready.remote(), {}) for worker in workers]
            return each if any(each) else [error] * len(workers)
        calls = [
            self._failure(worker.receive.remote(self._next, offer), sums)
            for worker, offer in zip(workers, offers, strict=True)
        ]

        def broadcast() -> Group:
            group = known or Group(offers[0], 0, self._device)
            for _, bytes_N in stored.values():
                group.broadcast(bytes_N)
            return group

        *failures, group = await _first_failure([*calls, _in_thread(broadcast)])
        self._group = None
        if isinstance(group, Group) and not any(failures):
            self._group = workers, offers, group
        elif not any(failures):
            failures = [RuntimeError(str(group))] * len(workers)
        return failures

    async def _offers(
        self, workers: list[Any], layouts: dict[str, Layout]
    ) -> tuple[list[Offer], Group | None]:
        """Of the group that there is, where its members are these workers; else of a new one."""
        if self._group is not None and self._group[0] == workers:
            _, offers, group = self._group
            return [replace(offer, layouts=layouts) for offer in offers], group
        self._root = self._root or Root(self._transport.host)
        # A model that is still being loaded is waited for here: a group has less time.
        gpus = await asyncio.gather(*(_awaited(worker.gpu.remote()) for worker in workers))
        backend = choose_backend([gpu_of(self._device), *gpus])
        return self._root.offers(len(workers), backend, layouts), None

    async def _failure(self, call: Any, sums: dict[str, str]) -> Exception | None:
        try:
            held = await call
        except Exception as error:
            return error
        wrong = [name for name in sums if held[name] != sums[name]]
        return RuntimeError(f"what arrived of {wrong[0]!r} is not what was sent") if wrong else None

    async def bring_up_to_date(self, worker: Any) -> None:
        """Give a new worker all there is, also where weights change meanwhile."""
        have = -1
        while have != self._changes:
            have = self._changes
            (failure,) = await self.send([worker], list(self._stored))
            self.refuse(failure)

    def refuse(self, failure: Exception | None) -> None:
        """Raise a failure to send: a dead worker's as it is, any other as what it means."""
        if isinstance(failure, self._transport.lost):
            raise failure
        if failure is not None:
            names = ", ".join(self._stored)
            reason = f"a worker did not take them: {last_line(failure)}"
            raise PublishFailed(names, reason) from failure

    def check(self, turn: Turn) -> None:
        """Refuse a turn that was played with other weights than the workers were given."""
        wanted = self.given.get(turn.policy, turn.version)
        if turn.version != wanted:
            reason = f"a worker played with version {turn.version} of {wanted}"
            raise PublishFailed(turn.policy, reason)

    def metrics(self) -> dict[str, float]:
        """What was sent since this was last asked."""
        stats = {
            "pool/publishes": float(self.publishes),
            "pool/published_bytes": float(self.published_bytes),
        }
        self.publishes = self.published_bytes = 0
        return stats


async def _first_failure(work: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The result of each, or, once one of them is an error, an error for those under way: who is
    left in a group that another has left would wait for minutes."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        under_way = set(tasks)
        while under_way:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            failures = [r for task in done if isinstance(r := task.result(), Exception)]
            if failures:  # of another class: a worker that waits is not lost
                given_up = RuntimeError(last_line(failures[0]))
                return [task.result() if task.done() else given_up for task in tasks]
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()


async def _awaited(call: Any) -> Any:
    return await call


async def _in_thread(work: Callable[[], Any]) -> Any:
    """What `work` returns or raises. Its thread ends with the process: a member of a group that
    others have left waits for minutes."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def finish(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            result = error
        loop.call_soon_threadsafe(finish, result)

    threading.Thread(target=run, name="broadcast", daemon=True).start()
    return await future


def _versions(policies: Policies) -> dict[str, int]:
    """Of every policy that may be asked for a turn: references only score."""
    names = [n for n in policies.names() if n != BASE and not n.startswith(f"{REFERENCE}_")]
    return {name: policies.version(name) for name in names}

"""Which weights the workers of a pool have: sent once per change, compared by checksum on arrival,
and named by version in every turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sparring.core.types import BASE, REFERENCE, Turn
from sparring.engines.published import PublishFailed, checksum
from sparring.engines.worker import serialize

if TYPE_CHECKING:
    from sparring.models.policies import Policies


class Transport(Protocol):
    """How workers are started and reached. The methods of a worker are called as
    `worker.NAME.remote(…)`, which can be awaited."""

    lost: tuple[type[Exception], ...]  # raised by such a call when the worker is dead

    def start(self) -> Any: ...
    def start_all(self) -> list[Any]: ...
    def store(self, weights: Any) -> Any:
        """Weights as they are given to `receive`, for any number of workers."""

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
        self._stored: dict[str, Any] = {}  # policy -> its weights, as they are sent
        self._sums: dict[str, str] = {}  # policy -> their checksum
        self._changes = 0  # counts publishes: one may come while a worker is replaced
        self.publishes = self.published_bytes = 0

    def stale(self, policies: Policies) -> bool:
        return _versions(policies) != self.given

    @contextmanager
    def publishing(self, policies: Policies) -> Iterator[list[str]]:
        """Gives the names of the policies that changed; to be handed over in the block."""
        wanted = _versions(policies)
        changed = [n for n, v in wanted.items() if self.given.get(n) != v]
        kept = {n: stored for n, stored in self._stored.items() if n in wanted}
        for name in changed:
            state = policies.state(name)
            self._sums[name], packed = checksum(state), serialize(state)
            kept[name] = self._transport.store({name: packed})
            self.published_bytes += sum(flat.nbytes for _, _, flat in packed.values())
        self._stored, self._next = kept, wanted
        self._changes += 1
        self.publishes += 1
        yield changed
        self.given = wanted

    async def hand_over(self, worker: Any, name: str) -> None:
        """Give a worker the weights of a policy, and compare what it has then."""
        if name not in self._stored:  # gone while a worker was replaced
            return
        wanted = self._sums[name]
        try:
            sums = await worker.receive.remote(self._next, self._stored[name])
        except self._transport.lost:
            raise
        except Exception as error:
            raise PublishFailed(name, f"a worker did not take them: {last_line(error)}") from error
        if sums[name] != wanted:
            raise PublishFailed(name, "what arrived at a worker is not what was sent")

    async def hand_over_all(self, worker: Any) -> None:
        """Bring a new worker up to date, also where weights change meanwhile."""
        have = -1
        while have != self._changes:
            have = self._changes
            for name in list(self._stored):
                await self.hand_over(worker, name)

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


def _versions(policies: Policies) -> dict[str, int]:
    """Of every policy that may be asked for a turn: references only score."""
    names = [n for n in policies.names() if n != BASE and not n.startswith(f"{REFERENCE}_")]
    return {name: policies.version(name) for name in names}

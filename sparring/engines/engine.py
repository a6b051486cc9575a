"""The contract of engines: only `act` must be written; the other methods do nothing by default."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from sparring.core.clock import Clock
from sparring.core.collect import Job, collect
from sparring.core.table import Speak
from sparring.core.tree import Infoset
from sparring.core.types import Episode, Request, Sampling, Turn

if TYPE_CHECKING:
    from sparring.models.chat import Chat
    from sparring.models.policies import Policies


class Engine:
    """Answers requests. Batching is its own business."""

    clock: Clock | None = None  # of an engine that knows when it generates

    async def act(self, request: Request) -> Turn:
        raise NotImplementedError(f"{type(self).__name__} cannot act")

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
        """Play all jobs; episodes come back in the jobs' order. `speak` answers, instead of `act`,
        where this engine is one of several; those of the policies `elsewhere` are not here."""
        return await collect(
            jobs,
            speak or self.act,
            concurrency=concurrency,
            sampling=sampling,
            outside=outside or self.outside,
            on_episode=on_episode,
        )

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Held by a game that waits for something other than this engine."""
        yield

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        """The time in which weights move. An engine with weights of its own hands its memory over
        and takes the new weights afterwards."""
        yield

    def publish(self) -> None:
        """Weights have moved outside of `learning`, as when a checkpoint is loaded."""

    async def idle(self) -> None:
        """Wait for the running batch, including cancelled requests."""

    def metrics(self) -> dict[str, float]:
        """What there is to log since this was last called."""
        return {}

    async def close(self) -> None:
        """Let go of processes and connections."""


class OwnEngine(Engine):
    """An engine of a run's own policies."""

    chat: Chat
    policies: Policies
    base: str  # which base model this is, to add policies of the same one

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        """Per information state, how likely each legal action is as the reply: exactly, where a
        reply is one token or actions are masked."""
        raise NotImplementedError(f"{type(self).__name__} gives no probabilities")


def settle(future: Any, result: Any) -> None:
    """Answer whoever waits for a future, unless it was cancelled, with a result or an error."""
    if future.done():
        return
    if isinstance(result, StopIteration):  # a future cannot hold one, and would never be done
        result = RuntimeError(f"the engine failed: {result!r}")
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)

"""Everyone a run can ask: the policies of its own engine, and players who live on servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from sparring.core.clock import Clock
from sparring.core.types import Request, Sampling, Turn
from sparring.engines.engine import OwnEngine
from sparring.engines.openai import OpenAIEngine

if TYPE_CHECKING:
    from sparring.models.policies import Policies


class Players:
    """An engine made of engines: requests go by their policy's name."""

    def __init__(self, own: OwnEngine, servers: Mapping[str, OpenAIEngine] | None = None) -> None:
        self.own, self.servers = own, dict(servers or {})
        self.chat, self.base = own.chat, own.base
        # An engine that forms batches knows when it speaks; any other does while it is asked.
        self._tells: Clock | None = getattr(own, "clock", None)
        self.clock = self._tells or Clock()

    @property
    def policies(self) -> Policies:
        return self.own.policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        self.own.policies = policies

    async def act(self, request: Request) -> Turn:
        server = self.servers.get(request.policy)
        if server is None:
            with nullcontext() if self._tells else self.clock.generating():
                return await self.own.act(request)
        # The own engine's next batch waits for this game too, so that batches do not depend on
        # how fast a server is.
        with self.own.outside(), self.clock.generating():
            return await server.act(request)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Held by a game that waits for its judge."""
        with self.own.outside(), self.clock.judging():
            yield

    def probabilities(
        self, policy: str, prompts: Sequence[str], sampling: Sampling
    ) -> list[dict[str, float]]:
        return self.own.probabilities(policy, prompts, sampling)

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        """The time in which weights move. An engine with weights of its own hands its memory over
        and takes the new ones afterwards; the embedded one has the learner's."""
        if hasattr(self.own, "learning"):
            async with self.own.learning():
                yield
        else:
            yield

    def publish(self) -> None:
        """Weights have moved outside of `learning`, as when a checkpoint is loaded."""
        if hasattr(self.own, "publish"):
            self.own.publish()

    async def idle(self) -> None:
        """Nobody speaks any more, whoever was given up in the middle of a word included."""
        if hasattr(self.own, "idle"):
            await self.own.idle()

    def notices(self) -> list[str]:
        """What a run should say of its players before it begins."""
        return [
            f"{policy} is a player on a server ({server.line.server.model} at {server.line.url}): "
            "its turns are not trainable, and its weights do not move"
            for policy, server in sorted(self.servers.items())
        ]

    def metrics(self) -> dict[str, float]:
        """What servers were asked and cost since this was last asked."""
        found: dict[str, float] = {}
        for server in self.servers.values():
            found |= server.line.metrics()
        if hasattr(self.own, "metrics"):
            found |= self.own.metrics()
        return found

    async def close(self) -> None:
        for server in self.servers.values():
            await server.line.close()
        if hasattr(self.own, "close"):
            await self.own.close()

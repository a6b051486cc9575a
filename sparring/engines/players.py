"""Everyone a run can ask: the policies of its own engine, and players who live on servers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from sparring.core.clock import Clock
from sparring.core.collect import Job
from sparring.core.tree import Infoset
from sparring.core.types import Episode, Request, Sampling, Turn
from sparring.engines.engine import OwnEngine
from sparring.engines.openai import OpenAIEngine

if TYPE_CHECKING:
    from sparring.models.policies import Policies


class Players(OwnEngine):
    """An engine made of engines: requests go by their policy's name."""

    def __init__(self, own: OwnEngine, servers: Mapping[str, OpenAIEngine] | None = None) -> None:
        self.own, self.servers = own, dict(servers or {})
        self.chat, self.base = own.chat, own.base
        # An engine that forms batches knows when it generates; any other does while it is asked.
        self.clock: Clock = own.clock or Clock()

    @property
    def policies(self) -> Policies:
        return self.own.policies

    @policies.setter
    def policies(self, policies: Policies) -> None:
        self.own.policies = policies

    async def act(self, request: Request) -> Turn:
        server = self.servers.get(request.policy)
        if server is None and self.own.clock:
            return await self.own.act(request)
        if server is None:
            with self.clock.generating():
                return await self.own.act(request)
        # The own engine's next batch waits for this game too, so that batches do not depend on
        # how fast a server is.
        with self.own.outside(), self.clock.generating():
            return await server.act(request)

    async def collect(self, jobs: Sequence[Job], **options: Any) -> list[Episode]:
        own = {"speak": self.act, "outside": self.outside, "elsewhere": frozenset(self.servers)}
        return await self.own.collect(jobs, **own, **options)  # type: ignore[arg-type]

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Held by a game that waits for its judge."""
        with self.own.outside(), self.clock.judging():
            yield

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        return self.own.probabilities(policy, asked, sampling)

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        async with self.own.learning():
            yield

    def publish(self) -> None:
        self.own.publish()

    async def idle(self) -> None:
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
        metrics = self.own.metrics()
        for server in self.servers.values():
            metrics |= server.line.metrics()
        return metrics

    async def close(self) -> None:
        for server in self.servers.values():
            await server.line.close()
        await self.own.close()

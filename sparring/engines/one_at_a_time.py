"""Requests of several policies to an engine that can hold the weights of one of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


class OneAtATime:
    """Requests of the loaded policy are served until another one is asked for. Then those under way
    end, and the policy that has waited longest is loaded and serves all who wait for it."""

    def __init__(self, load: Callable[[str], Awaitable[None]]) -> None:
        self._load = load
        self.loaded: str | None = None
        self._running = 0
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._switch: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def holding(self, policy: str) -> AsyncIterator[None]:
        """The time in which this policy stays loaded."""
        if self.loaded != policy or self._waiting or self._switch is not None:
            await self._wait(policy)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._go_on()

    async def _wait(self, policy: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(policy, []).append(turn)
        self._go_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # given up between its turn and its request
                self._running -= 1
                self._go_on()
            raise

    def _go_on(self) -> None:
        if self._waiting and not self._running and self._switch is None:
            self._switch = asyncio.get_running_loop().create_task(self._serve_next())

    async def _serve_next(self) -> None:
        policy = next(iter(self._waiting))
        error: Exception | None = None
        try:
            if self.loaded != policy:
                self.loaded = None
                await self._load(policy)
                self.loaded = policy
        except Exception as failed:
            error = failed
        for turn in self._waiting.pop(policy):
            if turn.done():
                continue
            if error is not None:
                turn.set_exception(error)
            else:
                self._running += 1
                turn.set_result(None)
        self._switch = None
        self._go_on()

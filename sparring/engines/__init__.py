"""Who generates. An engine is anything with `async act(request) -> Turn`; batching is its own."""

from __future__ import annotations

from typing import Protocol

from sparring.types import Request, Turn


class Engine(Protocol):
    async def act(self, request: Request) -> Turn: ...

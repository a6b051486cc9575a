"""Runs an awaitable to its end for the other side of the link, whatever loop this thread is in."""

from __future__ import annotations

from typing import Any


class Loop:
    """One event loop for all that is awaited one after another: a generator lives across steps."""

    def __init__(self) -> None:
        self.loop: Any = None

    def run(self, awaitable: Any) -> Any:
        import asyncio
        from asyncio import events

        async def awaited() -> Any:
            return await awaitable

        outer = events._get_running_loop()
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
        loop = asyncio.new_event_loop() if self.loop.is_running() else self.loop
        events._set_running_loop(None)
        try:
            return loop.run_until_complete(awaited())
        finally:
            events._set_running_loop(outer)

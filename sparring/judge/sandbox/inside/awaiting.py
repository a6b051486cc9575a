"""Runs what the other side of the link awaits: to its end, or turn by turn beside other such."""

from __future__ import annotations

from typing import Any

TURN_S = 0.002  # how long one side waits for the other's timers before it looks at its own


class Loop:
    """One event loop for all that is awaited: tasks live across turns, generators across steps."""

    def __init__(self) -> None:
        self.loop: Any = None

    def run(self, awaitable: Any) -> Any:
        """To its end, whatever loop this thread is in."""
        from asyncio import events, new_event_loop

        outer, loop = events._get_running_loop(), self._idle() or new_event_loop()
        events._set_running_loop(None)
        try:
            return loop.run_until_complete(_awaited(awaitable))
        finally:
            events._set_running_loop(outer)

    def _idle(self) -> Any:
        if self.loop is None:
            from asyncio import new_event_loop

            self.loop = new_event_loop()
        return None if self.loop.is_running() else self.loop

    def start(self, awaitable: Any) -> Any:
        """A task of it, or, called from within one, a future that is done."""
        loop = self._idle()
        if loop is not None:
            return loop.create_task(_awaited(awaitable))
        done = self.loop.create_future()
        try:
            done.set_result(self.run(awaitable))
        except Exception as error:
            done.set_exception(error)
        return done

    def turn(self, task: Any) -> bool:
        """Some time for all tasks; whether this one is done."""
        loop = self._idle()
        if not task.done() and loop is not None:
            task.add_done_callback(_stop)
            timer = loop.call_later(TURN_S, loop.stop)
            loop.run_forever()
            timer.cancel()
            task.remove_done_callback(_stop)
        return bool(task.done())


def _stop(task: Any) -> None:
    task.get_loop().stop()


async def _awaited(awaitable: Any) -> Any:
    return await awaitable

"""Leaves in good order when asked to, by a scheduler that wants its machine back or by Ctrl-C: what
is under way is ended, or after some seconds given up; a checkpoint is written; and the exit code
says that the work is to be resumed. Asked a second time, the process ends on the spot."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sparring.run.rundir import RunError

Result = TypeVar("Result")
AGAIN = 75  # the exit code that means: resume me
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
GRACE_S = 10.0  # for weights that are moving: what is given up then may be many iterations
BATCH_GRACE_S = 3.0  # for a batch of games or questions: nothing but the batch is given up
_SAME_S = 2.0  # launchers pass on signals that the process has got already; they are one request


_AGAIN = "--resume, or where there is none the same command, goes on from there"


class Interrupted(RunError):
    """The work was asked to leave; what is done is on disk."""


class GivenUp(RunError):
    """What was under way did not end within its time."""


class Left(KeyboardInterrupt):
    """Asked to leave at a moment when nothing had to be ended first."""


class _State:
    def __init__(self) -> None:
        self.signals: list[int] = []
        self.asked_at = math.inf
        self.listening = 0
        self.deferred: list[str] = []  # what is ended first, innermost last
        self.limit_s = math.inf  # after which what is under way is given up
        self.left = False  # whether `Left` was raised
        self.over = False  # whether nothing waits any more
        self.wake: list[Any] = []  # called when a signal comes


_state = _State()


@contextmanager
def listening() -> Iterator[None]:
    """The time in which a signal asks to leave: at once, or where `deferred` in good order."""
    if _state.listening or threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    _state.signals.clear()
    _state.asked_at, _state.listening = math.inf, 1
    _state.left = _state.over = False
    before = {number: signal.signal(number, _on_signal) for number in SIGNALS}
    try:
        yield
    except (Left, Exception) as error:
        # An import that `Left` came out of may have swallowed it, and failed later for want of it.
        if not _state.left or isinstance(error, Interrupted):
            raise
        raise Interrupted(
            f"{_name()} came: left at once, with nothing under way; {_AGAIN}"
        ) from None
    finally:
        _state.listening, _state.over = 0, False
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferred(until: str) -> Iterator[None]:
    """The time in which a signal is only noted, and answered with `until` when the process leaves;
    whoever works calls `leave` where that is good, and leaves at the end of it otherwise."""
    _state.deferred.append(until)
    try:
        yield
    finally:
        _state.deferred.pop()
    if _state.signals and _state.listening:
        raise Interrupted(f"{_name()} came: left before what remains at the end; {_AGAIN}")


def asked() -> bool:
    return bool(_state.signals)


def leave(done: int, total: int, what: str = "iteration", kept: str = "with a checkpoint") -> None:
    """Leave here, where what is done has just been written, if that was asked for."""
    if _state.signals and done < total:
        raise Interrupted(f"{_name()} came: left after {what} {done} of {total}, {kept}; {_AGAIN}")


def check() -> None:
    """For loops that may take long inside `limited`, in any thread: ends them when it is time."""
    if _state.over:
        raise GivenUp("nothing waits for this any more")
    if time.monotonic() > _state.asked_at + _grace():
        raise _given_up()


def end_threads() -> None:
    """The process is about to leave: threads that still generate are not waited for."""
    _state.over = True


@contextmanager
def limited(seconds: float | None = None) -> Iterator[None]:
    """The time in which what is under way may be given up, so many seconds after a signal
    (`GRACE_S`)."""
    before, _state.limit_s = _state.limit_s, GRACE_S if seconds is None else seconds
    try:
        yield
    finally:
        _state.limit_s = before


async def in_time(work: Coroutine[Any, Any, Result], seconds: float | None = None) -> Result:
    """What `work` comes to. After a signal it is given its time to end (`BATCH_GRACE_S`) and then
    cancelled."""
    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    came = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(came.set)

    waiting = asyncio.ensure_future(came.wait())
    _state.wake.append(wake)
    if asked():
        came.set()
    try:
        with limited(BATCH_GRACE_S if seconds is None else seconds):
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
            # A warning may be followed by a request that has less time.
            while not task.done() and (left := _state.asked_at + _grace() - time.monotonic()) > 0:
                await asyncio.wait({task}, timeout=min(left, 0.5))
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise _given_up()
            return task.result()
    finally:
        _state.wake.remove(wake)
        for each in (task, waiting):
            each.cancel()


def _grace() -> float:
    """SIGUSR1 is a warning minutes ahead, and then there is time to end what is under way."""
    return math.inf if set(_state.signals) <= {signal.SIGUSR1} else _state.limit_s


def _given_up() -> GivenUp:
    return GivenUp(f"{_name()} came, and this was not done within {_state.limit_s:g} s")


def _name() -> str:
    return signal.Signals(_state.signals[0]).name


def _on_signal(number: int, frame: Any) -> None:
    now = time.monotonic()
    hard = [n for n in _state.signals if n != signal.SIGUSR1]
    if hard and number != signal.SIGUSR1:
        by_hand = number == signal.SIGINT and hard[-1] == signal.SIGINT
        if not by_hand and now < _state.asked_at + _SAME_S:
            return
        _write_line("leaving at once: what was under way is lost")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    if not hard:
        _state.asked_at = now
    _state.signals.append(number)
    if not _state.deferred:
        end_threads()
        _state.left = True
        raise Left
    if len(_state.signals) == 1:
        limit = f", or in {_grace():g} s" if _grace() < math.inf else ""
        after = f"leaving after this {_state.deferred[-1]}{limit}"
        _write_line(f"{_name()}: {after}; a second one leaves at once")
    for wake in _state.wake:
        wake()


def _write_line(line: str) -> None:
    """By the system call: the interrupted code may hold the lock of a stream."""
    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides the cursor
    os.write(2, f"{cursor}\nsparring: {line}\n".encode())

"""Leaves in good order when asked to: a scheduler that wants its machine back sends a signal first,
and the run then ends its iteration, writes a checkpoint and says that it is to be resumed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.run.rundir import RunError

AGAIN = 75  # the exit code that means: resume me
SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
_asked: list[str] = []  # the signals that came


class Interrupted(RunError):
    """The run was asked to leave; what it has learned is in a checkpoint."""


@contextmanager
def listening() -> Iterator[None]:
    """The time in which a signal asks the run to leave instead of ending it on the spot."""
    _asked.clear()
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    before = {number: signal.signal(number, _hear) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def asked() -> bool:
    return bool(_asked)


def leave(iteration: int, iterations: int) -> None:
    """Leave here, where a checkpoint has just been written, if that was asked for."""
    if _asked and iteration < iterations:
        raise Interrupted(
            f"{_asked[0]} came: the run left after iteration {iteration} of {iterations}, with a "
            "checkpoint; --resume goes on from there"
        )


def _hear(number: int, frame: Any) -> None:
    _asked.append(signal.Signals(number).name)

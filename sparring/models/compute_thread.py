"""One thread for all that a CPU computes. OpenMP gives every thread that computes a pool of its
own, and once there are more threads in pools than cores, all of them go to sleep between any two
loops: with an engine on one thread and a learner on another, small models ran at two thirds of
their speed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


@dataclass
class _Bench:
    thread: ThreadPoolExecutor
    threads: int  # that its operations are split over


_current: ContextVar[_Bench | None] = ContextVar("bench", default=None)


@contextmanager
def workbench(device: str) -> Iterator[None]:
    """While this lasts, engines on a CPU compute on one thread, as does
    `on_bench`. The thread that opens it has no pool: open it before anything is loaded."""
    if device != "cpu" or _current.get() is not None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    thread = ThreadPoolExecutor(1, "bench", torch.set_num_threads, (before,))
    thread.submit(int).result()  # at once: threads that come later go by the number set last
    outer = _current.set(_Bench(thread, before))
    try:
        yield
    finally:
        thread.shutdown()
        _current.reset(outer)
        torch.set_num_threads(before)


def threads() -> int:
    """How many threads compute on this CPU: they decide how sums are split, and so last digits."""
    import torch

    current = _current.get()
    return current.threads if current else torch.get_num_threads()


def use_threads(count: int) -> None:
    """Compute with so many threads from now on, whatever this machine would have chosen."""
    import torch

    current = _current.get()
    if current is None:
        torch.set_num_threads(count)
    else:
        current.thread.submit(torch.set_num_threads, count).result()
        current.threads = count


def bench() -> ThreadPoolExecutor | None:
    current = _current.get()
    return current.thread if current else None


async def on_bench(compute: Callable[[], Result]) -> Result:
    """Compute on the shared thread where there is one, here otherwise."""
    if (thread := bench()) is None:
        return compute()
    return await asyncio.get_running_loop().run_in_executor(thread, compute)

"""One thread for all that a CPU computes. OpenMP gives every thread that computes a pool of its
own, and once there are more threads in pools than cores, all of them go to sleep between any two
loops: with an engine on one thread and a learner on another, small models ran at two thirds of
their speed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_bench: ThreadPoolExecutor | None = None
_threads = 0  # of the bench


@contextmanager
def workbench(device: str) -> Iterator[None]:
    """While this lasts, engines on a CPU compute on one thread, and whoever else asks for it. The
    thread that opens it gets by without a pool: so open it before anything is loaded."""
    global _bench, _threads
    if device != "cpu" or _bench is not None:
        yield
        return
    import torch

    before = _threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _bench = ThreadPoolExecutor(1, "bench", torch.set_num_threads, (before,))
    _bench.submit(int).result()  # at once: threads that come later go by the number set last
    try:
        yield
    finally:
        _bench.shutdown()
        _bench = None
        torch.set_num_threads(before)


def threads() -> int:
    """How many threads compute on this CPU: they decide how sums are split, and so last digits."""
    import torch

    return _threads if _bench else torch.get_num_threads()


def use_threads(count: int) -> None:
    """Compute with so many threads from now on, whatever this machine would have chosen."""
    global _threads
    import torch

    if _bench is None:
        torch.set_num_threads(count)
    else:
        _bench.submit(torch.set_num_threads, count).result()
        _threads = count


def bench() -> ThreadPoolExecutor | None:
    return _bench

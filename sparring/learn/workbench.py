"""One thread for all that a CPU computes. OpenMP gives every thread that computes a pool of its
own, and once there are more threads in pools than cores, all of them go to sleep between any two
loops: with an engine on one thread and a learner on another, small models ran at two thirds of
their speed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

_bench: ThreadPoolExecutor | None = None


@contextmanager
def workbench(device: str) -> Iterator[None]:
    """While this lasts, engines on a CPU compute on one thread, and whoever else asks for it. The
    thread that opens it gets by without a pool: so open it before anything is loaded."""
    global _bench
    if device != "cpu" or _bench is not None:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _bench = ThreadPoolExecutor(1, "bench", torch.set_num_threads, (threads,))
    _bench.submit(int).result()  # at once: threads that come later go by the number set last
    try:
        yield
    finally:
        _bench.shutdown()
        _bench = None
        torch.set_num_threads(threads)


def bench() -> ThreadPoolExecutor | None:
    return _bench

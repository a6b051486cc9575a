"""Decode steps of many rows on a CPU, each thread with rows of its own. Nobody waits for anybody
between two steps then; one thread that splits each small operation over the cores does so several
times a layer, and on a core that other work is using, each time for long."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial

import torch
from torch import Tensor

from sparring.engines.local.decoder import Decoder, Linear

ROWS = 32  # at least so many to a thread: products of fewer take longer for each row


class RowThreads:
    """Which rows of a model each thread draws for. `padded` says how many rows a product has."""

    def __init__(self, decoder: Decoder, padded: Callable[[int], int]) -> None:
        self._decoder, self._padded = decoder, padded
        self.forget()

    def forget(self) -> None:
        """Products have changed: whether rows may be split is tried again."""
        self._may_split: bool | None = None

    def split(self, size: int) -> list[slice]:
        """The rows of each thread; all in one part if there are too few, or if a row's bits would
        depend on it."""
        threads = max(1, min(torch.get_num_threads(), size // ROWS))
        if threads > 1 and self._may_split is None:
            self._may_split = same_bits_alone(self._decoder, self._padded)
        share = self._padded(-(-size // threads)) if self._may_split else size
        return [slice(start, min(start + share, size)) for start in range(0, size, share)]


def on_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Run the tasks beside each other, each without splitting its operations any further."""
    threads = torch.get_num_threads()
    futures = [_pool(len(tasks)).submit(_alone, task) for task in tasks]
    wait(futures)  # also for those beside one that failed: they write to the same memory
    torch.set_num_threads(threads)  # threads that begin later go by the number that was set last
    for future in futures:
        future.result()


@torch.inference_mode()
def _alone(task: Callable[[], None]) -> None:
    torch.set_num_threads(1)
    task()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "rows")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a fork has none of the threads


def same_bits_alone(decoder: Decoder, padded: Callable[[int], int]) -> bool:
    """Whether the model's products give a row the same bits on one thread as on all of them."""
    most = padded(8 * ROWS)
    sizes = sorted({padded(rows) for rows in (ROWS, ROWS + 1, 2 * ROWS, 5 * ROWS)} | {most})
    results = list[bool]()

    def compare(linear: Linear, x_NI: Tensor, adapter_N: Tensor | None, whole_NO: Tensor) -> None:
        for n in sizes:
            own_N = None if adapter_N is None else adapter_N[:n]
            results.append(torch.equal(linear(x_NI[:n], own_N), whole_NO[:n]))

    for linear in _one_of_each_shape(decoder):
        generator = torch.Generator().manual_seed(0)
        x_NI = torch.randn(most, linear.weight.shape[1], generator=generator).to(linear.weight)
        adapter_N = torch.zeros(most, dtype=torch.int64) if linear.adapters else None
        whole_NO = linear(x_NI, adapter_N)
        on_threads([partial(compare, linear, x_NI, adapter_N, whole_NO)])
    return all(results)


def _one_of_each_shape(decoder: Decoder) -> Iterator[Linear]:
    linears = [linear for layer in decoder.layers for linear in layer.linears]
    yield from {linear.weight.shape: linear for linear in linears}.values()
    yield Linear([], decoder.head, None)

"""The rows of a decode step on the device, in buffers that stay where they are: a captured graph
reads and writes the same memory in every replay.

Shapes: B rows, S steps, V vocabulary, W blocks of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from sparring.engines.local.decoder import Decoder
from sparring.engines.local.paged_cache import BLOCK, SCRATCH
from sparring.engines.local.pages import Pages
from sparring.engines.local.rows import Row

_COLUMNS = ("token", "position", "seed", "drawn", "left", "adapter")


class DecodeState:
    def __init__(self, decoder: Decoder, most_rows: int, steps: int, like: torch.Tensor) -> None:
        """Buffers for so many rows and steps, on the device and in the dtype of `like`."""
        whole: dict[str, Any] = {"dtype": torch.int64, "device": like.device}
        real: dict[str, Any] = {"dtype": torch.float32, "device": like.device}
        self.columns = {name: torch.zeros(most_rows, **whole) for name in _COLUMNS}
        self.index_B, self.one_B = torch.arange(most_rows, **whole), torch.ones(most_rows, **whole)
        self.step_B = torch.zeros(most_rows, **whole)
        self.temperature_B = torch.ones(most_rows, **real)
        self.table_BW = torch.zeros(most_rows, -(-decoder.limit // BLOCK) + 1, **whole)
        self.token_SB = torch.zeros(steps, most_rows, **whole)
        self.logprob_SB = torch.zeros(steps, most_rows, **real)
        self.logits_BV = like.new_zeros(most_rows, len(decoder.head))

    def load(self, rows: Sequence[Row], size: int, longest: int) -> None:
        """Copy the rows to the device; the rest up to `size` is padding, which writes to the
        scratch block."""
        n, width = len(rows), -(-longest // BLOCK) or 1
        values = np.zeros((len(_COLUMNS), size), dtype=np.int64)
        columns = [
            (r.token_ids[-1], r.length - 1, r.seed, len(r.token_ids), r.left, r.adapter)
            for r in rows
        ]
        values[:, :n] = np.array(columns, dtype=np.int64).T
        table = np.full((size, width), SCRATCH, dtype=np.int64)
        for i, row in enumerate(rows):
            table[i, : len(row.blocks)] = row.blocks[:width]
        device = self.table_BW.device
        moved = torch.from_numpy(values).to(device)
        for name, column_B in zip(_COLUMNS, moved, strict=True):
            self.columns[name][:size] = column_B
        self.table_BW[:size, :width] = torch.from_numpy(table).to(device)
        temperatures = [row.sampling.temperature for row in rows]
        self.temperature_B[:n] = torch.tensor(temperatures, dtype=torch.float32, device=device)
        self.step_B.zero_()

    def pages(self, size: int, longest: int) -> Pages:
        """One position of each of `size` rows."""
        index_B = self.index_B[:size]
        return Pages(
            self.columns["position"][:size], index_B, self.table_BW[:size], index_B, index_B,
            self.one_B[:size], 1, longest,
        )  # fmt: skip

    def capture(self, step: Callable[[], None], pool: Any) -> torch.cuda.CUDAGraph:
        """A graph of the step; the buffers hold what they held before."""
        kept = {name: column_B.clone() for name, column_B in self.columns.items()}
        table_BW = self.table_BW.clone()
        self.table_BW.fill_(SCRATCH)  # nothing reads what warming up writes
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: another one may be learning, and allocate, meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            step()
        for name, column_B in kept.items():
            self.columns[name].copy_(column_B)
        self.table_BW.copy_(table_BW)
        self.step_B.zero_()
        return graph

    def time(self, make_step: Callable[[], Callable[[], None]], repeats: int) -> float:
        """Seconds that a captured step takes, the fastest of some, with padding in all rows: what
        attention adds for real rows is the same for any size."""
        for column_B in self.columns.values():
            column_B.zero_()
        self.table_BW.fill_(SCRATCH)
        step, times = make_step(), list[float]()
        for _ in range(repeats):
            self.step_B.zero_()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            step()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1000)
        return min(times)

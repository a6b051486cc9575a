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
from sparring.engines.local.pages import Pages, upload
from sparring.engines.local.rows import Row
from sparring.models.device import side_stream

_COLUMNS = ("token", "position", "seed", "drawn", "left", "adapter")


class DecodeState:
    def __init__(self, decoder: Decoder, most_rows: int, steps: int, like: torch.Tensor) -> None:
        """Buffers for so many rows and steps, on the device and in the dtype of `like`."""
        whole: dict[str, Any] = {"dtype": torch.int64, "device": like.device}
        real: dict[str, Any] = {"dtype": torch.float32, "device": like.device}
        self.most_rows = most_rows
        self.column_CB = torch.zeros(len(_COLUMNS), most_rows, **whole)
        self.columns = dict(zip(_COLUMNS, self.column_CB, strict=True))
        self.index_B, self.one_B = torch.arange(most_rows, **whole), torch.ones(most_rows, **whole)
        self.step_B = torch.zeros(most_rows, **whole)
        self.temperature_B = torch.ones(most_rows, **real)
        self.table_BW = torch.zeros(most_rows, -(-decoder.limit // BLOCK) + 1, **whole)
        self.token_SB = torch.zeros(steps, most_rows, **whole)
        self.logprob_SB = torch.zeros(steps, most_rows, **real)
        self.logits_BV = like.new_zeros(most_rows, len(decoder.head.weight))

    def load(
        self, rows: Sequence[Row], size: int, longest: int, first_tokens: Sequence[torch.Tensor]
    ) -> None:
        """Copy the rows to the device; the rest up to `size` is padding, which writes to the
        scratch block. Last tokens that the host does not know yet are on the device: in the column
        of the steps before, or among the first tokens of rows that have just been read."""
        n, width = len(rows), -(-longest // BLOCK) or 1
        values = np.zeros((len(_COLUMNS), size), dtype=np.int64)
        values[:, :n] = np.array([_columns(row) for row in rows], dtype=np.int64).T
        table = np.full((size, width), SCRATCH, dtype=np.int64)
        for i, row in enumerate(rows):
            table[i, : len(row.blocks)] = row.blocks[:width]
        device = self.table_BW.device
        unknown = [(i, row.slot) for i, row in enumerate(rows) if row.queued]
        drawn = torch.cat([self.columns["token"], *first_tokens]) if unknown else None
        self.column_CB[:, :size] = upload(values, device)
        if drawn is not None:
            to, slot = upload(unknown, device).T
            at = torch.where(slot < 0, self.most_rows - 1 - slot, slot)
            self.columns["token"][to] = drawn[at]
        self.table_BW[:size, :width] = upload(table, device)
        temperatures = [row.sampling.temperature for row in rows]
        self.temperature_B[:n] = upload(temperatures, device, np.float32)
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
        kept_CB = self.column_CB.clone()
        table_BW = self.table_BW.clone()
        self.table_BW.fill_(SCRATCH)  # nothing reads what warming up writes
        side = side_stream(torch.cuda.current_device())
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: another one may be learning, and allocate, meanwhile.
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            step()
        self.column_CB.copy_(kept_CB)
        self.table_BW.copy_(table_BW)
        self.step_B.zero_()
        return graph

    def time(self, make_step: Callable[[], Callable[[], None]], repeats: int) -> float:
        """Seconds that a captured step takes, the fastest of some, with padding in all rows: what
        attention adds for real rows is the same for any size."""
        self.column_CB.zero_()
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


def _columns(row: Row) -> tuple[int, ...]:
    drawn = len(row.token_ids) + row.queued
    token = row.token_ids[-1] if row.token_ids else 0
    position = len(row.prompt) + drawn - 1
    return token, position, row.seed, drawn, row.undrawn, row.adapter

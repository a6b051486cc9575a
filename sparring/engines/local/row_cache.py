"""Keys and values of the rows that a CPU draws for, those of a row side by side: gathering them
from their blocks in each step and layer took a third of attention's time. A step adds one position
to each row, and a row's blocks get what was drawn when it leaves.

The functions are pieces of a forward pass over such rows; each does what its namesake in
torch_ops.py does, with the same bits.

Shapes: L layers, B rows, K key heads, G queries to each, D head, S positions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local.cache_tensors import CacheTensors
from sparring.engines.local.decoder import Cache, Layer
from sparring.engines.local.paged_cache import BLOCK, SCRATCH
from sparring.engines.local.pages import Pages, upload
from sparring.engines.local.rows import Row
from sparring.engines.local.torch_ops import ROWS, add_norm, attention, gate, hidden_bias, turned

__all__ = ["RowCache", "add_norm", "attend", "gate", "rotate"]

_SHARE = 0.25  # of the positions that blocks may hold; rows that need more draw from their blocks
_UNIT = 16  # attention looks at a multiple of so many positions: scores have the same bits then


class RowCache:
    def __init__(self, memory: CacheTensors) -> None:
        self._memory = memory
        self.clear()

    def clear(self) -> None:
        """Forget all rows, and give the memory back."""
        self._rows = list[Row | None]()  # by slot; None: it has left
        self._slots = dict[int, int]()  # by the row's identity
        self._first_own = dict[int, int]()  # the first block that a row wrote to since it came
        self._key_LBKDS = self._value_LBKSD = torch.empty(0, 0, 0, 0, 0)

    @property
    def held(self) -> bool:
        return bool(self._slots)

    def arrange(self, rows: list[Row], size: int, longest: int) -> list[Row]:
        """Hold just these rows, and padding up to `size` rows, for so many positions; returns them
        in the order of their slots. None are held, or returned, if they need too much memory."""
        present = {id(row) for row in rows}
        have, wide = self._key_LBKDS.shape[1], self._key_LBKDS.shape[-1]
        fits = size <= have and longest <= wide
        for row in self._rows:
            if row is not None and not (fits and id(row) in present):
                self.release(row)
        if not fits:
            wide = min(2 * longest, max(row.needs for row in rows))
            if not self._allocate(max(size, min(2 * have, 2 * size)), wide):
                return []
        self._close_gaps()
        if new := [row for row in rows if id(row) not in self._slots]:
            self._load(new)
        return [row for row in self._rows if row is not None]

    def _allocate(self, size: int, positions: int) -> bool:
        self.clear()
        wide = -(-positions // BLOCK) * BLOCK
        if size * wide > _SHARE * self._memory.capacity() * BLOCK:
            return False
        layers, heads, width = self._memory.shape
        # Zeros: a masked position still takes part, with weight nought.
        shape, dtype = (layers, size, heads), self._memory.dtype
        self._key_LBKDS = torch.zeros(*shape, width, wide, dtype=dtype)
        self._value_LBKSD = torch.zeros(*shape, wide, width, dtype=dtype)
        return True

    def _close_gaps(self) -> None:
        """The last rows take the slots of those that have left."""
        moves = list[tuple[int, int]]()
        for slot in range(len(self._rows)):
            while self._rows and self._rows[-1] is None:
                self._rows.pop()
            if slot < len(self._rows) and self._rows[slot] is None:
                last = self._rows[slot] = self._rows.pop()
                self._slots[id(last)] = slot
                moves.append((len(self._rows), slot))
        for tensor in (self._key_LBKDS, self._value_LBKSD):
            for source, to in moves:
                tensor[:, to] = tensor[:, source]

    def _load(self, rows: list[Row]) -> None:
        """Gather these rows from their blocks."""
        first, n = len(self._rows), len(rows)
        for slot, row in enumerate(rows, first):
            self._slots[id(row)] = slot
            self._first_own[id(row)] = _position(row) // BLOCK
        self._rows += rows
        blocks = [row.blocks[: -(-_position(row) // BLOCK)] for row in rows]
        width = max(map(len, blocks))
        table = upload(
            [some + [SCRATCH] * (width - len(some)) for some in blocks], torch.device("cpu")
        )
        here = slice(first, first + n), slice(None)
        for layer, both in enumerate(self._memory.layers()):
            key_BKSD, value_BKSD = (
                blocks_K.index_select(1, table.flatten())
                .unflatten(1, (n, -1))
                .flatten(2, 3)
                .transpose(0, 1)
                for blocks_K in both
            )
            self._key_LBKDS[layer][*here, :, : width * BLOCK] = key_BKSD.transpose(2, 3)
            self._value_LBKSD[layer][*here, : width * BLOCK] = value_BKSD

    def release(self, row: Row) -> None:
        """Write what a row drew to its blocks, and let it go."""
        if (slot := self._slots.pop(id(row), None)) is None:
            return
        self._rows[slot], first = None, self._first_own.pop(id(row))
        blocks = row.blocks[first : -(-_position(row) // BLOCK)]
        if blocks:
            part = slice(first * BLOCK, (first + len(blocks)) * BLOCK)
            key_LKSD = self._key_LBKDS[:, slot, :, :, part].transpose(2, 3)
            value_LKSD = self._value_LBKSD[:, slot, :, part]
            for tensor, new in zip(self._memory.tensors, (key_LKSD, value_LKSD), strict=True):
                tensor[:, :, blocks] = new.unflatten(2, (-1, BLOCK))

    def layers(self) -> list[Cache]:
        return list(zip(self._key_LBKDS, self._value_LBKSD, strict=True))


def _position(row: Row) -> int:
    """The position that is computed next for a row that draws."""
    return row.length - 1 + row.queued


def rotate(qkv_BX: Tensor, layer: Layer, cache: Cache, pages: Pages, eps: float) -> Tensor:
    """Queries and keys normed and turned to their positions; keys and values written to their
    rows."""
    key_BKDS, value_BKSD = cache
    B, (_, K, S, D) = len(qkv_BX), value_BKSD.shape
    q_BQD, k_BKD, v_BKD = turned(qkv_BX, layer, K, D, pages, eps)
    if "cells" not in pages.memo:
        column_BKD = torch.arange(B * K * D).view(B, K, D) * S + pages.position_N[:, None, None]
        line_BK = torch.arange(B * K).view(B, K) * S + pages.position_N[:, None]
        pages.memo["cells"] = column_BKD.flatten(), line_BK.flatten()
    column_X, line_X = pages.memo["cells"]
    key_BKDS.view(-1).scatter_(0, column_X, k_BKD.flatten())
    value_BKSD.view(-1, D).index_copy_(0, line_X, v_BKD.reshape(-1, D))
    return q_BQD


def attend(q_BQD: Tensor, layer: Layer, cache: Cache, pages: Pages, scale: float) -> Tensor:
    """Each row's queries over its positions up to the one that is drawn from."""
    B, Q, D = q_BQD.shape
    key_BKDS, value_BKSD = (both[:B] for both in cache)
    K = key_BKDS.shape[1]
    wide = -(-pages.longest // _UNIT) * _UNIT
    if ("bias", layer.window) not in pages.memo:
        bias_BS = hidden_bias(pages.position_N, wide, layer.window, q_BQD.dtype)
        pages.memo["bias", layer.window] = bias_BS[:, None, None]
    q_BKGD = F.pad((q_BQD * scale).view(B, K, -1, D), (0, 0, 0, -(Q // K) % ROWS))
    out_BKGD = attention(
        q_BKGD,
        key_BKDS.flatten(0, 1)[:, :, :wide],
        value_BKSD.flatten(0, 1)[:, :wide],
        pages.memo["bias", layer.window],
    )
    return out_BKGD[:, :, : Q // K].reshape(B, Q * D)

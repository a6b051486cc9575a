"""Where the tokens of one forward pass stand: their positions, the blocks of their rows, and how
queries are grouped into tiles for attention.

Shapes: N tokens, B rows, W blocks of each, M tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sparring.engines.local.paged_cache import BLOCK, SCRATCH
from sparring.engines.local.transfer import upload

CHUNK = 1024  # positions that the GPU's attention sums up at a time


@dataclass
class Pages:
    position_N: Tensor
    row_N: Tensor  # the row of each token
    table_BW: Tensor  # the blocks of each row
    row_M: Tensor  # the row of each tile
    first_M: Tensor  # its first token
    count_M: Tensor  # how many it has
    tile: int  # the most that any has
    longest: int  # no position is as far as this
    memo: dict[Any, Any] = field(default_factory=dict)  # what all layers of a pass compute alike

    @classmethod
    def decoding(cls, position_B: Tensor, table_BW: Tensor, longest: int) -> Pages:
        """One token for each row."""
        each = torch.arange(len(position_B), device=position_B.device)
        one = torch.ones_like(each)
        return cls(position_B, each, table_BW, each, each, one, 1, longest)


def reading(
    spans: list[tuple[list[int], int, int]], size: int, tile: int, device: torch.device
) -> Pages:
    """Tokens of several rows one after another, each given by its blocks and its first and last
    position; padded to `size` with tokens that are written to no row's block."""
    blocks = [blocks[: -(-end // BLOCK)] for blocks, _, end in spans]
    width = max(map(len, blocks))
    table = [some + [SCRATCH] * (width - len(some)) for some in blocks] + [[SCRATCH] * width]
    positions, rows, tiles = list[int](), list[int](), list[tuple[int, int, int]]()
    tile = min(tile, 1 << (max(end - start for _, start, end in spans) - 1).bit_length())
    for number, (_, start, end) in enumerate(spans):
        for first in range(start, end, tile):
            tiles.append((number, len(positions) + first - start, min(tile, end - first)))
        positions += range(start, end)
        rows += [number] * (end - start)
    spare = size - len(positions)
    for first in range(len(positions), size, tile):
        tiles.append((len(spans), first, min(tile, size - first)))
    positions += [0] * spare
    rows += [len(spans)] * spare
    row_M, first_M, count_M = upload(tiles, device).T.contiguous()
    position_N, row_N, table_BW = (upload(x, device) for x in (positions, rows, table))
    longest = max(end for _, _, end in spans)
    return Pages(position_N, row_N, table_BW, row_M, first_M, count_M, tile, longest)

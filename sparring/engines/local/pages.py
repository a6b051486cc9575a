"""What a forward pass is sent and what comes back: where its tokens stand (their positions, the
blocks of their rows, how queries are grouped into tiles for attention), and what was drawn. These
copies wait for nothing else: an ordinary one would wait for all decode steps that are queued.

Shapes: N tokens, B rows, W blocks of each, M tiles, S steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sparring.engines.local.paged_cache import BLOCK, SCRATCH
from sparring.engines.local.rows import Row

CHUNK = 1024  # positions that the GPU's attention sums up at a time
TILE = 16  # tokens whose queries the GPU's attention takes together


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


def reading(
    spans: list[tuple[list[int], int, int]],
    size: int,
    tile: int,
    device: torch.device,
    *,
    pad: bool = True,
) -> Pages:
    """Tokens of several rows one after another, each given by its blocks and its first and last
    position; padded to `size` with tokens that are written to no row's block, and have tiles of
    their own only with `pad`."""
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
    for first in range(len(positions), size if pad else 0, tile):
        tiles.append((len(spans), first, min(tile, size - first)))
    positions += [0] * spare
    rows += [len(spans)] * spare
    row_M, first_M, count_M = upload(tiles, device).T.contiguous()
    position_N, row_N, table_BW = (upload(x, device) for x in (positions, rows, table))
    longest = max(end for _, _, end in spans)
    return Pages(position_N, row_N, table_BW, row_M, first_M, count_M, tile, longest)


def upload(values: Any, device: torch.device, dtype: Any = np.int64) -> Tensor:
    """Numbers on the device, in the order of what is queued there."""
    tensor = torch.from_numpy(np.asarray(values, dtype=dtype))
    if device.type != "cuda":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class Readback(NamedTuple):
    """Tokens and logprobs on their way to the host."""

    rows: Sequence[Row]
    token_SB: Tensor
    logprob_SB: Tensor
    arrived: torch.cuda.Event | None  # None: they are there

    @classmethod
    def queue(cls, rows: Sequence[Row], token_SB: Tensor, logprob_SB: Tensor) -> Readback:
        if token_SB.device.type != "cuda":  # what comes next is written to the same memory
            return cls(rows, token_SB.clone(), logprob_SB.clone(), None)
        tokens, logprobs = (
            torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
            for x in (token_SB, logprob_SB)
        )
        arrived = torch.cuda.Event()
        arrived.record()
        return cls(rows, tokens, logprobs, arrived)

    @property
    def steps(self) -> int:
        return len(self.token_SB)

    def wait(self) -> tuple[list[list[int]], list[list[float]]]:
        """The tokens and logprobs of each row."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.token_SB.numpy().T.tolist(), self.logprob_SB.numpy().T.tolist()

"""The memory that keys and values are kept in: tensors that grow as blocks are asked for, up to a
share of what the device has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import torch

from sparring.engines.local.decoder import Cache
from sparring.engines.local.paged_cache import BLOCK, PagedCache
from sparring.engines.local.pages import upload
from sparring.models.device import out_of_memory

log = logging.getLogger(__name__)

SHARE = 0.5  # of a GPU's free memory
CPU_BYTES = 4 * 2**30
FIRST_BLOCKS = 64  # that a cache begins with
KEPT = 0.25  # of what a CPU's cache may take, before what no row holds is given up


class CacheTensors:
    def __init__(
        self,
        shape: tuple[int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        most_bytes: int | None,
        on_move: Callable[[], None],
    ) -> None:
        """`shape`: layers, key heads and their width. `on_move` is called before the memory is
        given up for a larger one."""
        self.blocks = PagedCache(0)
        self.shape, self.dtype, self._device = shape, dtype, device
        self._most_bytes, self._on_move = most_bytes, on_move
        self.tensors = torch.empty(0)
        self._refused = False  # growth, for want of memory

    def capacity(self) -> int:
        """How many blocks there may be at most."""
        layers, heads, width = self.shape
        block_bytes = 2 * layers * heads * BLOCK * width * self.dtype.itemsize
        most = self._most_bytes or CPU_BYTES
        if self._most_bytes is None and self._device.type == "cuda":
            most = int((torch.cuda.mem_get_info(self._device)[0] + self.tensors.nbytes) * SHARE)
        return max(1, most // block_bytes - 1)

    def grow(self, blocks: int) -> bool:
        """Have so many blocks, as far as they are allowed and there is memory for them."""
        have, most = self.blocks.size - 1, self.capacity()
        wanted = min(most, max(blocks, 2 * have, FIRST_BLOCKS))
        if wanted <= have:
            return False
        layers, heads, width = self.shape
        try:
            # Zeros: a masked position still takes part, with weight nought.
            tensors = torch.zeros(
                (2, layers, heads, wanted + 1, BLOCK, width), dtype=self.dtype, device=self._device
            )
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            log.warning("no memory for a cache of %d positions: %d stay", wanted * BLOCK, have)
            self._refused = True
            return False
        if have:
            tensors[:, :, :, : have + 1] = self.tensors
        self._on_move()
        self.tensors = tensors
        self.blocks.grow(wanted)
        return True

    def grow_to_keep(self, blocks: int) -> bool:
        """Have so many blocks rather than give up what is cached: a game's next turn would read
        all of it again. On a GPU memory is the learner's too, and steps would be captured anew."""
        small = 2 * self.blocks.size <= KEPT * self.capacity()
        return self._device.type == "cpu" and small and not self._refused and self.grow(blocks)

    def release(self) -> None:
        """Forget all that is cached while no row is under way, and on a CPU, which has one memory
        for the engine and the learner, give the memory back. Graphs of a GPU look where it is."""
        self.blocks.clear()
        self._refused = False
        if self._device.type == "cpu":
            self.blocks.shrink()
            self.tensors = torch.empty(0)

    def layers(self) -> list[Cache]:
        return list(zip(*self.tensors, strict=True))

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, all at once."""
        if pairs:
            source, to = upload(pairs, self._device).T
            self.tensors[:, :, :, to] = self.tensors[:, :, :, source]

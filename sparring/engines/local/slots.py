"""Where conversations sit while they are spoken: every one has a slot of one static cache, and a
slot remembers what was said in it, so that whoever goes on with a conversation reads only what is
new."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sparring.engines.local.decoder import Cache, cache_shape
from sparring.engines.local.rows import Row

CHUNK = 8  # steps between two looks at what was said
SHARE = 0.4  # of the free memory, for the cache


class Slots:
    """The cache and who sits where. It may be shared by all models of one shape."""

    def __init__(self, model: Any, most: int | None = None) -> None:
        """`most`: bytes for the cache; None: a share of what is free."""
        self.layers, self.heads, self.width = cache_shape(model.config)
        self.most = most
        self.device, self.dtype = model.device, model.dtype
        self.count = self.places = self.wanted = 0
        self.epoch = 0  # counts the times the cache moved in memory
        self.keys = self.values = torch.empty(0)
        self.said: dict[tuple[Any, ...], int] = {}  # (policy, ids) -> slot
        self.held: dict[int, tuple[Any, ...]] = {}  # slot -> what it holds, least recent first
        self.free: list[int] = []

    def fit(self, rows: int, places: int) -> None:
        """Make room for so many rows of such a length, or for as many of them as memory allows."""
        places = max(self.places, _power(places, 128))
        bytes_each = 2 * self.layers * self.heads * places * self.width * self.dtype.itemsize
        count = max(self.wanted, _power(rows, 1))
        if (count, places) == (self.wanted, self.places):
            return
        wanted = count
        self._hold(torch.empty(0), torch.empty(0), 0, 0, 0)  # what is there makes room, or nothing
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            room = self.most or int(torch.cuda.mem_get_info(self.device)[0] * SHARE)
            count = max(1, min(count, room // bytes_each))
        while True:
            try:
                keys, values = self._allocate(count, places)
                break
            except RuntimeError as error:
                if not out_of_memory(error) or count == 1:
                    raise
            # Out of the handler: what was allocated is held by the error until here.
            count //= 2
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        self._hold(keys, values, wanted, count, places)

    def _allocate(self, count: int, places: int) -> Cache:
        # One slot to spare, for rows that only fill a batch up.
        shape = (self.layers, count + 1, self.heads, places, self.width)
        keys = torch.zeros(shape, dtype=self.dtype, device=self.device)
        return keys, torch.zeros_like(keys)

    def _hold(self, keys: Tensor, values: Tensor, wanted: int, count: int, places: int) -> None:
        """Everything that says what the cache is, at once: an allocation may fail in between."""
        self.keys, self.values = keys, values
        self.wanted, self.count, self.places = wanted, count, places
        self.clear()
        self.epoch += 1

    def clear(self) -> None:
        """Nobody sits anywhere, and nothing is remembered."""
        self.said, self.held, self.free = {}, {}, list(range(self.count))

    def layer(self, i: int) -> Cache:
        return self.keys[i], self.values[i]

    def take(self, row: Row) -> bool:
        """Seat a row: in the slot that holds its conversation, or any other."""
        slot = None
        if row.carried:
            slot = self.said.get((row.policy, tuple(row.prompt[: row.carried])))
        if slot is not None:
            row.read = row.carried - 1  # the last token was sampled, but never read
            self._forget(slot)
        elif self.free:
            slot = self.free.pop()
        elif self.held:
            slot = next(iter(self.held))
            self._forget(slot)
        if slot is None:
            return False
        row.slot = slot
        return True

    def leave(self, row: Row) -> None:
        what = (row.policy, tuple(row.prompt + row.reply.token_ids))
        # The same may have been said elsewhere, and a twin with one token to say has read nothing.
        if what in self.said or not row.read:
            self.free.append(row.slot)
            return
        self.said[what] = row.slot
        self.held[row.slot] = what

    def forget(self) -> None:
        """Let go of all that nobody is going on with."""
        for slot in list(self.held):
            self._forget(slot)
            self.free.append(slot)

    def _forget(self, slot: int) -> None:
        del self.said[self.held.pop(slot)]


def out_of_memory(error: RuntimeError) -> bool:
    """A GPU's allocator has an error of its own; a CPU's only has words."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _power(number: int, least: int) -> int:
    return max(least, 1 << (number - 1).bit_length())

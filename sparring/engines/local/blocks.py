"""What was said, kept on a CPU between the turns of a game: every batch leaves one block of keys
and values, and whoever goes on with a conversation copies its part and reads only what is new.

A place is found by the prompt of its turn, that very list and not its like. Nothing that another
game, an evaluation or an earlier iteration left behind can be met by chance, so a run that was
resumed says the same digits as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparring.engines.local.rows import Row


@dataclass(eq=False)
class Block:
    """The cache of one batch: layers × rows × heads × places × width."""

    keys: Tensor
    values: Tensor
    known: set[int] = field(default_factory=set)  # the prompts whose places are here

    @property
    def bytes(self) -> int:
        return 2 * self.keys.nbytes

    @property
    def places(self) -> int:
        return self.keys.shape[3]

    def layer(self, i: int) -> tuple[Tensor, Tensor]:
        return self.keys[i], self.values[i]

    def copy(self, to: list[int], source: Block, rows: list[int], length: int) -> None:
        """The first places of some rows of a block, which may be this one."""
        for i in range(len(self.keys)):  # one layer at a time: what is gathered is small
            for mine, theirs in zip(self.layer(i), source.layer(i), strict=True):
                mine[to, :, :length] = theirs[rows, :, :length]

    def grow(self, places: int) -> None:
        """Make room for longer rows."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(*old.shape[:3], places, old.shape[4])
            new[:, :, :, : old.shape[3]] = old
            setattr(self, name, new)

    def swap(self, some: list[int], others: list[int], length: int) -> None:
        self.copy(some + others, self, others + some, length)


class Place(NamedTuple):
    """Where a prompt and its reply are, but for the last token, which was never read."""

    prompt: list[int]  # the turn's own; held, so that its id stays its own
    policy: tuple[str, int]
    block: Block
    row: Row  # it knows its slot; for a twin that said one token, the row of the other
    length: int


class Kept:
    """The blocks of earlier batches, up to so many bytes; the oldest goes first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.blocks: list[Block] = []
        self._places: dict[int, Place] = {}

    def find(self, row: Row) -> Place | None:
        """Where the conversation that a row goes on with is, if that is still to be had."""
        place = self._places.get(id(row.previous.prompt_ids)) if row.previous else None
        return place if place is not None and place.policy == row.policy else None

    def add(self, block: Block, places: Iterable[Place]) -> None:
        if block.bytes > self.most:
            return
        while sum(b.bytes for b in self.blocks) + block.bytes > self.most:
            oldest = self.blocks.pop(0)
            for known in oldest.known:
                del self._places[known]
        self.blocks.append(block)
        for place in places:
            self._places[id(place.prompt)] = place
            block.known.add(id(place.prompt))

    def leave(self, place: Place) -> None:
        """This conversation has gone on, and has a place elsewhere."""
        known = id(place.prompt)
        if self._places.pop(known, None) is None:
            return
        place.block.known.discard(known)
        if not place.block.known:
            self.blocks.remove(place.block)

    def clear(self) -> None:
        self.blocks, self._places = [], {}


def make_block(model_shape: tuple[int, int, int], rows: int, places: int, like: Any) -> Block:
    layers, heads, width = model_shape
    shape = (layers, rows, heads, places, width)
    # Zeros: a place that nobody sees still takes part, with weight nought.
    return Block(
        torch.zeros(shape, dtype=like.dtype, device=like.device),
        torch.zeros(shape, dtype=like.dtype, device=like.device),
    )

"""Where conversations sit while they are spoken: every one has a slot of one static cache, and a
slot remembers what was said in it, so that whoever goes on with a conversation reads only what is
new."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from sparring.engines.decoder import Cache
from sparring.engines.generate import Reply
from sparring.types import Sampling

CHUNK = 8  # steps between two looks at what was said
SHARE = 0.4  # of the free memory, for the cache


@dataclass(eq=False)
class Row:
    """One request under way."""

    policy: tuple[str, int]  # name and version: what a slot remembers is theirs alone
    prompt: list[int]
    sampling: Sampling
    seed: int
    carried: int = 0  # how much of the prompt an earlier turn of this conversation holds
    who: int = 0
    slot: int = -1
    read: int = 0  # how much of the prompt is in the slot
    ear: Callable[[int], None] | None = None  # hears each token as it is drawn
    reply: Reply = field(default_factory=lambda: Reply([], [], "length"))
    done: bool = False

    @property
    def needs(self) -> int:
        return len(self.prompt) + self.sampling.max_tokens + CHUNK


class Slots:
    """The cache and who sits where. It may be shared by all models of one shape."""

    def __init__(self, model: Any) -> None:
        config = model.config
        self.layers, self.heads = config.num_hidden_layers, config.num_key_value_heads
        self.width = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
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
        self.wanted = count
        self.keys = self.values = torch.empty(0)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            room = int(torch.cuda.mem_get_info(self.device)[0] * SHARE)
            count = max(1, min(count, room // bytes_each))
        # One slot to spare, for rows that only fill a batch up.
        shape = (self.layers, count + 1, self.heads, places, self.width)
        self.keys = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.values = torch.zeros_like(self.keys)
        self.count, self.places = count, places
        self.said, self.held, self.free = {}, {}, list(range(count))
        self.epoch += 1

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
        if what in self.said:  # the same was said elsewhere; one copy is enough
            self.free.append(row.slot)
            return
        self.said[what] = row.slot
        self.held[row.slot] = what

    def _forget(self, slot: int) -> None:
        del self.said[self.held.pop(slot)]


def _power(number: int, least: int) -> int:
    return max(least, 1 << (number - 1).bit_length())

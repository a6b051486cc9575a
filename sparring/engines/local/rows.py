"""One request under way, and draws that its own settings truncate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sparring.core.types import Request, Sampling, Turn, VoidGame
from sparring.engines.local.sampling import Trie, draw, mask_logits, uniforms


@dataclass(slots=True)
class Waiting:
    """A request and who waits for its answer."""

    request: Request
    prompt_ids: list[int]
    future: asyncio.Future[Turn]
    trie: Trie | None = None


@dataclass(eq=False, slots=True)
class Row:
    """One request under way: its ids so far, its blocks of the cache, how it ended."""

    policy: tuple[str, int, int]  # name, version and revision: what is cached is theirs alone
    prompt: list[int]
    sampling: Sampling
    seed: int
    adapter: int = -1  # which of the decoder's adapters it is drawn with; -1: none
    on_token: Callable[[int], None] | None = None
    cancelled: Callable[[], bool] = lambda: False
    request: Any = None  # that the row was made for
    trie: Trie | None = None  # the legal actions, where only they can be drawn
    token_ids: list[int] = field(default_factory=list)  # the reply
    logprobs: list[float] = field(default_factory=list)
    allowed: list[list[int]] = field(default_factory=list)  # what a masked token was drawn from
    finish: str = ""  # stop | length, or nothing while it goes on
    error: Exception | None = None
    blocks: list[int] = field(default_factory=list)
    computed: int = 0  # positions whose keys and values are in the blocks
    queued: int = 0  # tokens that the device draws, or has drawn, and that are not in the reply yet
    slot: int = 0  # where the device has the last of those: its row of the last chunk, or ~ that of
    # the first tokens of this round

    def __post_init__(self) -> None:
        if not self.prompt:  # the first token is drawn after the prompt's last
            raise VoidGame("the prompt has no tokens, and a reply has nothing to follow")
        if self.sampling.max_tokens < 0:  # it would never be as long as it may be
            raise ValueError(f"max_tokens is {self.sampling.max_tokens}, and must not be negative")

    @property
    def ids(self) -> list[int]:
        return self.prompt + self.token_ids if self.token_ids else self.prompt

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.token_ids)

    @property
    def needs(self) -> int:
        """Positions, if the reply becomes as long as it may."""
        return len(self.prompt) + self.sampling.max_tokens

    @property
    def left(self) -> int:
        """Tokens that it may still draw."""
        return self.sampling.max_tokens - len(self.token_ids)

    @property
    def undrawn(self) -> int:
        """Tokens that it may still draw and that are not queued."""
        return self.left - self.queued

    @property
    def unread(self) -> int:
        """Positions to compute before tokens can be drawn one after another. The prompt's last is
        one of them, and its logits give the first token; the last id of a row that has drawn some
        is computed when the next is drawn."""
        return self.length - bool(self.token_ids) - self.computed

    @property
    def next_tokens(self) -> list[int]:
        """The tokens that may come next; none: all of them."""
        return self.trie.allowed(self.token_ids) if self.trie else []

    @property
    def truncated(self) -> bool:
        """Whether it is drawn from less than the whole softmax."""
        plan = self.sampling
        return plan.top_k > 0 or plan.top_p < 1 or self.trie is not None

    def append(
        self,
        token_ids: list[int],
        logprobs: list[float],
        ends: frozenset[int],
        stopped: Callable[[list[int], tuple[str, ...]], bool],
    ) -> None:
        """Take drawn tokens, up to the one that ends the reply. `stopped` says of ids whether a
        stop string stands at their end."""
        most, stops = min(len(token_ids), self.left), self.sampling.stop
        one_by_one = stops or self.on_token is not None or self.trie is not None
        if not one_by_one and ends.isdisjoint(token_ids[:most]):
            self.token_ids += token_ids[:most]
            self.logprobs += logprobs[:most]
        else:
            for token, logprob in zip(token_ids[:most], logprobs, strict=False):
                if self.trie is not None:
                    self.allowed.append(self.next_tokens)
                self.token_ids.append(token)
                self.logprobs.append(logprob)
                if self.on_token is not None:
                    self.on_token(token)
                complete = self.trie is not None and not self.next_tokens
                if token in ends or complete or (stops and stopped(self.token_ids, stops)):
                    self.finish = "stop"
                    return
        if not self.left:
            self.finish = "length"


def draw_again(
    rows: Sequence[Row], logits_BV: Tensor, seed_B: Tensor, drawn_B: Tensor, token_B: Tensor,
    logprob_B: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The rows that ask for top-k, top-p or legal actions draw again, from what is left."""
    device = logits_BV.device

    def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    again_B, theirs_B = draw(
        mask_logits(logits_BV, [row.next_tokens for row in rows]),
        column([row.sampling.temperature for row in rows], torch.float32),
        column([row.sampling.top_k for row in rows], torch.int64),
        column([row.sampling.top_p for row in rows], torch.float32),
        uniforms(seed_B, drawn_B),
    )
    these_B = column([row.truncated for row in rows], torch.bool)
    return torch.where(these_B, again_B, token_B), torch.where(these_B, theirs_B, logprob_B)

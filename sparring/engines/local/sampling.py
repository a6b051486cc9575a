"""Drawing tokens. Each request owns its randomness, so that what it says does not depend on
who shares its batch: position t of seed s always draws with the same uniform number. With action
masking only the tokens of legal actions can be drawn, and what is left is renormalised.

Shapes: B requests, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from sparring.core.types import Sampling

Node = dict[int, "Node"]

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2**64 / the golden ratio, as a signed number
_MIX1 = -4658895280553007687
_MIX2 = -7723592293110705685


def uniforms(seeds_B: Tensor, step: int | Tensor) -> Tensor:
    """A number in (0, 1) per seed and step: a counter-based generator (splitmix64)."""
    steps_B = torch.as_tensor(step, dtype=torch.int64, device=seeds_B.device)
    x = seeds_B + (steps_B + 1) * _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    x = x ^ _shift(x, 31)
    # 52 bits, so that adding the half is exact: with 53 the largest would round up to 1.
    return (_shift(x, 12).to(torch.float64) + 0.5) / 2.0**52


def _shift(x: Tensor, bits: int) -> Tensor:
    """A logical right shift: torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def truncate(logits_BV: Tensor, top_k_B: Tensor, top_p_B: Tensor) -> Tensor:
    """Logits with everything outside each row's top-k, and then outside the nucleus of what is
    left, set to −inf."""
    ordered, index = logits_BV.sort(dim=-1, descending=True)
    ranks = torch.arange(ordered.shape[-1], device=ordered.device)
    k = torch.where(top_k_B > 0, top_k_B, ordered.shape[-1])
    keep = ranks < k[:, None]
    probabilities = ordered.masked_fill(~keep, -torch.inf).softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    # A sum that rounds up to 1 must not cut the tail of a row that asked for no cut.
    keep &= (before < top_p_B[:, None]) | (top_p_B[:, None] >= 1)
    keep[:, 0] = True
    return torch.full_like(logits_BV, -torch.inf).scatter(
        -1, index, ordered.masked_fill(~keep, -torch.inf)
    )


def chances(logits_BV: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that `draw` draws from, all rows with one sampling."""
    if sampling.temperature == 0:
        return torch.nn.functional.one_hot(logits_BV.argmax(-1), logits_BV.shape[-1]).double()
    scaled = logits_BV.float() / sampling.temperature
    if not sampling.truncated:
        return scaled.double().softmax(-1)
    rows = torch.ones(len(logits_BV), device=logits_BV.device)
    return (
        truncate(scaled, (rows * sampling.top_k).long(), rows * sampling.top_p).double().softmax(-1)
    )


def draw(
    logits_BV: Tensor,
    temperature_B: Tensor,
    top_k_B: Tensor,
    top_p_B: Tensor,
    uniforms_B: Tensor,
) -> tuple[Tensor, Tensor]:
    """One token per row, and its logprob under the distribution that it was drawn from: tempered,
    and truncated where that was asked for. Greedily, that of temperature 1."""
    greedy_B = temperature_B == 0
    scaled = logits_BV.float() / torch.where(greedy_B, 1.0, temperature_B)[:, None]
    allowed = scaled
    if bool((top_k_B > 0).any()) or bool((top_p_B < 1).any()):
        allowed = truncate(scaled, top_k_B, top_p_B)
    probabilities = allowed.softmax(-1)
    cumulative = probabilities.cumsum(-1, dtype=torch.float64)
    threshold = uniforms_B[:, None] * cumulative[:, -1:]
    drawn_B = torch.searchsorted(cumulative, threshold, right=True)[:, 0]
    token_B = drawn_B.clamp(max=logits_BV.shape[-1] - 1)
    if bool(greedy_B.any()):
        token_B = torch.where(greedy_B, logits_BV.argmax(-1), token_B)
    return token_B, probabilities.gather(-1, token_B[:, None])[:, 0].log()


class Trie:
    """The token sequences of the legal actions. The end token is part of it only where one action
    is a prefix of another; elsewhere a reply ends with the action's last token."""

    def __init__(self, actions: Iterable[Sequence[int]], end: int) -> None:
        self.root: Node = {}
        self.depth = 0  # tokens of the longest reply
        closed = []
        for tokens in actions:
            node = self.root
            for token in tokens:
                node = node.setdefault(token, {})
            closed.append((node, len(tokens)))
        for node, length in closed:
            if node:
                node[end] = {}
            self.depth = max(self.depth, length + bool(node))

    def allowed(self, prefix: Sequence[int] = ()) -> list[int]:
        """The tokens that may come next; none where an action is complete."""
        node = self.root
        for token in prefix:
            node = node[token]
        return list(node)


def mask_logits(logits_BV: Tensor, allowed: Sequence[Sequence[int]]) -> Tensor:
    """Logits with everything but each row's allowed tokens at −inf; a row that names none keeps
    them all."""
    rows = [i for i, tokens in enumerate(allowed) for _ in tokens]
    if not rows:
        return logits_BV
    columns = [token for tokens in allowed for token in tokens]
    kept_BV = torch.tensor([[not tokens] for tokens in allowed], device=logits_BV.device)
    kept_BV = kept_BV.repeat(1, logits_BV.shape[-1])
    kept_BV[rows, columns] = True
    return logits_BV.masked_fill(~kept_BV, -torch.inf)

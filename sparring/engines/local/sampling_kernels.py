"""Drawing tokens from logits, in Triton: each request with a key of its own, so that it draws alike
in any batch.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparring.engines.local.dependent_launch import launch_early, wait

PARTS = 8  # that the vocabulary is split into for a draw
_SCAN = 2048


@triton.jit
def _logit(logits, index, inside, heat, scale, cap, CAP: tl.constexpr):
    value = tl.load(logits + index, mask=inside, other=-float("inf")).to(tl.float32) * scale
    if CAP:
        bent = cap * (2 / (1 + tl.exp(-2 * value / cap)) - 1)
        value = tl.where(inside, bent, -float("inf"))
    return value / heat


@triton.jit
def _weigh(
    logits, temperature, tops, totals, best, scale, cap,
    V: tl.constexpr, PARTS: tl.constexpr, SCAN: tl.constexpr, CAP: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """One part of a row's vocabulary: its largest logit, where that is, and its sum."""
    wait(EARLY)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    heat = tl.load(temperature + row)
    heat = tl.where(heat == 0, 1.0, heat)
    size: tl.constexpr = (V + PARTS * SCAN - 1) // (PARTS * SCAN) * SCAN
    top, total, chosen = -float("inf"), 0.0, part * size
    for start in range(part * size, part * size + size, SCAN):
        column = start + tl.arange(0, SCAN)
        value = _logit(logits + row * V, column, column < V, heat, scale, cap, CAP)
        high, index = tl.max(value, 0, return_indices=True)
        chosen = tl.where(high > top, start + index, chosen)
        higher = tl.maximum(top, high)
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - safe) + tl.sum(tl.exp(value - safe), 0)
        top = higher
    line = row * PARTS + part
    tl.store(tops + line, top)
    tl.store(totals + line, total)
    tl.store(best + line, chosen)


@triton.jit
def _choose(
    logits, temperature, tops, totals, best, seed, drawn, token, logprob, scale, cap,
    V: tl.constexpr, PARTS: tl.constexpr, SCAN: tl.constexpr, CAP: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """A part by its weight, then a token of it: two uniforms of the request's own."""
    wait(EARLY)
    row = tl.program_id(0).to(tl.int64)
    heat = tl.load(temperature + row)
    greedy = heat == 0
    heat = tl.where(greedy, 1.0, heat)
    size: tl.constexpr = (V + PARTS * SCAN - 1) // (PARTS * SCAN) * SCAN
    p = tl.arange(0, PARTS)
    top_P = tl.load(tops + row * PARTS + p)
    top = tl.max(top_P, 0)
    weight_P = tl.load(totals + row * PARTS + p) * tl.exp(top_P - top)
    total = tl.sum(weight_P, 0)
    # A key of its own for every token, so that a request draws alike in any company.
    key = tl.load(seed + row) + tl.load(drawn + row).to(tl.int64) * 0x1E3779B97F4A7C15
    upto_P = tl.cumsum(weight_P, 0)
    chance_P = tl.rand(key, p)
    below = upto_P <= tl.sum(tl.where(p == 0, chance_P, 0.0), 0) * total
    last = tl.max(tl.where(weight_P > 0, p, 0), 0)
    part = tl.minimum(tl.sum(below.to(tl.int32), 0), last)
    mine = tl.sum(tl.where(p == part, weight_P, 0.0), 0)
    target = tl.sum(tl.where(p == 1, chance_P, 0.0), 0) * mine
    chosen = tl.sum(tl.where(p == part, tl.load(best + row * PARTS + p), 0), 0)
    running, done = 0.0, greedy.to(tl.int32)
    for start in range(part * size, part * size + size, SCAN):
        if done == 0:
            column = start + tl.arange(0, SCAN)
            value = _logit(logits + row * V, column, column < V, heat, scale, cap, CAP)
            chance = tl.exp(value - top)
            past = (running + tl.cumsum(chance, 0) > target) & (chance > 0)
            hit = tl.min(tl.where(past, column, V), 0)
            chosen = tl.where(hit < V, hit, chosen)
            done = tl.where(hit < V, 1, done)
            running += tl.sum(chance, 0)
    likeliest = tl.min(tl.where(top_P == top, tl.load(best + row * PARTS + p), V), 0)
    chosen = tl.where(greedy, likeliest, chosen)
    value = tl.load(logits + row * V + chosen).to(tl.float32) * scale
    if CAP:
        value = cap * (2 / (1 + tl.exp(-2 * value / cap)) - 1)
    tl.store(token + row, chosen.to(tl.int64))
    tl.store(logprob + row, value / heat - top - tl.log(total))


def draw(
    logits_BV: Tensor,
    temperature_B: Tensor,
    seed_B: Tensor,
    drawn_B: Tensor,
    scale: float = 1.0,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """A token per row and its logprob at the row's temperature; at 0, the likeliest and its
    logprob at 1. `drawn` counts the tokens that a request has drawn before."""
    rows, V = logits_BV.shape
    device = logits_BV.device
    tops = torch.empty(rows, PARTS, dtype=torch.float32, device=device)
    totals, best = torch.empty_like(tops), torch.empty_like(tops, dtype=torch.int32)
    token = torch.empty(rows, dtype=torch.int64, device=device)
    logprob = torch.empty(rows, dtype=torch.float32, device=device)
    form = {"V": V, "PARTS": PARTS, "SCAN": _SCAN, "CAP": cap is not None}
    form |= launch_early(device)
    bend = (scale, cap or 1.0)
    _weigh[(rows, PARTS)](logits_BV, temperature_B, tops, totals, best, *bend, **form)
    _choose[(rows,)](
        logits_BV, temperature_B, tops, totals, best, seed_B, drawn_B, token, logprob, *bend, **form
    )
    return token, logprob


@triton.jit(do_not_specialize=["rows", "stride"])
def _advance(
    drawn_token, drawn_logprob, token, position, drawn, left, turn, tokens, logprobs, rows, stride,
    BLOCK_B: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    row = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    mine = row < rows
    new = tl.load(drawn_token + row, mask=mine)
    number = tl.load(turn + row, mask=mine, other=0)
    tl.store(tokens + number * stride + row, new, mask=mine)
    logprob = tl.load(drawn_logprob + row, mask=mine)
    tl.store(logprobs + number * stride + row, logprob, mask=mine)
    tl.store(turn + row, number + 1, mask=mine)
    tl.store(drawn + row, tl.load(drawn + row, mask=mine) + 1, mask=mine)
    # A row that has drawn all it may stays where it is, since there is no block for what would
    # follow, with the token that stands there: the next turn begins with those keys and values.
    rest = tl.load(left + row, mask=mine, other=0) - 1
    tl.store(left + row, rest, mask=mine)
    at = tl.load(position + row, mask=mine)
    tl.store(position + row, tl.where(rest > 0, at + 1, at), mask=mine)
    tl.store(token + row, tl.where(rest > 0, new, tl.load(token + row, mask=mine)), mask=mine)


def advance(
    token_B: Tensor, logprob_B: Tensor, state: dict[str, Tensor], turn: Tensor, tokens: Tensor,
    logprobs: Tensor,
) -> None:  # fmt: skip
    """Note what was drawn, and go on to the next position."""
    rows = len(token_B)
    _advance[(triton.cdiv(rows, 128),)](
        token_B, logprob_B, state["token"], state["position"], state["drawn"], state["left"], turn,
        tokens, logprobs, rows, tokens.shape[1], BLOCK_B=128, **launch_early(token_B.device),
    )  # fmt: skip

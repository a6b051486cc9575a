"""The pieces of one decode step that stock kernels do badly for small models, in Triton. Each
rounds where the model's own code rounds: what is sampled is what the learner computes again.

Shapes: B rows (one token each), H hidden, D head, Q query heads, K key heads, S places,
V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_norm(x, delta, weight, out, H, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    inside = column < H
    at = tl.program_id(0).to(tl.int64) * H + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(delta + at, mask=inside, other=0.0).to(tl.float32)
        value = value.to(x.dtype.element_ty).to(tl.float32)
        tl.store(x + at, value.to(x.dtype.element_ty), mask=inside)
    scale = 1 / tl.sqrt(tl.sum(value * value) / H + eps)
    normed = (value * scale).to(x.dtype.element_ty).to(tl.float32)
    weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (normed * weights).to(x.dtype.element_ty), mask=inside)


def add_norm(x_BH: Tensor, delta_BH: Tensor | None, weight_H: Tensor, eps: float) -> Tensor:
    """The RMS norm of x, after adding delta to x in place."""
    out = torch.empty_like(x_BH)
    rows, width = x_BH.shape
    _add_norm[(rows,)](
        x_BH,
        x_BH if delta_BH is None else delta_BH,
        weight_H,
        out,
        width,
        eps,
        ADD=delta_BH is not None,
        BLOCK=triton.next_power_of_2(width),
    )
    return out


@triton.jit
def _head_norm(low, high, weight, d, inside, D, eps):
    kind = low.dtype
    low, high = low.to(tl.float32), high.to(tl.float32)
    scale = 1 / tl.sqrt((tl.sum(low * low) + tl.sum(high * high)) / D + eps)
    first = tl.load(weight + d, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(weight + D // 2 + d, mask=inside, other=0.0).to(tl.float32)
    low = ((low * scale).to(kind).to(tl.float32) * first).to(kind)
    return low, ((high * scale).to(kind).to(tl.float32) * second).to(kind)


@triton.jit
def _rotate(
    qkv, cos, sin, position, slot, q_out, keys, values, q_weight, k_weight, S, eps,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, NORM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half: tl.constexpr = D // 2
    d = tl.arange(0, BLOCK)
    inside = d < half
    kind = qkv.dtype.element_ty
    at = qkv + (row * (Q + 2 * K) + head) * D
    low = tl.load(at + d, mask=inside, other=0.0)
    high = tl.load(at + half + d, mask=inside, other=0.0)
    where = tl.load(position + row)
    if head < Q + K:
        if NORM:
            if head < Q:
                low, high = _head_norm(low, high, q_weight, d, inside, D, eps)
            else:
                low, high = _head_norm(low, high, k_weight, d, inside, D, eps)
        c = tl.load(cos + where * D + d, mask=inside, other=0.0).to(tl.float32)
        s = tl.load(sin + where * D + d, mask=inside, other=0.0).to(tl.float32)
        a, b = low.to(tl.float32), high.to(tl.float32)
        low = ((a * c).to(kind).to(tl.float32) - (b * s).to(kind).to(tl.float32)).to(kind)
        high = ((b * c).to(kind).to(tl.float32) + (a * s).to(kind).to(tl.float32)).to(kind)
    if head < Q:
        to = q_out + (row * Q + head) * D
    else:
        owner = (head - Q) % K
        place = ((tl.load(slot + row).to(tl.int64) * K + owner) * S + where) * D
        to = keys + place if head < Q + K else values + place
    tl.store(to + d, low, mask=inside)
    tl.store(to + half + d, high, mask=inside)


def rotate(
    qkv_BX: Tensor,
    rope: tuple[Tensor, Tensor],
    position_B: Tensor,
    slot_B: Tensor,
    cache: tuple[Tensor, Tensor],
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
) -> Tensor:
    """Queries and keys turned to their positions; keys and values written into their slots."""
    keys, values = cache
    _, K, S, D = keys.shape
    rows = len(qkv_BX)
    Q = qkv_BX.shape[1] // D - 2 * K
    q_out = torch.empty(rows, Q, D, dtype=qkv_BX.dtype, device=qkv_BX.device)
    q_weight, k_weight = norms or (qkv_BX, qkv_BX)
    _rotate[(rows, Q + 2 * K)](
        qkv_BX, *rope, position_B, slot_B, q_out, keys, values, q_weight, k_weight, S, eps,
        Q=Q, K=K, D=D, NORM=norms is not None, BLOCK=triton.next_power_of_2(D // 2),
    )  # fmt: skip
    return q_out


@triton.jit
def _attend(
    q, keys, values, position, slot, out, S, scale,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr,
    GROUP: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    row, owner = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(position + row) + 1
    base = (tl.load(slot + row).to(tl.int64) * K + owner) * S * D
    g, d, t = tl.arange(0, GROUP), tl.arange(0, WIDE), tl.arange(0, STEP)
    head = owner * (Q // K) + g
    mine = (g < Q // K)[:, None] & (d < D)[None, :]
    at = (row * Q + head)[:, None] * D + d[None, :]
    query = tl.load(q + at, mask=mine, other=0.0)
    top = tl.full([GROUP], -float("inf"), tl.float32)
    total = tl.zeros([GROUP], tl.float32)
    mixed = tl.zeros([GROUP, WIDE], tl.float32)
    for start in range(0, length, STEP):
        seen = start + t < length
        there = seen[:, None] & (d < D)[None, :]
        place = base + (start + t)[:, None] * D + d[None, :]
        key = tl.load(keys + place, mask=there, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=EXACT) * scale
        score = tl.where(seen[None, :], score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - higher[:, None])
        fade = tl.exp(top - higher)
        value = tl.load(values + place, mask=there, other=0.0)
        total = total * fade + tl.sum(weight, 1)
        mixed = mixed * fade[:, None]
        mixed += tl.dot(weight.to(value.dtype), value, input_precision=EXACT)
        top = higher
    tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=mine)


def attend(
    q_BQD: Tensor, cache: tuple[Tensor, Tensor], position_B: Tensor, slot_B: Tensor
) -> Tensor:
    """Each row's queries over its own slot, up to its own position; key heads are never copied."""
    keys, values = cache
    _, K, S, D = keys.shape
    rows, Q, _ = q_BQD.shape
    out = torch.empty(rows, Q * D, dtype=q_BQD.dtype, device=q_BQD.device)
    _attend[(rows, K)](
        q_BQD, keys, values, position_B, slot_B, out, S, D**-0.5,
        Q=Q, K=K, D=D, GROUP=max(16, triton.next_power_of_2(Q // K)),
        WIDE=max(16, triton.next_power_of_2(D)), STEP=64,
        EXACT="ieee" if q_BQD.dtype == torch.float32 else "tf32",
    )  # fmt: skip
    return out


@triton.jit
def _silu_times(both, out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    kind = both.dtype.element_ty
    gate = tl.load(both + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + (row * 2 + 1) * width + column, mask=inside, other=0.0).to(tl.float32)
    open_ = (gate / (1 + tl.exp(-gate))).to(kind).to(tl.float32)
    tl.store(out + row * width + column, (open_ * up).to(kind), mask=inside)


def silu_times(both_B2I: Tensor) -> Tensor:
    """silu(first half) × second half."""
    rows, width = both_B2I.shape[0], both_B2I.shape[1] // 2
    out = torch.empty(rows, width, dtype=both_B2I.dtype, device=both_B2I.device)
    _silu_times[(rows, triton.cdiv(width, 1024))](both_B2I, out, width, BLOCK=1024)
    return out


@triton.jit
def _draw(
    logits, temperature, seed, position, token, logprob, V: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    heat = tl.load(temperature + row)
    greedy = heat == 0
    heat = tl.where(greedy, 1.0, heat)
    # A key of its own for every position, so that a request draws alike in any company.
    key = tl.load(seed + row) + tl.load(position + row).to(tl.int64) * 0x1E3779B97F4A7C15
    best, chosen = -float("inf"), 0
    top, total = -float("inf"), 0.0
    for start in range(0, V, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < V
        value = tl.load(logits + row * V + column, mask=inside, other=-float("inf")).to(tl.float32)
        value = value / heat
        higher = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(value - higher), 0)
        top = higher
        # The winner of a race of exponential clocks is a draw from the softmax.
        chance = tl.maximum(tl.rand(key, column), 1e-10)
        race = tl.where(greedy, value, value - tl.log(-tl.log(chance)))
        found, index = tl.max(tl.where(inside, race, -float("inf")), 0, return_indices=True)
        chosen = tl.where(found > best, start + index, chosen)
        best = tl.maximum(best, found)
    value = tl.load(logits + row * V + chosen).to(tl.float32) / heat
    tl.store(token + row, chosen)
    tl.store(logprob + row, value - top - tl.log(total))


def draw(
    logits_BV: Tensor, temperature_B: Tensor, seed_B: Tensor, position_B: Tensor
) -> tuple[Tensor, Tensor]:
    """A token per row and its logprob at the row's temperature; at 0, the likeliest and its
    logprob at 1."""
    rows, V = logits_BV.shape
    token = torch.empty(rows, dtype=torch.int64, device=logits_BV.device)
    logprob = torch.empty(rows, dtype=torch.float32, device=logits_BV.device)
    _draw[(rows,)](logits_BV, temperature_B, seed_B, position_B, token, logprob, V=V, BLOCK=2048)
    return token, logprob

"""The pieces of a forward pass over paged keys and values that stock kernels do badly, in Triton.
Each rounds where the model's own code rounds, and gives a token the same bits whoever else is in
the pass: sums go by chunks of fixed size, in an order that the token's position alone decides.

Shapes: N tokens, H hidden, D head, Q query heads, K key heads, B rows, V vocabulary. The cache of a
layer is K × blocks × BLOCK × D.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparring.engines.local.decoder import Cache, Layer
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.pages import CHUNK, Pages

PARTS = 8  # that the vocabulary is split into for a draw
_SCAN = 2048


@triton.jit
def _scaled(value, scale, weight, kind, NORM: tl.constexpr):
    """As the families have it: rounded before the weight is applied, or after; or 1 + weight."""
    if NORM == 0:
        return ((value * scale).to(kind).to(tl.float32) * weight).to(kind)
    if NORM == 1:
        return (value * scale * weight).to(kind)
    return (value * scale * (1.0 + weight)).to(kind)


@triton.jit
def _add_norm(
    x, delta, post, weight, out, H, stride, eps,
    ADD: tl.constexpr, POST: tl.constexpr, PRE: tl.constexpr, NORM: tl.constexpr,
    BLOCK_H: tl.constexpr,
):  # fmt: skip
    column = tl.arange(0, BLOCK_H)
    inside = column < H
    row = tl.program_id(0).to(tl.int64)
    kind = x.dtype.element_ty
    value = tl.load(x + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        more = tl.load(delta + row * H + column, mask=inside, other=0.0).to(tl.float32)
        if POST:
            weights = tl.load(post + column, mask=inside, other=0.0).to(tl.float32)
            more = _scaled(more, 1 / tl.sqrt(tl.sum(more * more) / H + eps), weights, kind, NORM)
            more = more.to(tl.float32)
        value = (value + more).to(kind).to(tl.float32)
        tl.store(x + row * stride + column, value.to(kind), mask=inside)
    if PRE:
        weights = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        value = _scaled(value, 1 / tl.sqrt(tl.sum(value * value) / H + eps), weights, kind, NORM)
    tl.store(out + row * H + column, value.to(kind), mask=inside)


def add_norm(
    x_NH: Tensor,
    delta_NH: Tensor | None,
    post_H: Tensor | None,
    weight_H: Tensor | None,
    eps: float,
    norm: int = 0,
) -> Tensor:
    """The RMS norm of x by `weight`, after adding delta, itself normed by `post`, to x in place."""
    out = torch.empty(x_NH.shape, dtype=x_NH.dtype, device=x_NH.device)
    rows, width = x_NH.shape
    _add_norm[(rows,)](
        x_NH,
        x_NH if delta_NH is None else delta_NH,
        x_NH if post_H is None else post_H,
        x_NH if weight_H is None else weight_H,
        out,
        width,
        x_NH.stride(0),
        eps,
        ADD=delta_NH is not None,
        POST=post_H is not None,
        PRE=weight_H is not None,
        NORM=norm,
        BLOCK_H=triton.next_power_of_2(width),
    )
    return out


@triton.jit(do_not_specialize=["width", "blocks"])
def _rotate(
    qkv, cos, sin, position, row_of, table, q_out, keys, values, q_weight, k_weight,
    width, blocks, eps,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, NORM: tl.constexpr,
    HEAD_NORM: tl.constexpr, ROPE: tl.constexpr, PAGE: tl.constexpr, WIDE: tl.constexpr,
    HEADS: tl.constexpr,
):  # fmt: skip
    """HEADS heads of one token: normed, turned, and written where they belong."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, WIDE)
    half: tl.constexpr = R // 2
    kind = qkv.dtype.element_ty
    there = (head < Q + 2 * K)[:, None] & (d < D)[None, :]
    at = qkv + (token * (Q + 2 * K) + head)[:, None] * D
    value = tl.load(at + d[None, :], mask=there, other=0.0)
    # The partner that each dimension is turned with: half the rotary width away.
    other = tl.where(d < half, d + half, d - half)
    turns = there & (d < R)[None, :] & (head < Q + K)[:, None]
    mate = tl.load(at + other[None, :], mask=turns, other=0.0)
    where = tl.load(position + token)
    if HEAD_NORM:
        wide = value.to(tl.float32)
        scale = (1 / tl.sqrt(tl.sum(wide * wide, 1) / D + eps))[:, None]
        is_q = (head < Q)[:, None]
        q_w = tl.load(q_weight + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
        k_w = tl.load(k_weight + d, mask=d < D, other=0.0).to(tl.float32)[None, :]
        q_m = tl.load(q_weight + other, mask=d < R, other=0.0).to(tl.float32)[None, :]
        k_m = tl.load(k_weight + other, mask=d < R, other=0.0).to(tl.float32)[None, :]
        normed = _scaled(wide, scale, tl.where(is_q, q_w, k_w), kind, NORM)
        value = tl.where((head < Q + K)[:, None], normed, value)
        mate = _scaled(mate.to(tl.float32), scale, tl.where(is_q, q_m, k_m), kind, NORM)
    if ROPE:
        c = tl.load(cos + where * R + d, mask=d < R, other=0.0).to(tl.float32)[None, :]
        s = tl.load(sin + where * R + d, mask=d < R, other=0.0).to(tl.float32)[None, :]
        s = tl.where((d < half)[None, :], -s, s)
        straight = (value.to(tl.float32) * c).to(kind).to(tl.float32)
        across = (mate.to(tl.float32) * s).to(kind).to(tl.float32)
        value = tl.where(turns, (straight + across).to(kind), value)
    to_q = q_out + (token * Q + head)[:, None] * D + d[None, :]
    tl.store(to_q, value, mask=there & (head < Q)[:, None])
    block = tl.load(table + tl.load(row_of + token) * width + where // PAGE).to(tl.int64)
    owner = ((head - Q) % K).to(tl.int64)
    cell = ((owner * blocks + block) * PAGE + where % PAGE)[:, None] * D + d[None, :]
    is_key = (head >= Q) & (head < Q + K)
    tl.store(keys + cell, value, mask=there & is_key[:, None])
    tl.store(values + cell, value, mask=there & (head >= Q + K)[:, None])


def rotate(qkv_NX: Tensor, layer: Layer, cache: Cache, pages: Pages, eps: float) -> Tensor:
    """Queries and keys normed and turned to their positions; keys and values written to their
    blocks."""
    keys, values = cache
    K, blocks, _, D = keys.shape
    tokens = len(qkv_NX)
    Q = qkv_NX.shape[1] // D - 2 * K
    q_out = torch.empty(tokens, Q, D, dtype=qkv_NX.dtype, device=qkv_NX.device)
    cos, sin = layer.rope or (qkv_NX, qkv_NX)
    q_weight, k_weight = layer.head_norms or (qkv_NX, qkv_NX)
    heads = 8
    _rotate[(tokens, triton.cdiv(Q + 2 * K, heads))](
        qkv_NX, cos, sin, pages.position_N, pages.row_N, pages.table_BW, q_out, keys, values,
        q_weight, k_weight, pages.table_BW.shape[1], blocks, eps,
        Q=Q, K=K, D=D, R=cos.shape[-1] if layer.rope else D, NORM=layer.norm,
        HEAD_NORM=layer.head_norms is not None, ROPE=layer.rope is not None, PAGE=BLOCK,
        WIDE=triton.next_power_of_2(D), HEADS=heads,
    )  # fmt: skip
    return q_out


@triton.jit(do_not_specialize=["width", "blocks", "tokens", "window"])
def _attend(
    q, keys, values, table, row_of, first, count, position, out, part, tops, totals,
    width, blocks, tokens, scale, window,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
    STEP: tl.constexpr, SPAN: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr,
    WINDOW: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """A tile of tokens of one row over one chunk of its positions. Steps that a token does not see
    leave its sums as they are, so neither its neighbours nor the tile's size move a bit."""
    tile, owner, chunk = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    group: tl.constexpr = Q // K
    r, d, t = tl.arange(0, ROWS), tl.arange(0, WIDE), tl.arange(0, STEP)
    token = tl.load(first + tile) + r // group
    mine = r // group < tl.load(count + tile)
    head = owner * group + r % group
    where = tl.load(position + token, mask=mine, other=-1)
    lists = table + tl.load(row_of + tile) * width
    low = chunk * SPAN
    high = tl.minimum(tl.max(where, 0) + 1, low + SPAN)
    if WINDOW:
        furthest = tl.min(tl.where(mine, where, 1 << 30), 0) - window + 1
        low = tl.maximum(low, furthest // STEP * STEP)
    at = (token.to(tl.int64) * Q + head)[:, None] * D + d[None, :]
    shown = mine[:, None] & (d < D)[None, :]
    query = tl.load(q + at, mask=shown, other=0.0)
    top = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDE], tl.float32)
    for start in range(low, high, STEP):
        here = start + t
        block = tl.load(lists + here // PAGE, mask=here < high, other=0).to(tl.int64)
        cell = ((owner.to(tl.int64) * blocks + block) * PAGE + here % PAGE)[:, None] * D + d[
            None, :
        ]
        there = (here < high)[:, None] & (d < D)[None, :]
        key = tl.load(keys + cell, mask=there, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=EXACT) * scale
        seen = here[None, :] <= where[:, None]
        if WINDOW:
            seen = seen & (here[None, :] > where[:, None] - window)
        score = tl.where(seen, score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        weight = tl.exp(score - safe[:, None])
        fade = tl.exp(top - safe)
        value = tl.load(values + cell, mask=there, other=0.0)
        total = total * fade + tl.sum(weight, 1)
        mixed = mixed * fade[:, None]
        mixed += tl.dot(weight.to(value.dtype), value, input_precision=EXACT)
        top = higher
    if SPLIT:
        line = (chunk.to(tl.int64) * tokens + token) * Q + head
        tl.store(part + line[:, None] * D + d[None, :], mixed, mask=shown)
        tl.store(tops + line, top, mask=mine)
        tl.store(totals + line, total, mask=mine)
    else:
        tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=shown)


@triton.jit(do_not_specialize=["tokens"])
def _join(
    part, tops, totals, position, out, tokens,
    Q: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """The chunks of one token and head, added up in the order of their positions."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, WIDE)
    top, total = -float("inf"), 0.0
    mixed = tl.zeros([WIDE], tl.float32)
    for chunk in range(0, tl.load(position + token) // SPAN + 1):
        line = (chunk * tokens + token) * Q + head
        theirs = tl.load(tops + line)
        higher = tl.maximum(top, theirs)
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        fade, gain = tl.exp(top - safe), tl.exp(theirs - safe)
        total = total * fade + tl.load(totals + line) * gain
        mixed = mixed * fade + tl.load(part + line * D + d, mask=d < D, other=0.0) * gain
        top = higher
    to = out + (token * Q + head) * D + d
    tl.store(to, (mixed / total).to(out.dtype.element_ty), mask=d < D)


def attend(q_NQD: Tensor, layer: Layer, cache: Cache, pages: Pages, scale: float) -> Tensor:
    """Each token's queries over the positions of its row up to its own; no key head is copied."""
    keys, values = cache
    K, blocks, _, D = keys.shape
    tokens, Q, _ = q_NQD.shape
    device = q_NQD.device
    out = torch.empty(tokens, Q * D, dtype=q_NQD.dtype, device=device)
    splits = -(-pages.longest // CHUNK)
    wide = max(16, triton.next_power_of_2(D))
    part = tops = totals = out
    if splits > 1:
        part = torch.empty(splits, tokens, Q, D, dtype=torch.float32, device=device)
        tops = torch.empty(splits, tokens, Q, dtype=torch.float32, device=device)
        totals = torch.empty_like(tops)
    _attend[(len(pages.row_M), K, splits)](
        q_NQD, keys, values, pages.table_BW, pages.row_M, pages.first_M, pages.count_M,
        pages.position_N, out, part, tops, totals,
        pages.table_BW.shape[1], blocks, tokens, scale, layer.window,
        Q=Q, K=K, D=D, ROWS=max(16, triton.next_power_of_2(pages.tile * (Q // K))), WIDE=wide,
        STEP=64, SPAN=CHUNK, PAGE=BLOCK, SPLIT=splits > 1, WINDOW=layer.window > 0,
        EXACT="ieee" if q_NQD.dtype == torch.float32 else "tf32", num_warps=2, num_stages=3,
    )  # fmt: skip
    if splits > 1:
        _join[(tokens, Q)](
            part, tops, totals, pages.position_N, out, tokens, Q=Q, D=D, WIDE=wide, SPAN=CHUNK
        )
    return out


@triton.jit
def _gate(both, out, width, GELU: tl.constexpr, BLOCK_I: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK_I + tl.arange(0, BLOCK_I)
    inside = column < width
    kind = both.dtype.element_ty
    gate = tl.load(both + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + (row * 2 + 1) * width + column, mask=inside, other=0.0).to(tl.float32)
    if GELU:  # x · (1 + tanh(y)) / 2 is x / (1 + exp(−2y))
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        open_ = gate / (1 + tl.exp(-2 * inner))
    else:
        open_ = gate / (1 + tl.exp(-gate))
    open_ = open_.to(kind).to(tl.float32)
    tl.store(out + row * width + column, (open_ * up).to(kind), mask=inside)


def gate(both_N2I: Tensor, gelu: bool = False) -> Tensor:
    """activation(first half) × second half."""
    rows, width = both_N2I.shape[0], both_N2I.shape[1] // 2
    out = torch.empty(rows, width, dtype=both_N2I.dtype, device=both_N2I.device)
    _gate[(rows, triton.cdiv(width, 1024))](both_N2I, out, width, GELU=gelu, BLOCK_I=1024)
    return out


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
):  # fmt: skip
    """One part of a row's vocabulary: its largest logit, where that is, and its sum."""
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
):  # fmt: skip
    """A part by its weight, then a token of it: two uniforms of the request's own."""
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
    running, found = 0.0, greedy.to(tl.int32)
    for start in range(part * size, part * size + size, SCAN):
        if found == 0:
            column = start + tl.arange(0, SCAN)
            value = _logit(logits + row * V, column, column < V, heat, scale, cap, CAP)
            chance = tl.exp(value - top)
            past = (running + tl.cumsum(chance, 0) > target) & (chance > 0)
            hit = tl.min(tl.where(past, column, V), 0)
            chosen = tl.where(hit < V, hit, chosen)
            found = tl.where(hit < V, 1, found)
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
    bend = (scale, cap or 1.0)
    _weigh[(rows, PARTS)](logits_BV, temperature_B, tops, totals, best, *bend, **form)
    _choose[(rows,)](
        logits_BV, temperature_B, tops, totals, best, seed_B, drawn_B, token, logprob, *bend, **form
    )
    return token, logprob


@triton.jit(do_not_specialize=["rows", "stride"])
def _advance(
    drawn_token, drawn_logprob, token, position, drawn, left, turn, tokens, logprobs, rows, stride,
    BLOCK_B: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    mine = row < rows
    new = tl.load(drawn_token + row, mask=mine)
    tl.store(token + row, new, mask=mine)
    number = tl.load(turn + row, mask=mine, other=0)
    tl.store(tokens + number * stride + row, new, mask=mine)
    logprob = tl.load(drawn_logprob + row, mask=mine)
    tl.store(logprobs + number * stride + row, logprob, mask=mine)
    tl.store(turn + row, number + 1, mask=mine)
    tl.store(drawn + row, tl.load(drawn + row, mask=mine) + 1, mask=mine)
    # A row that has drawn all it may stays where it is: there is no block for what would follow.
    rest = tl.load(left + row, mask=mine, other=0) - 1
    tl.store(left + row, rest, mask=mine)
    place = tl.load(position + row, mask=mine)
    tl.store(position + row, tl.where(rest > 0, place + 1, place), mask=mine)


def advance(
    token_B: Tensor, logprob_B: Tensor, state: dict[str, Tensor], turn: Tensor, tokens: Tensor,
    logprobs: Tensor,
) -> None:  # fmt: skip
    """Note what was drawn, and go on to the next position."""
    rows = len(token_B)
    _advance[(triton.cdiv(rows, 128),)](
        token_B, logprob_B, state["token"], state["position"], state["drawn"], state["left"], turn,
        tokens, logprobs, rows, tokens.shape[1], BLOCK_B=128,
    )  # fmt: skip

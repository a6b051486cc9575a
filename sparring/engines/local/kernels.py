"""The pieces of a forward pass over paged keys and values that stock kernels do badly, in Triton.
Each rounds where the model's own code rounds, and gives a token the same bits in any
batch: sums go by chunks of fixed size, in an order that the token's position alone decides.

Shapes: N tokens, H hidden, D head, Q query heads, K key heads. The cache of a layer is
K × blocks × BLOCK × D.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from sparring.engines.local.decoder import Cache, Layer
from sparring.engines.local.dependent_launch import launch_early, wait
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.pages import CHUNK, Pages
from sparring.engines.local.sampling_kernels import advance, draw

_STEP = 64  # positions that attention looks at together
_OTHER_BYTES = 8192  # of a program's shared memory, beside keys and values

__all__ = ["add_norm", "advance", "attend", "draw", "gate", "rotate"]


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
    BLOCK_H: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
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
        **launch_early(x_NH.device),
    )
    return out


@triton.jit(do_not_specialize=["width", "blocks"])
def _rotate(
    qkv, cos, sin, position, row_of, table, q_out, keys, values, q_weight, k_weight,
    width, blocks, eps,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, R: tl.constexpr, NORM: tl.constexpr,
    HEAD_NORM: tl.constexpr, ROPE: tl.constexpr, PAGE: tl.constexpr, WIDE: tl.constexpr,
    HEADS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """HEADS heads of one token: normed, turned, and written where they belong."""
    wait(EARLY)
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
        WIDE=triton.next_power_of_2(D), HEADS=heads, **launch_early(qkv_NX.device),
    )  # fmt: skip
    return q_out


@triton.jit(do_not_specialize=["width", "blocks", "tokens", "window"])
def _attend(
    q, keys, values, table, row_of, first, count, position, out, part, tops, totals,
    width, blocks, tokens, scale, window,
    Q: tl.constexpr, K: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr,
    STEP: tl.constexpr, SPAN: tl.constexpr, PAGE: tl.constexpr, SPLIT: tl.constexpr,
    WINDOW: tl.constexpr, EXACT: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """A tile of tokens of one row over one chunk of its positions. Steps that a token does not see
    leave its sums as they are, so neither its neighbours nor the tile's size move a bit."""
    wait(EARLY)
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
    inside = mine[:, None] & (d < D)[None, :]
    query = tl.load(q + at, mask=inside, other=0.0)
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
        tl.store(part + line[:, None] * D + d[None, :], mixed, mask=inside)
        tl.store(tops + line, top, mask=mine)
        tl.store(totals + line, total, mask=mine)
    else:
        tl.store(out + at, (mixed / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _join(
    part, tops, totals, position, out, tokens,
    Q: tl.constexpr, D: tl.constexpr, WIDE: tl.constexpr, SPAN: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """The chunks of one token and head, added up in the order of their positions."""
    wait(EARLY)
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


def _stages(programs: int, step_bytes: int, device: torch.device) -> int:
    """How far ahead a program fetches, which moves no bit: two steps instead of one where all
    programs find room on the GPU all the same, for then none hides another's waiting."""
    return 5 if programs <= _at_once(2 * step_bytes + _OTHER_BYTES, device) else 3


@cache
def _at_once(program_bytes: int, device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    gpu = torch.cuda.get_device_properties(device)
    return gpu.multi_processor_count * (gpu.shared_memory_per_multiprocessor // program_bytes)


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
        STEP=_STEP, SPAN=CHUNK, PAGE=BLOCK, SPLIT=splits > 1, WINDOW=layer.window > 0,
        EXACT="ieee" if q_NQD.dtype == torch.float32 else "tf32", num_warps=2,
        num_stages=_stages(len(pages.row_M) * K * splits, 2 * _STEP * wide * keys.itemsize, device),
        **launch_early(device),
    )  # fmt: skip
    if splits > 1:
        _join[(tokens, Q)](
            part, tops, totals, pages.position_N, out, tokens, Q=Q, D=D, WIDE=wide, SPAN=CHUNK,
            **launch_early(device),
        )  # fmt: skip
    return out


@triton.jit
def _gate(
    both, out, width, GELU: tl.constexpr, BLOCK_I: tl.constexpr, EARLY: tl.constexpr
):  # fmt: skip
    wait(EARLY)
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
    early = launch_early(both_N2I.device)
    _gate[(rows, triton.cdiv(width, 1024))](both_N2I, out, width, GELU=gelu, BLOCK_I=1024, **early)
    return out

"""The pieces of a forward pass in plain torch, for devices without Triton's kernels. Each does what
its namesake in kernels.py does, and gives a token the same bits in any batch: matrix
products see numbers of rows for which that holds (see runner.py), and sums over positions go by
chunks of fixed size, one after another.

Shapes: N tokens, H hidden, D head, Q query heads, K key heads, G queries to each, M tiles of T
tokens, S positions, C chunks of them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local.decoder import Cache, Layer
from sparring.engines.local.families import PLUS_ONE, ROUND_FIRST, Rope
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.pages import Pages
from sparring.engines.local.sampling import draw as sample
from sparring.engines.local.sampling import uniforms
from sparring.models.logits import LogitShape

ROWS = 4  # a product of a multiple of so many rows gives each the same bits as any other multiple
_CHUNK = 64  # positions
_CELLS = 2**24  # numbers of keys gathered at a time


def add_norm(
    x_NH: Tensor,
    delta_NH: Tensor | None,
    post_H: Tensor | None,
    weight_H: Tensor | None,
    eps: float,
    norm: int = ROUND_FIRST,
) -> Tensor:
    """The RMS norm of x by `weight`, after adding delta, itself normed by `post`, to x in place."""
    if delta_NH is not None:
        x_NH.add_(delta_NH if post_H is None else _norm(delta_NH, post_H, eps, norm))
    return x_NH.clone() if weight_H is None else _norm(x_NH, weight_H, eps, norm)


def _norm(x: Tensor, weight: Tensor, eps: float, norm: int) -> Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    if norm == ROUND_FIRST:
        return weight * scaled.to(x.dtype)
    return (scaled * (1.0 + weight.float() if norm == PLUS_ONE else weight)).to(x.dtype)


def gate(both_N2I: Tensor, gelu: bool = False) -> Tensor:
    """activation(first half) × second half."""
    first, second = both_N2I.chunk(2, -1)
    return (F.gelu(first, approximate="tanh") if gelu else F.silu(first)) * second


def rotate(qkv_NX: Tensor, layer: Layer, cache: Cache, pages: Pages, eps: float) -> Tensor:
    """Queries and keys normed and turned to their positions; keys and values written to their
    blocks."""
    keys, values = cache
    K, _, _, D = keys.shape
    all_NYD = qkv_NX.view(len(qkv_NX), -1, D)
    q, k, v = all_NYD[:, : -2 * K], all_NYD[:, -2 * K : -K], all_NYD[:, -K:]
    if layer.head_norms is not None:
        q, k = (_norm(x, w, eps, layer.norm) for x, w in zip((q, k), layer.head_norms, strict=True))
    if layer.rope is not None:
        q, k = (_turned(x, *_angles(pages, layer.rope)) for x in (q, k))
    for tensor, new in ((keys, k), (values, v)):
        tensor.view(K, -1, D).index_copy_(1, _cells(pages), new.transpose(0, 1))
    return q


def _angles(pages: Pages, rope: Rope) -> tuple[Tensor, Tensor]:
    """Cosines and sines of all tokens of a pass, which most layers share."""
    key = ("angles", id(rope[0]))
    if key not in pages.memo:
        cos, sin = (table[pages.position_N][:, None] for table in rope)
        pages.memo[key] = cos, sin
    angles: tuple[Tensor, Tensor] = pages.memo[key]
    return angles


def _cells(pages: Pages) -> Tensor:
    """Where the keys and values of all tokens of a pass are written."""
    if "cells" not in pages.memo:
        block_N = pages.table_BW[pages.row_N, pages.position_N // BLOCK]
        pages.memo["cells"] = block_N * BLOCK + pages.position_N % BLOCK
    cell_N: Tensor = pages.memo["cells"]
    return cell_N


def _turned(x_NYD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    width = cos.shape[-1]
    turning, rest = x_NYD[..., :width], x_NYD[..., width:]
    low, high = turning.chunk(2, -1)
    turned = turning * cos + torch.cat([-high, low], -1) * sin
    return torch.cat([turned, rest], -1) if rest.shape[-1] else turned


def attend(q_NQD: Tensor, layer: Layer, cache: Cache, pages: Pages, scale: float) -> Tensor:
    """Each token's queries over the positions of its row up to its own."""
    K, _, _, D = cache[0].shape
    N, Q, _ = q_NQD.shape
    wide = -(-pages.longest // _CHUNK) * _CHUNK  # positions of each row that are looked at
    out_NQD = torch.empty_like(q_NQD)
    at_once = max(1, _CELLS // (K * wide * D))
    for start in range(0, len(pages.row_M), at_once):
        key = (start, layer.window)
        if key not in pages.memo:
            part = slice(start, start + at_once)
            pages.memo[key] = _tiles(pages, part, wide, layer.window, Q // K)
        _attend_tiles(q_NQD, out_NQD, cache, pages.memo[key], scale)
    return out_NQD.view(N, Q * D)


class _Tiles(NamedTuple):
    """Some tiles of a pass: their tokens, which of them are real, their blocks, what each sees."""

    token_MT: Tensor
    real_MT: Tensor
    block_X: Tensor
    hidden_MYS: Tensor  # Y: the queries of all tokens of a tile to one key head


def _tiles(pages: Pages, part: slice, wide: int, window: int, G: int) -> _Tiles:
    first_M, count_M = pages.first_M[part], pages.count_M[part]
    step_T = torch.arange(pages.tile)
    token_MT = first_M[:, None] + torch.minimum(step_T, count_M[:, None] - 1)
    position_MT1 = pages.position_N[token_MT][..., None]
    here_S = torch.arange(wide)
    hidden_MTS = here_S > position_MT1
    if window:
        hidden_MTS |= here_S <= position_MT1 - window
    blocks = wide // BLOCK
    table_BW = F.pad(pages.table_BW, (0, max(0, blocks - pages.table_BW.shape[1])))[:, :blocks]
    return _Tiles(
        token_MT,
        step_T < count_M[:, None],
        table_BW[pages.row_M[part]].flatten(),
        hidden_MTS.repeat_interleave(G, 1),
    )


def _attend_tiles(
    q_NQD: Tensor, out_NQD: Tensor, cache: Cache, tiles: _Tiles, scale: float
) -> None:
    K, _, _, D = cache[0].shape
    M, T = tiles.token_MT.shape
    G = q_NQD.shape[1] // K
    # Drawing: one token a row, all rows at once, in their order.
    drawing = T == 1 and len(q_NQD) == M
    q_MTQD = q_NQD if drawing else q_NQD[tiles.token_MT]
    q = q_MTQD.view(M, T, K, G, D).permute(2, 0, 1, 3, 4).reshape(K * M, T * G, D)
    if spare := -T * G % ROWS:
        q = F.pad(q, (0, 0, 0, spare))
    keys, values = (t.index_select(1, tiles.block_X).view(K * M, -1, D) for t in cache)
    S = keys.shape[1]
    score = torch.bmm(q, keys.transpose(1, 2)).mul_(scale).view(K, M, -1, S)
    score[:, :, : T * G].masked_fill_(tiles.hidden_MYS, -torch.inf)
    weight = score.sub_(score.amax(-1, keepdim=True)).exp_().view(K * M, -1, S // _CHUNK, _CHUNK)
    total = _in_order(weight.sum(-1).unbind(-1))
    mixed = _in_order(
        [
            torch.bmm(weight[:, :, c], values[:, c * _CHUNK : (c + 1) * _CHUNK])
            for c in range(S // _CHUNK)
        ]
    )
    out = mixed.div_(total[..., None])[:, : T * G].view(K, M, T, G, D).permute(1, 2, 0, 3, 4)
    if drawing:
        out_NQD.copy_(out.reshape(M, K * G, D))
    elif T == 1:
        out_NQD[tiles.token_MT[:, 0]] = out.reshape(M, K * G, D)
    else:
        out_NQD[tiles.token_MT[tiles.real_MT]] = out.reshape(M, T, K * G, D)[tiles.real_MT]


def _in_order(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def draw(
    logits_BV: Tensor,
    temperature_B: Tensor,
    seed_B: Tensor,
    drawn_B: Tensor,
    scale: float = 1.0,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """A token per row and its logprob. `drawn` counts the tokens that a request drew before."""
    whole_B = torch.zeros_like(seed_B)
    logits_BV = LogitShape(scale, cap).of(logits_BV)
    uniforms_B = uniforms(seed_B, drawn_B)
    return sample(logits_BV, temperature_B, whole_B, torch.ones_like(temperature_B), uniforms_B)


def advance(
    token_B: Tensor, logprob_B: Tensor, state: dict[str, Tensor], turn: Tensor, tokens: Tensor,
    logprobs: Tensor,
) -> None:  # fmt: skip
    """Note what was drawn; there is one step only in a chunk."""
    rows = len(token_B)
    tokens[0, :rows], logprobs[0, :rows], state["token"][:rows] = token_B, logprob_B, token_B
    state["drawn"][:rows] += 1

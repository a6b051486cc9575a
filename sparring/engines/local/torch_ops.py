"""The pieces of a forward pass in plain torch, for devices without Triton's kernels. Each does what
its namesake in kernels.py does, and gives a token the same bits in any batch: matrix
products see numbers of rows for which that holds (see runner.py), and sums over positions go by
chunks of fixed size, one after another.

Shapes: N tokens, H hidden, D head, Q query heads, K key heads, G queries to each, M tiles of T
tokens, S positions, C chunks of them.
"""

from __future__ import annotations

from collections.abc import Iterator
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

# Queries to one key head: products of a multiple of so many give each the same bits. Over keys that
# lie in blocks, on some processors, products of fewer do not (Cascade Lake, heads of 96 and wider).
ROWS, ROWS_IN_BLOCKS = 4, 16
_CHUNK = 64  # positions
_CELLS = 2**20  # numbers of keys gathered, and of scores, at a time


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
    return (F.gelu(first, approximate="tanh") if gelu else F.silu(first)).mul_(second)


def rotate(qkv_NX: Tensor, layer: Layer, cache: Cache, pages: Pages, eps: float) -> Tensor:
    """Queries and keys normed and turned to their positions; keys and values written to their
    blocks."""
    K, _, _, D = cache[0].shape
    q_NQD, *new = turned(qkv_NX, layer, K, D, pages, eps)
    for tensor, new_NKD in zip(cache, new, strict=True):
        tensor.view(K, -1, D).index_copy_(1, _cells(pages), new_NKD.transpose(0, 1))
    return q_NQD


def turned(
    qkv_NX: Tensor, layer: Layer, K: int, D: int, pages: Pages, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, the first two normed and turned to their positions."""
    all_NYD = qkv_NX.view(len(qkv_NX), -1, D)
    qk_NYD, v_NKD = all_NYD[:, :-K], all_NYD[:, -K:]
    if layer.head_norms is not None:
        both = zip((qk_NYD[:, :-K], qk_NYD[:, -K:]), layer.head_norms, strict=True)
        qk_NYD = torch.cat([_norm(x, weight, eps, layer.norm) for x, weight in both], 1)
    if layer.rope is not None:
        qk_NYD = _turned(qk_NYD, *_angles(pages, layer.rope))
    return qk_NYD[:, :-K], qk_NYD[:, -K:], v_NKD


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
    out_NQD = torch.zeros_like(q_NQD)  # padding has no tile
    if ("tiles", layer.window) not in pages.memo:
        cells = max(K * D, Q * pages.tile)
        pages.memo["tiles", layer.window] = [
            _tiles(pages, part_M, wide, layer.window, Q // K, q_NQD.dtype)
            for part_M, wide in _parts(pages, _CELLS // cells)
        ]
    for tiles in pages.memo["tiles", layer.window]:
        _attend_tiles(q_NQD, out_NQD, cache, tiles, scale)
    return out_NQD.view(N, Q * D)


def _parts(pages: Pages, most: int) -> Iterator[tuple[Tensor, int]]:
    """Tiles to take together, of at most so many positions in all, and how many positions of each
    are looked at. Those that end alike are neighbours: what lies beyond is no work then."""
    last_M, order_M = pages.position_N[pages.first_M + pages.count_M - 1].sort(stable=True)
    wide_M = (last_M // BLOCK + 1) * BLOCK
    start = 0
    for end, wide in enumerate(wide_M.tolist()):
        if end > start and (end - start + 1) * wide > most:
            yield order_M[start:end], int(wide_M[end - 1])
            start = end
    yield order_M[start:], int(wide_M[-1])


class _Tiles(NamedTuple):
    """Some tiles of a pass: their tokens, which of them are real, their blocks, what each sees."""

    token_MT: Tensor
    real_MT: Tensor
    block_X: Tensor
    bias_MYS: Tensor  # Y: the queries of all tokens of a tile to one key head, padded


def _tiles(
    pages: Pages, part_M: Tensor, wide: int, window: int, G: int, dtype: torch.dtype
) -> _Tiles:
    first_M, count_M = pages.first_M[part_M], pages.count_M[part_M]
    step_T = torch.arange(pages.tile)
    token_MT = first_M[:, None] + torch.minimum(step_T, count_M[:, None] - 1)
    bias_MTS = hidden_bias(pages.position_N[token_MT], wide, window, dtype)
    return _Tiles(
        token_MT,
        step_T < count_M[:, None],
        pages.table_BW[pages.row_M[part_M], : wide // BLOCK].flatten(),
        _whole(bias_MTS.repeat_interleave(G, 1)),
    )


def hidden_bias(position: Tensor, wide: int, window: int, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of so many positions for a token at each of these: minus infinity
    where it does not look."""
    here_S = torch.arange(wide)
    hidden = here_S > position[..., None]
    if window:
        hidden |= here_S <= position[..., None] - window
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -torch.inf)


def _attend_tiles(
    q_NQD: Tensor, out_NQD: Tensor, cache: Cache, tiles: _Tiles, scale: float
) -> None:
    K, _, _, D = cache[0].shape
    M, T = tiles.token_MT.shape
    G = q_NQD.shape[1] // K
    q_KMYD = (
        (q_NQD[tiles.token_MT] * scale).view(M, T, K, G, D).permute(2, 0, 1, 3, 4).flatten(2, 3)
    )
    keys, values = (t.index_select(1, tiles.block_X).view(K * M, -1, D) for t in cache)
    out = attention(_whole(q_KMYD), keys.transpose(1, 2), values, tiles.bias_MYS)
    out_MTQD = out[:, :, : T * G].view(K, M, T, G, D).permute(1, 2, 0, 3, 4).flatten(2, 3)
    out_NQD[tiles.token_MT[tiles.real_MT]] = out_MTQD[tiles.real_MT]


def _whole(x: Tensor) -> Tensor:
    """With as many queries as give each the same bits; padding by none would copy all of them."""
    missing = -x.shape[-2] % ROWS_IN_BLOCKS
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def attention(q_ABYD: Tensor, key_XDS: Tensor, value_XSD: Tensor, bias: Tensor) -> Tensor:
    """Scaled queries over keys and values (X: A × B), a multiple of ROWS of them. What is summed
    over positions goes by chunks of fixed size, one after another: zeros at the end, that others
    with more positions cause, move no bit."""
    score_ABYS = torch.bmm(q_ABYD.flatten(0, 1), key_XDS).view(*q_ABYD.shape[:3], -1).add_(bias)
    weight_XYS = torch.softmax(score_ABYS, -1, out=score_ABYS).flatten(0, 1)
    total_XYD = torch.bmm(weight_XYS[..., :_CHUNK], value_XSD[:, :_CHUNK])
    for start in range(_CHUNK, value_XSD.shape[1], _CHUNK):
        part = slice(start, start + _CHUNK)
        total_XYD.baddbmm_(weight_XYS[..., part], value_XSD[:, part])
    return total_XYD.view(q_ABYD.shape)


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
    """Note what was drawn, and go on to the next position."""
    rows, step = len(token_B), int(turn[0])
    tokens[step, :rows], logprobs[step, :rows] = token_B, logprob_B
    turn[:rows] += 1
    state["drawn"][:rows] += 1
    # A row that has drawn all it may stays where it is, since there is no block for what would
    # follow, with the token that stands there: the next turn begins with those keys and values.
    state["left"][:rows] -= 1
    goes_on_B = state["left"][:rows] > 0
    state["position"][:rows] += goes_on_B
    state["token"][:rows] = torch.where(goes_on_B, token_B, state["token"][:rows])

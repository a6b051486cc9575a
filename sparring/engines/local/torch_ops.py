"""The pieces of a forward pass in plain torch, for devices without Triton's kernels. Each does what
its namesake in kernels.py does.

Shapes: N tokens, H hidden, D head, Q query heads, K key heads.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Rope = tuple[Tensor, Tensor]  # cosines and signed sines, each N × 1 × D


def add_norm(x_NH: Tensor, delta_NH: Tensor | None, weight_H: Tensor, eps: float) -> Tensor:
    """The RMS norm of x, after adding delta to x in place."""
    if delta_NH is not None:
        x_NH.add_(delta_NH)
    return norm(x_NH, weight_H, eps)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def silu_times(both_N2I: Tensor) -> Tensor:
    """silu(first half) × second half."""
    gate, up = both_N2I.chunk(2, -1)
    return F.silu(gate) * up


def rope_at(rope: tuple[Tensor, Tensor], position_N: Tensor) -> Rope:
    """Cosines and sines of these positions; the minus of a rotation is in the sines already."""
    cos, sin = (table[position_N][:, None] for table in rope)
    half = sin.shape[-1] // 2
    return cos, torch.cat([-sin[..., :half], sin[..., half:]], -1)


def turn(
    qkv_NX: Tensor, heads: int, width: int, rope: Rope, norms: tuple[Tensor, Tensor] | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Queries N×Q×D, keys and values N×K×D of `heads` key heads; the first two turned to their
    positions."""
    all_NYD = qkv_NX.view(len(qkv_NX), -1, width)
    turning, values = all_NYD[:, :-heads], all_NYD[:, -heads:]
    if norms is not None:
        queries, keys = turning[:, :-heads], turning[:, -heads:]
        turning = torch.cat([norm(queries, norms[0], eps), norm(keys, norms[1], eps)], 1)
    cos, sin = rope
    turned = turning * cos + turning.roll(width // 2, -1) * sin
    return turned[:, :-heads], turned[:, -heads:], values

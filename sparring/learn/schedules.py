"""How the learner's coefficients, and the weights that `learn.kl` measures the divergence to, move
over a run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from sparring.run.config import LearnConfig


def learning_rate(config: LearnConfig, position: int, of: int) -> float:
    """Linear warm-up, then constant, or linear or cosine decay to the floor."""
    warm = min(1.0, (position + 1) / max(1, config.warmup))
    progress, floor = min(1.0, position / max(1, of)), config.lr_floor
    decay = 1.0
    if config.schedule == "linear":
        decay = max(floor, 1 - progress)
    elif config.schedule == "cosine":
        decay = floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2
    return config.lr * warm * decay


def linear(begin: float, end: float | None, progress: float) -> float:
    """A coefficient that moves in a straight line from `begin` to `end`, if there is one."""
    return begin if end is None else begin + (end - begin) * progress


def follow_rate(config: LearnConfig, updates: int) -> float:
    """How much of the way the reference goes to the policy's weights after an update; `updates`
    counts those before it."""
    if config.reference == "ema":
        return config.reference_rate
    if config.reference == "average":  # of the first weights and those after each update
        return 1 / (updates + 2)
    return float((updates + 1) % config.reference_every == 0)


@torch.no_grad()
def follow(reference: Mapping[str, Tensor], weights: Mapping[str, Tensor], rate: float) -> None:
    """Move the reference's float32 weights by `rate` of the way to the policy's."""
    for key, own in reference.items():
        own.lerp_(weights[key], rate) if rate < 1 else own.copy_(weights[key])


@torch.no_grad()
def copy_rounded(reference: Mapping[str, Tensor], parameters: Mapping[str, Tensor]) -> None:
    """Write float32 weights to parameters of any dtype; those that are their own stay."""
    for key, own in reference.items():
        if parameters[key] is not own:
            parameters[key].copy_(own)

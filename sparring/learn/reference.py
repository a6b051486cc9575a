"""The policy that `learn.kl` measures the divergence to: how its weights follow the learner's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sparring.run.config import LearnConfig


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

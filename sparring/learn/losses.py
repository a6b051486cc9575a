"""Losses as pure functions of tensors. Names are those everyone knows from TRL, and the values
match it on the same tensors.

Shapes: N tokens to learn from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate per token, and whether it holds the token back. The clip leaves the
    ratio of a token that was bad unbounded; `cap` is the most that it counts for."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    counted = ratio if cap is None else ratio.clamp(max=cap)
    loss = -torch.min(counted * advantages, clipped * advantages)
    held = ((ratio < 1 - clip_low) & (advantages < 0)) | (
        (ratio > 1 + clip_high) & (advantages > 0)
    )
    if cap is not None:
        held = held | (ratio > cap)
    return loss, held


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy ‖ reference) from the sampled tokens: unbiased, ≥ 0."""
    gap = reference_logprobs - logprobs
    return gap.exp() - gap - 1


@dataclass(frozen=True)
class Totals:
    """What one optimizer step is made of, across its micro-batches."""

    sequences: int
    tokens: int
    micro_batches: int = 1
    max_tokens: int = 1  # the longest reply allowed, Dr. GRPO's constant


def token_weights(sample_N: Tensor, kind: Aggregation, totals: Totals) -> Tensor:
    """Each token's weight, so that the step's loss is the plain sum of weight × loss.
    `sample_N` says which sample each token belongs to."""
    ones = torch.ones_like(sample_N, dtype=torch.float32)
    if kind == "grpo":
        # At most as many samples as tokens; a count of them would make the host wait.
        lengths = torch.zeros_like(ones).index_add(0, sample_N, ones)[sample_N]
        return ones / lengths / totals.sequences
    if kind == "bnpo":
        return ones / len(sample_N) / totals.micro_batches
    if kind == "dr_grpo":
        return ones / (totals.sequences * totals.max_tokens)
    return ones / max(totals.tokens, 1)

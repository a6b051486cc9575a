"""Policy losses and off-policy corrections as pure functions of tensors, named as TRL and verl name
them; values and gradients equal theirs on the same tensors.

Shapes: N tokens to learn from. `sample_N` says which sequence each token belongs to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from sparring.run.learning import LearnConfig

Aggregation = Literal["grpo", "bnpo", "dr_grpo", "dapo"]
_LARGEST = 20.0  # of a log ratio's absolute value, before it is exponentiated
_EPSILON = 1e-8


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate per token, and whether the clip removes the token's gradient. The
    clip leaves the ratio unbounded where the advantage is negative; `cap` bounds it."""
    ratio = (logprobs - old_logprobs).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    capped = ratio if cap is None else ratio.clamp(max=cap)
    loss = -torch.min(capped * advantages, clipped * advantages)
    no_gradient = ((ratio < 1 - clip_low) & (advantages < 0)) | (
        (ratio > 1 + clip_high) & (advantages > 0)
    )
    if cap is not None:
        no_gradient = no_gradient | (ratio > cap)
    return loss, no_gradient


def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sample_N: Tensor,
    clip_low: float,
    clip_high: float,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """PPO's surrogate with the sequence's ratio, the geometric mean of its tokens' ratios, in place
    of each token's (GSPO). Its gradient is each token's own, so tokens may differ in advantage."""
    sequence_N = over_sequence((logprobs - old_logprobs).detach(), sample_N, "mean")
    log_ratio_N = (logprobs - logprobs.detach() + sequence_N).clamp(max=10.0)
    zeros = torch.zeros_like(log_ratio_N)
    return clipped_policy_loss(log_ratio_N, zeros, advantages, clip_low, clip_high, cap)


def cispo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """The log-likelihood weighted with the clipped ratio, a constant (CISPO): a token beyond the
    clip keeps a gradient. Also which tokens are beyond it."""
    ratio = _ratio(logprobs, old_logprobs)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -clipped * advantages * logprobs, clipped != ratio


def sapo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    temperature_pos: float,
    temperature_neg: float,
) -> tuple[Tensor, Tensor]:
    """A sigmoid of the ratio in place of the clip (SAPO): the gradient fades as the ratio leaves 1,
    faster for negative advantages. No token is cut off."""
    ratio = (logprobs - old_logprobs).clamp(-_LARGEST, _LARGEST).exp()
    temperature = torch.full_like(ratio, temperature_neg)
    temperature = temperature.masked_fill(advantages > 0, temperature_pos)
    gate = torch.sigmoid(temperature * (ratio - 1)) * 4 / temperature
    return -gate * advantages, torch.zeros_like(ratio, dtype=torch.bool)


def dppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    cap: float | None = None,
    divergence: Literal["tv", "kl"] = "tv",
) -> tuple[Tensor, Tensor]:
    """The log-likelihood weighted with the ratio, a constant, where the token's probability has not
    moved further in its advantage's direction than the clip allows; nothing where it has (DPPO).
    Distance is the total variation, or the divergence, of token against all other tokens."""
    ratio = _ratio(logprobs, old_logprobs).clamp(max=torch.inf if cap is None else cap)
    p, old_p = logprobs.detach().exp(), old_logprobs.exp()
    if divergence == "tv":
        too_high, too_low = p - old_p > clip_high, old_p - p > clip_low
    else:
        others = ((1 - old_p + _EPSILON) / (1 - p + _EPSILON)).log()
        kl = old_p * (old_logprobs - logprobs.detach()) + (1 - old_p) * others
        too_high, too_low = (kl > clip_high) & (p > old_p), (kl > clip_low) & (p < old_p)
    masked = torch.where(advantages > 0, too_high, too_low)
    return -advantages * ratio * logprobs * ~masked, masked


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    sample_N: Tensor,
    config: LearnConfig,
) -> tuple[Tensor, Tensor]:
    """The loss that `loss_mode` names, per token, and which tokens its clip or mask acts on."""
    given = (logprobs, old_logprobs, advantages)
    low, high, cap = config.clip_low, config.clip_high, config.ratio_cap
    match config.loss_mode:
        case "gspo":
            return gspo_loss(*given, sample_N, low, high, cap)
        case "cispo":
            return cispo_loss(*given, low, high)
        case "sapo":
            return sapo_loss(*given, config.sapo_temperature_pos, config.sapo_temperature_neg)
        case "dppo_tv" | "dppo_kl":
            kind: Literal["tv", "kl"] = "tv" if config.loss_mode == "dppo_tv" else "kl"
            return dppo_loss(*given, low, high, cap, kind)
        case _:
            return clipped_policy_loss(*given, low, high, cap)


def importance_weights(
    log_ratio: Tensor, sample_N: Tensor, mode: str, clip_min: float | None, clip_max: float | None
) -> Tensor:
    """Weights that correct samples of an engine whose distribution is not the learner's;
    `log_ratio` is the learner's logprob less the engine's. `token_truncate` is TIS, `token_mask`
    IcePop; `sequence_` takes the ratio of the whole sequence."""
    level, bound = mode.split("_")
    if level == "sequence":
        log_ratio = over_sequence(log_ratio, sample_N, "sum")
    ratio = log_ratio.clamp(-_LARGEST, _LARGEST).exp()
    if bound == "truncate":
        return ratio.clamp(clip_min, clip_max)
    return ratio * _between(ratio, clip_min, clip_max)


def rejection_mask(
    log_ratio: Tensor, sample_N: Tensor, kind: str, clip_min: float | None, clip_max: float
) -> Tensor:
    """Which tokens to keep, by the divergence of engine and learner: `token_`, `seq_sum_`,
    `seq_mean_` or `seq_max_`, of `k1` (bounds are ratios), `k2` or `k3` (an upper bound)."""
    level, estimate = kind.rsplit("_", 1)
    log_ratio = log_ratio.clamp(-_LARGEST, _LARGEST)
    if estimate == "k1":
        value = -log_ratio
    elif estimate == "k2":
        value = log_ratio**2 / 2
    else:
        value = log_ratio.exp() - 1 - log_ratio
    if level != "token":
        value = over_sequence(value, sample_N, level.removeprefix("seq_"))
    if estimate == "k1":
        return _between(value, clip_min and math.log(clip_min), math.log(clip_max))
    return value <= clip_max


def off_policy_mask(
    log_ratio: Tensor, advantages: Tensor, sample_N: Tensor, threshold: float
) -> Tensor:
    """Which tokens to keep: all but those of sequences that are worse than expected and whose mean
    log ratio of engine to policy is above the threshold."""
    return (advantages >= 0) | (over_sequence(-log_ratio, sample_N, "mean") <= threshold)


def over_sequence(value_N: Tensor, sample_N: Tensor, reduce: str) -> Tensor:
    """Each token's sequence's sum, mean or maximum."""
    # At most as many samples as tokens; a count of them would make the host wait.
    if reduce == "max":
        lowest = torch.full_like(value_N, -torch.inf)
        return lowest.scatter_reduce(0, sample_N, value_N, "amax")[sample_N]
    sums = torch.zeros_like(value_N).index_add(0, sample_N, value_N)[sample_N]
    return sums if reduce == "sum" else sums / _lengths(sample_N)


def kl_k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Schulman's k3 estimate of KL(policy ‖ reference) from the sampled tokens: unbiased, ≥ 0."""
    gap = reference_logprobs - logprobs
    return gap.exp() - gap - 1


def _ratio(logprobs: Tensor, old_logprobs: Tensor) -> Tensor:
    """The importance ratio as a constant."""
    return (logprobs - old_logprobs).detach().clamp(-_LARGEST, _LARGEST).exp()


def _between(value: Tensor, low: float | None, high: float | None) -> Tensor:
    above = value >= (-torch.inf if low is None else low)
    return above & (value <= (torch.inf if high is None else high))


def _lengths(sample_N: Tensor) -> Tensor:
    ones = torch.ones_like(sample_N, dtype=torch.float32)
    return torch.zeros_like(ones).index_add(0, sample_N, ones)[sample_N]


@dataclass(frozen=True)
class Totals:
    """Sizes of one optimizer step, across its micro-batches."""

    sequences: int
    tokens: int
    micro_batches: int = 1
    max_tokens: int = 1  # the longest reply allowed, Dr. GRPO's constant


def token_weights(sample_N: Tensor, kind: Aggregation, totals: Totals) -> Tensor:
    """Each token's weight, so that the step's loss is the plain sum of weight × loss."""
    ones = torch.ones_like(sample_N, dtype=torch.float32)
    if kind == "grpo":
        return ones / _lengths(sample_N) / totals.sequences
    if kind == "bnpo":
        return ones / len(sample_N) / totals.micro_batches
    if kind == "dr_grpo":
        return ones / (totals.sequences * totals.max_tokens)
    return ones / max(totals.tokens, 1)

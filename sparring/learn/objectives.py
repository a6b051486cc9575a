"""What a step of the learner lowers: pure functions of logprobs. Each gives a sum that is weighted
so that the micro-batches of a step add up, and the numbers to show of it.

Shapes: N tokens to learn from, P pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.learn.batches import Batch
from sparring.learn.critic import clipped_value_loss
from sparring.learn.losses import (
    Totals,
    importance_weights,
    kl_k3,
    off_policy_mask,
    policy_loss,
    rejection_mask,
    token_weights,
)
from sparring.run.config import LearnConfig

# Numbers stay on the device until the fit is done: reading one makes the host wait for it.
Stats = dict[str, Tensor]
Result = tuple[Tensor, Stats]


def sums_of(parts: Sequence[tuple[Stats, float]]) -> Stats:
    """The numbers of several micro-batches, each as often as it counts."""
    sums: Stats = {}
    for stats, counts in parts:
        for name, value in stats.items():
            sums[name] = sums[name] + value * counts if name in sums else value * counts
    return sums


def means_of(rows: Sequence[Stats]) -> tuple[dict[str, float], int]:
    """The means of several steps' numbers, read in one go, and how many steps there were. A step
    whose gradient was not finite moved nothing and is left out."""
    if not rows:
        return {}, 0
    names = list(rows[0])
    table = torch.stack([torch.stack([row[name].double() for name in names]) for row in rows])
    kept = [row for row in table.tolist() if math.isfinite(row[names.index("grad_norm")])]
    columns = zip(*kept, strict=True)
    return {name: sum(own) / len(kept) for name, own in zip(names, columns, strict=False)}, len(
        kept
    )


def _sum(numbers: Tensor) -> Tensor:
    """A sum to show, in float64: in float32 the last digits of a loss, whose terms nearly cancel,
    would go by the order of the tokens."""
    return numbers.detach().sum(dtype=torch.float64)


def policy_objective(
    logprobs: Tensor,
    entropy: Tensor,
    batch: Batch,
    totals: Totals,
    config: LearnConfig,
    *,
    reference: Tensor | None = None,
    values: Tensor | None = None,
    kl_weight: float = 0.0,
    vocabulary: int = 1,
    entropy_bonus: float = 0.0,
) -> Result:
    """The policy loss of the advantages, corrected for what the engine sampled otherwise, plus the
    divergence to the reference, less the entropy bonus, plus the critic's loss where there is one.
    """
    old = old_logprobs(logprobs, batch, config)
    losses, clipped = policy_loss(logprobs, old, batch.advantage_N, batch.sample_N, config)
    per_token = 1 / max(1, totals.tokens)
    stats = {
        "canary": _sum((logprobs.detach() - batch.logprob_N).abs()) * per_token,
        "entropy": _sum(entropy) * per_token,
        "clip_rate": _sum(clipped) * per_token,
        "moved": _sum(kl_k3(batch.logprob_N, logprobs.detach())) * per_token,
    }
    weight = correction(logprobs.detach(), old, batch, config)
    if weight is not None:
        losses = losses * weight
        stats["importance_weight"] = _sum(weight) * per_token
        stats["masked_rate"] = _sum(weight == 0) * per_token
    if kl_weight > 0:
        if reference is None:  # uniform: the divergence is known exactly
            kl = _choices(batch, vocabulary).log() - entropy
        else:
            kl = kl_k3(logprobs, reference)
            if config.kl_correction:
                kl = kl * (logprobs - old).exp()
        losses = losses + kl_weight * kl
        stats["kl"] = _sum(kl) * per_token
    if values is not None:
        off, _ = clipped_value_loss(values, batch.value_N, batch.return_N, config.value_clip)
        losses = losses + config.value_weight * off
        stats["value_loss"] = _sum(off) * per_token
    if entropy_bonus > 0:
        losses = losses - entropy_bonus * entropy
    weighted = losses * token_weights(batch.sample_N, config.aggregation, totals)
    return weighted.sum(), {"loss": _sum(weighted), **stats}


def _choices(batch: Batch, vocabulary: int) -> Tensor:
    """How many tokens each one was drawn from."""
    whole_N = torch.full_like(batch.logprob_N, vocabulary)
    if batch.allowed_NA is None:
        return whole_N
    count_N = (batch.allowed_NA >= 0).sum(-1)
    return torch.where(count_N > 0, count_N, whole_N)


def old_logprobs(logprobs: Tensor, batch: Batch, config: LearnConfig) -> Tensor:
    """What the loss takes its ratio against: the engine's logprobs or, where the two are kept
    apart, the learner's own at the start of the fit; in its only step those are the present ones.
    """
    if not config.corrects:
        return batch.logprob_N
    return logprobs.detach() if batch.old_logprob_N is None else batch.old_logprob_N


def correction(logprobs: Tensor, old: Tensor, batch: Batch, config: LearnConfig) -> Tensor | None:
    """Each token's weight for being sampled by another distribution than the learner's, 0 where it
    is rejected; None where nothing is corrected."""
    log_ratio, weight = old - batch.logprob_N, None
    if config.importance_sampling_mode is not None:
        weight = importance_weights(
            log_ratio,
            batch.sample_N,
            config.importance_sampling_mode,
            config.importance_sampling_clip_min,
            config.importance_sampling_clip_max,
        )
    masks = []
    if config.rollout_rs is not None:
        bounds = config.rollout_rs_threshold
        low, high = bounds if isinstance(bounds, tuple) else (None, bounds)
        masks.append(rejection_mask(log_ratio, batch.sample_N, config.rollout_rs, low, high))
    if config.off_policy_mask_threshold is not None:
        moved = logprobs - batch.logprob_N
        given = (moved, batch.advantage_N, batch.sample_N, config.off_policy_mask_threshold)
        masks.append(off_policy_mask(*given))
    for mask in masks:
        weight = mask.float() if weight is None else weight * mask
    return weight


def likelihood_objective(
    logprobs: Tensor, batch: Batch, totals: Totals, config: LearnConfig
) -> Result:
    """The negative log-likelihood of demonstrations; a token's advantage is its weight."""
    weights = token_weights(batch.sample_N, config.aggregation, totals)
    losses = -(logprobs * batch.advantage_N * weights)
    per_token = 1 / max(1, totals.tokens)
    nats = -_sum(logprobs) * per_token
    return losses.sum(), {"loss": _sum(losses), "nats_per_token": nats}


def preference_objective(
    logprobs: Tensor, batch: Batch, totals: Totals, config: LearnConfig
) -> Result:
    """DPO. The batch holds chosen and rejected in turn, with the reference's logprobs."""
    gained = logprobs.new_zeros(batch.samples)
    gained = gained.index_add(0, batch.sample_N, logprobs - batch.logprob_N)
    chosen_P, rejected_P = config.beta * gained[0::2], config.beta * gained[1::2]
    per_pair = 1 / max(1, totals.sequences)
    losses = -F.logsigmoid(chosen_P - rejected_P)
    return losses.sum() * per_pair, {
        "loss": _sum(losses) * per_pair,
        "accuracy": _sum(chosen_P > rejected_P) * per_pair,
        "margin": _sum(chosen_P - rejected_P) * per_pair,
        "chosen": _sum(chosen_P) * per_pair,
        "rejected": _sum(rejected_P) * per_pair,
    }

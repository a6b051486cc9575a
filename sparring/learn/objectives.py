"""What a step of the learner lowers: pure functions of logprobs. Each gives a sum that is weighted
so that the micro-batches of a step add up, and the numbers to show of it.

Shapes: N tokens to learn from, P pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.learn.batches import Batch
from sparring.learn.critic import clipped_value_loss
from sparring.learn.losses import Totals, clipped_policy_loss, kl_k3, token_weights
from sparring.run.config import LearnConfig

# Numbers stay on the device until the step is done: reading one makes the host wait for it.
Found = tuple[Tensor, dict[str, Tensor]]


def sums_of(found: Sequence[tuple[dict[str, Tensor], float]]) -> dict[str, float]:
    """The numbers of several micro-batches, each as often as it counts, read in one go."""
    if not found:
        return {}
    names = list(found[0][0])
    rows = torch.stack([torch.stack([stats[name] for name in names]) for stats, _ in found])
    sums = dict.fromkeys(names, 0.0)
    for row, (_, counts) in zip(rows.tolist(), found, strict=True):
        for name, value in zip(names, row, strict=True):
            sums[name] += value * counts
    return sums


def _sum(numbers: Tensor) -> Tensor:
    """A sum to show, with room for digits when it is scaled and added up."""
    return numbers.detach().sum().double()


def policy_objective(
    logprobs: Tensor,
    entropy: Tensor,
    batch: Batch,
    totals: Totals,
    config: LearnConfig,
    *,
    reference: Tensor | None = None,
    values: Tensor | None = None,
    entropy_bonus: float = 0.0,
) -> Found:
    """The clipped surrogate of the advantages, a pull to the reference, a bonus for entropy, and,
    where there is a critic, what its values are off by."""
    losses, held = clipped_policy_loss(
        logprobs,
        batch.logprob_N,
        batch.advantage_N,
        config.clip_low,
        config.clip_high,
        config.ratio_cap,
    )
    per_token = 1 / max(1, totals.tokens)
    stats = {
        "canary": _sum((logprobs.detach() - batch.logprob_N).abs()) * per_token,
        "entropy": _sum(entropy) * per_token,
        "clip_rate": _sum(held) * per_token,
        "moved": _sum(kl_k3(batch.logprob_N, logprobs.detach())) * per_token,
    }
    if reference is not None:
        kl = kl_k3(logprobs, reference)
        if config.kl_correction:
            kl = kl * (logprobs - batch.logprob_N).exp()
        losses = losses + config.kl * kl
        stats["kl"] = _sum(kl) * per_token
    if values is not None:
        off, _ = clipped_value_loss(values, batch.value_N, batch.return_N, config.value_clip)
        losses = losses + config.value_weight * off
        stats["value_loss"] = _sum(off) * per_token
    if entropy_bonus > 0:
        losses = losses - entropy_bonus * entropy
    loss = (losses * token_weights(batch.sample_N, config.aggregation, totals)).sum()
    return loss, {"loss": _sum(loss), **stats}


def likelihood_objective(
    logprobs: Tensor, batch: Batch, totals: Totals, config: LearnConfig
) -> Found:
    """The negative log-likelihood of what is shown; a token's advantage is its weight."""
    weights = token_weights(batch.sample_N, config.aggregation, totals)
    loss = -(logprobs * batch.advantage_N * weights).sum()
    per_token = 1 / max(1, totals.tokens)
    nats = -_sum(logprobs) * per_token
    return loss, {"loss": _sum(loss), "nats_per_token": nats}


def preference_objective(
    logprobs: Tensor, batch: Batch, totals: Totals, config: LearnConfig
) -> Found:
    """DPO. The batch holds chosen and rejected in turn, with the reference's logprobs."""
    gained = logprobs.new_zeros(batch.samples)
    gained = gained.index_add(0, batch.sample_N, logprobs - batch.logprob_N)
    chosen_P, rejected_P = config.beta * gained[0::2], config.beta * gained[1::2]
    per_pair = 1 / max(1, totals.sequences)
    loss = -F.logsigmoid(chosen_P - rejected_P).sum() * per_pair
    return loss, {
        "loss": _sum(loss),
        "accuracy": _sum(chosen_P > rejected_P) * per_pair,
        "margin": _sum(chosen_P - rejected_P) * per_pair,
        "chosen": _sum(chosen_P) * per_pair,
        "rejected": _sum(rejected_P) * per_pair,
    }

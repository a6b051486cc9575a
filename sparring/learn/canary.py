"""Checks that samples come from the weights they claim: sampled logprobs against a second pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from sparring.core.types import Episode, Sample, members
from sparring.credit.samples import to_samples
from sparring.learn.batches import by_budget, collate

if TYPE_CHECKING:
    from sparring.learn.learner import Learner
    from sparring.models.policies import Policies


class CanaryError(RuntimeError):
    """The weights that sampled are not the weights that learn."""


def check_canary(gap: float, limit: float, name: str) -> None:
    if not gap <= limit:
        raise CanaryError(
            f"the logprobs that {name!r} was sampled with differ from the learner's by "
            f"{gap:.4f} nats per token (limit {limit}): the engine speaks with other "
            "weights than the learner moves. Was the policy published to the engine after the "
            "last update, and do both use the same dtype and temperature?"
        )


def spoken_gaps(
    learner: Learner, sampler: Policies, episodes: Sequence[Episode], limit: float
) -> dict[str, float]:
    """For each policy that learns, how far its sampled logprobs are from those of the weights that
    spoke, over one micro-batch of its turns. For games that are learned from when the learner's own
    weights have moved on, so that it cannot tell."""
    fair = [episode for episode in episodes if episode.void is None]
    samples = to_samples(fair, [[0.0] * len(episode.turns) for episode in fair])
    gaps = {}
    for name in learner.optimizers:
        mine = [sample for sample in samples if sample.policy == name and any(sample.mask)]
        if mine:
            gaps[name] = _gap(learner, sampler, name, mine)
            check_canary(gaps[name], limit, name)
    return gaps


@torch.no_grad()
def _gap(learner: Learner, sampler: Policies, name: str, samples: list[Sample]) -> float:
    micro = by_budget(samples, learner.budget)[0]
    read = [sample for lesson in micro for sample in members(lesson)]
    batch = collate(read, sampler.tokenizer.pad_token_id, sampler.device)
    with sampler.using(name) as model:
        logprobs, _ = learner.logprobs(model, batch)
    return float((logprobs - batch.logprob_N).abs().mean())

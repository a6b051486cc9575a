"""Checks that samples come from the weights they claim: sampled logprobs against a second pass."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from sparring.core.types import Episode
from sparring.credit.samples import to_samples
from sparring.learn.batches import by_budget
from sparring.learn.scoring import score_logprobs

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
            micro = by_budget(mine, learner.budget)[0]
            gaps[name] = fmean(
                abs(logprob - sampled)
                for sample, logprobs in score_logprobs(learner, name, micro, sampler)
                for t, (logprob, sampled) in enumerate(zip(logprobs, sample.logprobs, strict=True))
                if t and sample.mask[t]
            )
            check_canary(gaps[name], limit, name)
    return gaps

"""Scores of the learned tokens outside a step: reference and old logprobs, a critic's values; and
whether samples come from the weights they claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparring.core.types import Episode, Lesson, Sample, members
from sparring.credit.samples import to_samples
from sparring.learn.batches import Batch, by_budget, collate

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


@torch.no_grad()
def score_tokens(
    learner: Learner,
    policy: str,
    lessons: Sequence[Lesson],
    score: Callable[[Any, Batch], Tensor],
    policies: Policies | None = None,
) -> Iterator[tuple[Sample, list[float]]]:
    """What `score` gives with a policy's weights for each learned token, sample by sample; the
    policy is the learner's own or, where they are given, one of others."""
    policies = policies or learner.policies
    for micro in by_budget(lessons, learner.budget):
        read = [sample for lesson in micro for sample in members(lesson)]
        batch = collate(read, policies.home(policy).tokenizer.pad_token_id, policies.device)
        with policies.using(policy) as model:
            score_N = score(model, batch)
        by_sample: list[list[float]] = [[] for _ in read]
        for i, number in zip(batch.sample_N.tolist(), score_N.tolist(), strict=True):
            by_sample[i].append(number)
        yield from zip(read, by_sample, strict=True)


def score_logprobs(
    learner: Learner, policy: str, lessons: Sequence[Lesson], policies: Policies | None = None
) -> Iterator[tuple[Sample, list[float]]]:
    """A policy's logprob of each token, 0 where nothing is learned."""

    def logprobs(model: Any, batch: Batch) -> Tensor:
        return learner.logprobs(model, batch)[0]

    for sample, learned in score_tokens(learner, policy, lessons, logprobs, policies):
        yield sample, at_learned(sample, iter(learned))


def at_learned(sample: Sample, numbers: Iterator[float]) -> list[float]:
    """The next numbers at the tokens that are learned from, 0 elsewhere; the first token follows
    nothing, and is never learned."""
    return [next(numbers) if t and masked else 0.0 for t, masked in enumerate(sample.mask)]

"""Scores of the learned tokens outside a step: reference and old logprobs, a critic's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sparring.core.types import Lesson, Sample, members
from sparring.learn.batches import Batch, by_budget, collate

if TYPE_CHECKING:
    from sparring.learn.learner import Learner
    from sparring.models.policies import Policies


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

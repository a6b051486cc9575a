"""A learner for policies on base models of their own: one for each base, which answer as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sparring.core.errors import ConfigError
from sparring.core.types import Lesson, Sample
from sparring.learn.learner import Learner
from sparring.models.begin import begin_with, check_names
from sparring.models.multi_base import ManyPolicies
from sparring.models.trained import base_name
from sparring.run import rank
from sparring.run.config import Config, LearnConfig


class ManyLearners(Learner):
    """A learner for each base; lessons, state and critics go by the policy's name."""

    def __init__(self, policies: ManyPolicies, learners: Sequence[Learner]) -> None:
        self.policies, self.learners = policies, list(learners)

    @property
    def optimizers(self) -> dict[str, Any]:  # type: ignore[override]
        return {name: o for learner in self.learners for name, o in learner.optimizers.items()}

    @property
    def lr_scale(self) -> float:
        return self.learners[0].lr_scale

    @lr_scale.setter
    def lr_scale(self, scale: float) -> None:
        for learner in self.learners:
            learner.lr_scale = scale

    def fit(
        self, lessons: Sequence[Lesson], iteration: int, iterations: int = 1
    ) -> dict[str, float]:
        stats: dict[str, float] = {}
        for learner in self.learners:
            # A learner of one policy leaves its name out, and here it has others beside it.
            alone = next(iter(learner.optimizers)) if len(learner.optimizers) == 1 else ""
            prefix = f"learn/{alone}/" if alone and len(self.optimizers) > 1 else "learn/"
            own = learner.fit(lessons, iteration, iterations)
            stats |= {prefix + key.removeprefix("learn/"): n for key, n in own.items()}
        return stats

    def restart(self, config: LearnConfig) -> None:
        for learner in self.learners:
            learner.restart(config)

    def values(self, samples: Sequence[Sample]) -> list[list[float]]:
        each = [learner.values(samples) for learner in self.learners]
        return [max(values, key=len) for values in zip(*each, strict=True)]

    def state(self) -> dict[str, dict[str, Tensor]]:
        return {file: part for learner in self.learners for file, part in learner.state().items()}

    def load(self, state: dict[str, dict[str, Tensor]]) -> None:
        for learner in self.learners:
            learner.load(state)


def check_bases(config: Config, learned: Sequence[str]) -> None:
    """What one base takes for granted, several do not have."""
    check_names("bases", config.bases, learned)
    check_names("begin", config.begin, learned)
    if config.engine.kind != "transformers" or config.ray.replicas or rank.size() > 1:
        raise ConfigError("bases of their own are for the embedded engine and one process")
    if config.teach.kind != "credit":
        raise ConfigError(f"teach.kind {config.teach.kind} writes lessons in the ids of one base")


def learners_on_bases(
    config: Config,
    policies: ManyPolicies,
    learned: Sequence[str],
    words: dict[str, Any],
    folder: Path | None,
) -> ManyLearners:
    """A learner for every base that a learning policy is on."""
    learners = []
    for base in dict.fromkeys([config.policy, *config.bases.values()]):
        mine = [name for name in learned if config.bases.get(name, config.policy) == base]
        begin = {name: policy for name, policy in config.begin.items() if name in mine}
        own = policies.bases[base_name(base, config.seed)]
        begin_with(config.model_copy(update={"policy": base, "begin": begin}), own, mine, folder)
        if mine:
            learners.append(Learner(own, mine, config.learn, **words))
    return ManyLearners(policies, learners)

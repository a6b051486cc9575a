"""Policies on base models of their own: each base has its policies and its learner, and all of them
answer as one, by the policy's name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from sparring.core.errors import ConfigError
from sparring.core.types import BASE, Lesson, Sample
from sparring.learn.distributed import world
from sparring.learn.learner import Learner
from sparring.models.begin import begin_with, check_names
from sparring.models.policies import Policies
from sparring.models.trained import base_name, policies_on
from sparring.run.config import Config


class ManyPolicies(Policies):
    """Several base models, of which the first is the run's `policy` and is meant by `base`."""

    def __init__(self, bases: dict[str, Policies], stands: dict[str, str]) -> None:
        """`bases` by what tells them apart; `stands`: which of them a policy is to stand on."""
        self.bases, self.stands = bases, dict(stands)
        self.first = next(iter(bases.values()))
        self.tokenizer, self.device = self.first.tokenizer, self.first.device
        limits = [getattr(p.config, "max_position_embeddings", None) for p in bases.values()]
        self.config = SimpleNamespace(
            max_position_embeddings=min((n for n in limits if n is not None), default=None)
        )

    def home(self, name: str) -> Policies:
        """The policies among which this one is."""
        self.check(name)
        return next(p for p in self.bases.values() if name in p.names())

    def names(self) -> list[str]:
        found = [name for p in self.bases.values() for name in p.names()]
        return [BASE, *(name for name in found if name != BASE)]

    def check(self, name: str) -> None:
        if name not in self.names():
            raise ValueError(f"there is no policy {name!r}; there are: {', '.join(self.names())}")

    def version(self, name: str) -> int:
        return self.home(name).version(name)

    def set_version(self, name: str, version: int) -> None:
        self.home(name).set_version(name, version)

    def using(self, name: str) -> AbstractContextManager[Any]:
        return self.home(name).using(name)

    def add(self, name: str, source: str = BASE) -> None:
        stands = self.bases.get(self.stands.get(name, ""))
        (stands or self.home(source)).add(name, source)

    def remove(self, name: str) -> None:
        self.home(name).remove(name)

    def parameters(self, name: str) -> dict[str, nn.Parameter]:
        return self.home(name).parameters(name)

    def still(self) -> list[nn.Parameter]:
        return [weight for p in self.bases.values() for weight in p.parameters(BASE).values()]


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
            found = learner.fit(lessons, iteration, iterations)
            stats |= {prefix + key.removeprefix("learn/"): n for key, n in found.items()}
        return stats

    def values(self, samples: Sequence[Sample]) -> list[list[float]]:
        each = [learner.values(samples) for learner in self.learners]
        return [max(found, key=len) for found in zip(*each, strict=True)]

    def state(self) -> dict[str, dict[str, Tensor]]:
        return {file: part for learner in self.learners for file, part in learner.state().items()}

    def load(self, state: dict[str, dict[str, Tensor]]) -> None:
        for learner in self.learners:
            learner.load(state)


def check_bases(config: Config, learned: Sequence[str]) -> None:
    """What one base takes for granted, several do not have."""
    check_names("bases", config.bases, learned)
    check_names("begin", config.begin, learned)
    if config.engine.kind != "transformers" or config.ray.replicas or world.size() > 1:
        raise ConfigError("bases of their own are for the embedded engine and one process")
    if config.collect.ahead:
        raise ConfigError("bases of their own are not played ahead: leave collect.ahead out")
    if config.teach.kind != "credit":
        raise ConfigError(f"teach.kind {config.teach.kind} writes lessons in the ids of one base")


def policies_on_bases(config: Config, **options: Any) -> ManyPolicies:
    """The base model of the run and those that `bases` names, each loaded once."""
    folders = dict.fromkeys([config.policy, *config.bases.values()])
    return ManyPolicies(
        {
            base_name(folder, config.seed): policies_on(
                folder, config.learn, seed=config.seed, **options
            )
            for folder in folders
        },
        {name: base_name(folder, config.seed) for name, folder in config.bases.items()},
    )


def learners_on_bases(
    config: Config,
    policies: ManyPolicies,
    learned: Sequence[str],
    words: dict[str, Any],
    folder: Path | None,
) -> ManyLearners:
    """A learner for every base that somebody who learns stands on."""
    found = []
    for base in dict.fromkeys([config.policy, *config.bases.values()]):
        mine = [name for name in learned if config.bases.get(name, config.policy) == base]
        begin = {name: policy for name, policy in config.begin.items() if name in mine}
        own = policies.bases[base_name(base, config.seed)]
        begin_with(config.model_copy(update={"policy": base, "begin": begin}), own, mine, folder)
        if mine:
            found.append(Learner(own, mine, config.learn, **words))
    return ManyLearners(policies, found)

"""Policies on base models of their own, which answer as one by the policy's name."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from sparring.core.errors import ConfigError
from sparring.core.types import BASE
from sparring.models.begin import begin_with, check_names
from sparring.models.policies import Policies, load_policies
from sparring.models.trained import base_name
from sparring.run import rank
from sparring.run.config import Config


class ManyPolicies(Policies):
    """Several base models, of which the first is the run's `policy` and is meant by `base`."""

    def __init__(self, bases: dict[str, Policies], stands: dict[str, str]) -> None:
        """`bases` by what tells them apart; `stands`: which of them a policy is to stand on."""
        self.bases, self.stands = bases, dict(stands)
        self.first = next(iter(bases.values()))
        self.tokenizer, self.device = self.first.tokenizer, self.first.device
        limits = [p.context for p in bases.values()]
        self.config = SimpleNamespace(
            max_position_embeddings=min((n for n in limits if n is not None), default=None)
        )

    def home(self, name: str) -> Policies:
        """The policies among which this one is."""
        self.check(name)
        return next(p for p in self.bases.values() if name in p.names())

    def names(self) -> list[str]:
        names = [name for p in self.bases.values() for name in p.names()]
        return [BASE, *(name for name in names if name != BASE)]

    def check(self, name: str) -> None:
        if name not in self.names():
            raise ValueError(f"there is no policy {name!r}; there are: {', '.join(self.names())}")

    def version(self, name: str) -> int:
        return self.home(name).version(name)

    def set_version(self, name: str, version: int) -> None:
        self.home(name).set_version(name, version)

    def revision(self, name: str) -> tuple[int, int]:
        return self.home(name).revision(name)

    def using(self, name: str) -> AbstractContextManager[Any]:
        return self.home(name).using(name)

    def add(self, name: str, source: str = BASE) -> None:
        stands = self.bases.get(self.stands.get(name, ""))
        (stands or self.home(source)).add(name, source)

    def remove(self, name: str) -> None:
        self.home(name).remove(name)

    def parameters(self, name: str) -> dict[str, nn.Parameter]:
        return self.home(name).parameters(name)

    def frozen_parameters(self) -> list[nn.Parameter]:
        return [weight for p in self.bases.values() for weight in p.frozen_parameters()]


def policies_on_bases(config: Config, **options: Any) -> ManyPolicies:
    """The base model of the run and those that `bases` names, each loaded once."""
    folders = dict.fromkeys([config.policy, *config.bases.values()])
    return ManyPolicies(
        {
            base_name(folder, config.seed): load_policies(
                folder, config.learn, seed=config.seed, **options
            )
            for folder in folders
        },
        {name: base_name(folder, config.seed) for name, folder in config.bases.items()},
    )


def check_bases(config: Config, learned: Sequence[str]) -> None:
    """What one base takes for granted, several do not have."""
    check_names("bases", config.bases, learned)
    check_names("begin", config.begin, learned)
    if config.engine.kind != "transformers" or config.ray.replicas or rank.size() > 1:
        raise ConfigError("bases of their own are for the embedded engine and one process")
    if config.teach.kind != "credit":
        raise ConfigError(f"teach.kind {config.teach.kind} writes lessons in the ids of one base")


def begin_on_bases(
    config: Config, policies: ManyPolicies, learned: Sequence[str], folder: Path | None
) -> None:
    """As `begin_with`, for the policies of every base."""
    for base in dict.fromkeys([config.policy, *config.bases.values()]):
        mine = [name for name in learned if config.bases.get(name, config.policy) == base]
        begin = {name: policy for name, policy in config.begin.items() if name in mine}
        own = config.model_copy(update={"policy": base, "begin": begin})
        begin_with(own, policies.bases[base_name(base, config.seed)], mine, folder)

"""reasoning-gym's data sets as games for one: `gym:NAME`. A task is generated from a seed, and its
own scorer says what an answer is worth, from 0 to 1."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from sparring.bridges.host import Environment, EnvironmentFailed
from sparring.bridges.hosted import PATIENCE, Hosted, class_of, ids
from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.core.types import Task

_WORKER = "sparring.bridges.gym_worker"


@dataclass
class ReasoningGym(Hosted):
    worker: ClassVar[str] = _WORKER
    seats: ClassVar[tuple[str, ...]] = ("solver",)
    cooperative: ClassVar[bool] = True  # evaluated by its own score

    prompt: str = "default"  # which of reasoning-gym's system prompts asks for the answer

    def task(self, seed: int) -> Task:
        return Task(id=str(seed), game=f"gym:{self.env_id}", data={"seed": seed})

    def __post_init__(self) -> None:
        self.settings = {**self.settings, "system_prompt": self.prompt}
        _try(self.env_id, json.dumps(self.settings, sort_keys=True))


def game(name: str) -> type[Game]:
    return class_of(ReasoningGym, name, "reasoning-gym")


@cache
def _try(name: str, settings: str) -> None:
    """Make a task with these settings, which are JSON, before a run begins that has none."""
    environment = Environment(_WORKER, PATIENCE, worker=0)
    try:
        environment.call_now("open", game=name, players=1, seed=0, settings=json.loads(settings))
    except EnvironmentFailed as error:
        raise ConfigError(f"no task can be made with these settings: {error}") from None
    finally:
        environment.close()


def listing() -> dict[str, Any]:
    """Every data set with the first line of its documentation."""
    return ids(_WORKER)

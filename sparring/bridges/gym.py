"""reasoning-gym's data sets as games for one: `gym:NAME`. A task is generated from a seed, and its
own scorer says what an answer is worth, from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from sparring.bridges.hosted import Hosted, class_of, ids
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


def game(name: str) -> type[Game]:
    return class_of(ReasoningGym, name, "reasoning-gym")


def listing() -> dict[str, Any]:
    """Every data set with the first line of its documentation."""
    return ids(_WORKER)

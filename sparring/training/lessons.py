"""How an iteration's episodes become lessons. Most recipes give credit and learn from every turn;
those that work in rounds have a teacher of their own, which keeps what it needs and may leave
the files of its round in a folder."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from sparring.core.types import Episode, Sample
from sparring.credit import Credit
from sparring.credit.gae import Gae
from sparring.credit.samples import to_samples
from sparring.run.config import Config

TEACHERS: dict[str, str] = {  # kind -> module:Class, for kinds other than `credit`
    "rounds": "sparring.pipelines.matching.rounds:Rounds",
    "recorded": "sparring.pipelines.matching.rounds:Recorded",
    "equivalence": "sparring.pipelines.equivalence.teacher:EquivalenceTeacher",
}


class Teacher(Protocol):
    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        """What to learn from this iteration's games, and what to log of it."""
        ...

    def learned(self, policies: Any, iteration: int, run: Path) -> None:
        """The lessons have been learned; the place to leave adapters in the round's folder."""
        ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


class FromCredit:
    """Every trainable turn is a lesson, weighted by its credit."""

    def __init__(self, credit: Credit | Gae) -> None:
        self.credit = credit

    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        return teach(self.credit, episodes), {}

    def learned(self, policies: Any, iteration: int, run: Path) -> None:
        pass

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        pass


def teach(credit: Credit | Gae, episodes: list[Episode]) -> list[Sample]:
    """Episodes to samples. A void episode moves no baseline and trains nobody."""
    fair = [e for e in episodes if e.void is None]
    if isinstance(credit, Gae):  # per token, by a critic's values
        return credit.samples(fair)
    return to_samples(fair, credit.advantages(fair))


def make_teacher(config: Config, credit: Credit | Gae, chat: Any) -> Teacher:
    """The teacher a config names; `chat` is where text becomes ids."""
    if config.teach.kind == "credit":
        return FromCredit(credit)
    where, _, name = TEACHERS[config.teach.kind].partition(":")
    make: Callable[[Config, Credit | Gae, Any], Teacher] = getattr(
        importlib.import_module(where), name
    )
    return make(config, credit, chat)

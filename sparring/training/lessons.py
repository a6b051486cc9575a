"""How an iteration's episodes become lessons. Most recipes give credit and learn from every turn;
those that work in rounds have a teacher of their own, which keeps what it needs and may leave
the files of its round in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.core.types import Episode, Sample
from sparring.credit.credit import Credit
from sparring.run.config import Config


class Teacher:
    """Every trainable turn is a lesson, weighted by its credit; others subclass it. `chat` is where
    text becomes ids."""

    def __init__(self, config: Config, credit: Credit, chat: Any) -> None:
        self.config, self.credit, self.chat = config, credit, chat

    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        """What to learn from this iteration's games, and what to log of it."""
        return teach(self.credit, episodes), {}

    def learned(self, policies: Any, iteration: int, run: Path) -> None:
        """Called when the lessons have been learned: adapters may be left in the round's folder."""

    def state(self) -> dict[str, Any]:
        """What shapes the next iteration's lessons."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""


def teach(credit: Credit, episodes: list[Episode]) -> list[Sample]:
    """Episodes to samples. A void episode moves no baseline and gives no sample."""
    return credit.samples([e for e in episodes if e.void is None])

"""Credit and a teacher that a stranger would write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring import Episode, Sample
from sparring.credit.role_baseline import RoleBaseline
from sparring.credit.samples import to_samples
from sparring.training.lessons import Teacher


class Halved(RoleBaseline):
    """Half of the role-conditioned advantage."""

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        return [[a / 2 for a in turns] for turns in super().advantages(episodes)]


def make_halved(config: Any) -> Halved:
    return Halved(config.decay)


class Winners(Teacher):
    """Only whoever won is learned from."""

    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        fair = [e for e in episodes if e.void is None]
        samples = to_samples(fair, self.credit.advantages(fair))
        won = [s for s in samples if any(a > 0 for a in s.advantages)]
        return won, {"winners": float(len(won))}

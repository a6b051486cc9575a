"""The collapse guard: notices when a run that was well is no longer."""

from __future__ import annotations

import statistics
from typing import Any

from sparring.run.config import GuardConfig

_WATCHED = ("learn/entropy", "rate/invalid", "length/tokens")


class Guard:
    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.history: dict[str, list[float]] = {key: [] for key in _WATCHED}
        self.best_score: float | None = None
        self.best_step: int | None = None
        self.rollbacks = 0

    def watch(self, metrics: dict[str, Any]) -> str | None:
        """Take in one iteration's metrics; the reason if they show a collapse."""
        for key, values in self.history.items():
            if key in metrics:
                values.append(float(metrics[key]))
        if not self.config.enabled or metrics["iteration"] <= self.config.grace:
            return None
        return self._entropy() or self._invalid() or self._length() or self._score(metrics)

    def rolled_back(self) -> None:
        """Begin to watch anew; what was seen belongs to weights that are gone."""
        self.rollbacks += 1
        self.history = {key: [] for key in _WATCHED}

    def improved(self, score: float, step: int) -> bool:
        if self.best_score is not None and score <= self.best_score:
            return False
        self.best_score, self.best_step = score, step
        return True

    def _recent(self, key: str) -> float | None:
        values = self.history[key][-self.config.window :]
        return statistics.fmean(values) if len(values) == self.config.window else None

    def _before(self, key: str) -> list[float]:
        return self.history[key][: -self.config.window]

    def _entropy(self) -> str | None:
        recent = self._recent("learn/entropy")
        if recent is None or recent >= self.config.entropy_floor:
            return None
        return f"entropy fell to {recent:.4f} nats per token (floor {self.config.entropy_floor})"

    def _invalid(self) -> str | None:
        recent, ceiling = self._recent("rate/invalid"), self.config.invalid_ceiling
        # A policy that never played validly has not collapsed, it has not begun.
        was_well = min(self._before("rate/invalid"), default=1.0) < ceiling / 2
        if recent is None or not was_well or recent <= ceiling:
            return None
        return f"{recent:.0%} of the games end in an invalid action (ceiling {ceiling:.0%})"

    def _length(self) -> str | None:
        recent, before = self._recent("length/tokens"), self._before("length/tokens")
        if recent is None or len(before) < self.config.window:
            return None
        usual, factor = statistics.median(before), self.config.length_factor
        if usual / factor <= recent <= usual * factor:
            return None
        return f"replies are {recent:.1f} tokens long where {usual:.1f} was usual"

    def _score(self, metrics: dict[str, Any]) -> str | None:
        score = metrics.get("eval/score")
        if score is None or self.best_score is None:
            return None
        if score >= self.best_score - self.config.score_drop:
            return None
        return f"the evaluation fell to {score:.3f} from its best, {self.best_score:.3f}"

    def state(self) -> dict[str, Any]:
        return {
            "history": self.history,
            "best_score": self.best_score,
            "best_step": self.best_step,
            "rollbacks": self.rollbacks,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.history = {key: list(state["history"][key]) for key in _WATCHED}
        self.best_score, self.best_step = state["best_score"], state["best_step"]
        self.rollbacks = state["rollbacks"]

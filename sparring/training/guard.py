"""The collapse guard: notices when a run that was well is no longer."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sparring.core.types import Episode
from sparring.evaluation.significance import wilson
from sparring.run.config import GuardConfig

# Where several policies learn, each has an entropy of its own.
_WATCHED = re.compile(r"learn/(.+/)?entropy|rate/invalid|length/tokens")
_REASONS = 3  # of void games, that are named
_LENGTH = 300  # characters of each


class Guard:
    def __init__(self, config: GuardConfig) -> None:
        self.config = config
        self.history: dict[str, list[float]] = {}
        self.voids: list[tuple[int, dict[str, int]]] = []  # games and reasons, per iteration
        self.best_score: float | None = None
        self.best_step: int | None = None
        self.former: list[int] = []  # steps that were the best before
        self.rollbacks = 0

    def watch(self, metrics: dict[str, Any]) -> str | None:
        """Take in one iteration's metrics; the reason if they show a collapse."""
        if metrics.get("rate/void") == 1.0:  # replies of no tokens are then replies of nobody
            return None
        for key, value in metrics.items():
            if _WATCHED.fullmatch(key):
                self.history.setdefault(key, []).append(float(value))
        if not self.config.enabled or metrics["iteration"] <= self.config.grace:
            return None
        if reason := self._entropy():
            return reason
        learned = self._rules_learned()
        if learned is None:  # such a policy has not collapsed, it has not begun
            return None
        return self._invalid() or self._length(learned) or self._score(metrics)

    def watch_voids(self, episodes: Sequence[Episode]) -> str | None:
        """Take in one iteration's games; the reasons if surely too many of the window are void.
        Not a collapse, and so not switched off with it: a run of void games learns nothing."""
        reasons = Counter(e.void[:_LENGTH] for e in episodes if e.void is not None)
        self.voids = [*self.voids, (len(episodes), dict(reasons))][-self.config.window :]
        games = sum(count for count, _ in self.voids)
        why: Counter[str] = sum((Counter(each) for _, each in self.voids), Counter())
        # By the lower end of the interval: few games prove little.
        if wilson(why.total(), games)[0] <= self.config.void_ceiling:
            return None
        named = "; ".join(f"{count} × {reason!r}" for reason, count in why.most_common(_REASONS))
        rest = len(why) - _REASONS
        return (
            f"{why.total()} of the last {games} games are void (guard.void_ceiling "
            f"{self.config.void_ceiling:.0%}): {named}" + (f"; {rest} others" if rest > 0 else "")
        )

    def rolled_back(self) -> None:
        """Begin to watch anew; what was seen belongs to weights that are gone."""
        self.rollbacks += 1
        self.history = {}

    def improved(self, score: float, step: int) -> bool:
        if self.best_score is not None and score < self.best_score:  # of equals, the latest
            return False
        if self.best_step is not None:
            self.former = [*self.former, self.best_step]
        self.best_score, self.best_step = score, step
        return True

    def _recent(self, key: str) -> float | None:
        values = self.history.get(key, [])[-self.config.window :]
        return statistics.fmean(values) if len(values) == self.config.window else None

    def _rules_learned(self) -> int | None:
        """Iterations until invalid actions were half of the ceiling or less, over a window: one
        lucky iteration of few games shows nothing."""
        rates, window = self.history.get("rate/invalid", []), self.config.window
        for end in range(window, len(rates) + 1):
            if statistics.fmean(rates[end - window : end]) <= self.config.invalid_ceiling / 2:
                return end
        return None

    def _entropy(self) -> str | None:
        floor = self.config.entropy_floor
        for key in sorted(self.history):
            recent = self._recent(key) if key.endswith("entropy") else None
            if recent is not None and recent < floor:
                whose = key.removeprefix("learn/").removesuffix("entropy").rstrip("/")
                of = f" of {whose!r}" if whose else ""
                return f"entropy{of} fell to {recent:.4f} nats per token (floor {floor})"
        return None

    def _invalid(self) -> str | None:
        recent, ceiling = self._recent("rate/invalid"), self.config.invalid_ceiling
        if recent is None or recent <= ceiling:
            return None
        return f"{recent:.0%} of the games end in an invalid action (ceiling {ceiling:.0%})"

    def _length(self, learned: int) -> str | None:
        """Replies against those since the rules are known: chatter that gave way to an action is
        no collapse."""
        window = self.config.window
        recent = self._recent("length/tokens")
        before = self.history.get("length/tokens", [])[learned - window : -window]
        if recent is None or len(before) < window:
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
        return {name: value for name, value in vars(self).items() if name != "config"}

    def load(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

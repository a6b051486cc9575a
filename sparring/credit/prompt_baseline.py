"""Role-conditioned advantages with a memory for prompts: where a prompt has been met before, the
baseline is what came of it then, and the role's otherwise. In games whose prompts repeat this
takes most of the variance out; where none does, it is the role baseline."""

from __future__ import annotations

from typing import Any

from sparring.credit.role_baseline import RoleBaseline
from sparring.types import Episode, derive


class PromptBaseline:
    """b of a prompt begins at its role's b and moves by 1/(n + prior), at least by `rate`."""

    def __init__(self, decay: float = 0.95, prior: int = 4, rate: float = 0.02) -> None:
        self.roles = RoleBaseline(decay)
        self.prior, self.rate = prior, rate
        self.prompts: dict[str, tuple[float, int]] = {}  # prompt -> baseline, times met

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        return [self._episode(episode) for episode in episodes]

    def _episode(self, episode: Episode) -> list[float]:
        before = dict(self.roles.baselines)
        for seat, reward in episode.rewards.items():
            self.roles.surprise(f"{episode.game}/{seat}", reward)
        found = []
        for turn in episode.turns:
            role, reward = f"{episode.game}/{turn.seat}", episode.rewards[turn.seat]
            key = f"{role}/{derive(turn.prompt_ids or turn.shown):x}"
            baseline, met = self.prompts.get(key, (before.get(role, 0.0), 0))
            found.append(reward - baseline)
            step = max(1 / (met + self.prior), self.rate)
            self.prompts[key] = (baseline + step * (reward - baseline), met + 1)
        return found

    def state(self) -> dict[str, Any]:
        return {**self.roles.state(), "prompts": self.prompts}

    def load(self, state: dict[str, Any]) -> None:
        self.roles.load(state)
        self.prompts = {key: (value, met) for key, (value, met) in state["prompts"].items()}

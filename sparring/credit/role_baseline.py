"""Role-conditioned advantage estimation (SPIRAL): a running mean reward per game and seat."""

from __future__ import annotations

from typing import Any

from sparring.types import Episode


class RoleBaseline:
    """A = R − b, then b ← decay·b + (1 − decay)·R, for each (game, seat) on its own; b starts at 0.

    Subtracted before it is moved, so that no reward is compared with itself.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.baselines: dict[str, float] = {}

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        found = []
        for episode in episodes:
            by_seat = {
                seat: self.surprise(f"{episode.game}/{seat}", reward)
                for seat, reward in episode.rewards.items()
            }
            found.append([by_seat[turn.seat] for turn in episode.turns])
        return found

    def surprise(self, role: str, reward: float) -> float:
        """The reward less the role's baseline, which then moves."""
        baseline = self.baselines.get(role, 0.0)
        self.baselines[role] = self.decay * baseline + (1 - self.decay) * reward
        return reward - baseline

    def state(self) -> dict[str, Any]:
        return {"baselines": self.baselines}

    def load(self, state: dict[str, Any]) -> None:
        self.baselines = dict(state["baselines"])

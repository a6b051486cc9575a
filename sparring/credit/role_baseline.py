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

    def advantages(self, episodes: list[Episode]) -> list[dict[str, float]]:
        found = []
        for episode in episodes:
            mine: dict[str, float] = {}
            # A void game says nothing about a seat, whatever rewards it left behind.
            for seat, reward in episode.rewards.items() if episode.void is None else ():
                key = f"{episode.game}/{seat}"
                baseline = self.baselines.get(key, 0.0)
                mine[seat] = reward - baseline
                self.baselines[key] = self.decay * baseline + (1 - self.decay) * reward
            found.append(mine)
        return found

    def state(self) -> dict[str, Any]:
        return {"baselines": self.baselines}

    def load(self, state: dict[str, Any]) -> None:
        self.baselines = dict(state["baselines"])

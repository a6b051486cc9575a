"""Role-conditioned advantage estimation (SPIRAL): a running mean reward per game and seat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparring.core.types import Episode
from sparring.credit.credit import Credit
from sparring.run.config import CreditConfig


def learners(episodes: Sequence[Episode]) -> set[str]:
    """The policies that learn from these episodes. What an opponent earned says nothing of what a
    learner can expect in that seat, so only their seats move a baseline."""
    return {turn.policy for e in episodes for turn in e.turns if turn.trainable}


def learning_seats(episode: Episode, learned: set[str]) -> set[str]:
    """The seats that learners hold, whether or not they came to speak."""
    holders = {turn.seat: turn.policy for turn in episode.turns} | episode.seating
    return {seat for seat, policy in holders.items() if policy in learned}


class RoleBaseline(Credit):
    """A = R − b, then b ← decay·b + (1 − decay)·R, for each (game, seat) on its own; b starts at 0.

    Subtracted before it is moved, so that no reward is compared with itself.
    """

    def __init__(self, decay: float = 0.95) -> None:
        self.decay = decay
        self.baselines: dict[str, float] = {}

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        learned = learners(episodes)
        found = []
        for episode in episodes:
            by_seat = self.surprises(episode, learned)
            found.append([by_seat[turn.seat] for turn in episode.turns])
        return found

    def surprises(self, episode: Episode, learned: set[str]) -> dict[str, float]:
        """Each seat's reward less its baseline, which then moves if a learner sat there."""
        found = {}
        moving = learning_seats(episode, learned)
        for seat, reward in episode.rewards.items():
            role = f"{episode.game}/{seat}"
            baseline = self.baselines.get(role, 0.0)
            found[seat] = reward - baseline
            if seat in moving:
                self.baselines[role] = self.decay * baseline + (1 - self.decay) * reward
        return found

    def state(self) -> dict[str, Any]:
        return {"baselines": self.baselines}

    def load(self, state: dict[str, Any]) -> None:
        self.baselines = dict(state["baselines"])


def make(config: CreditConfig) -> RoleBaseline:
    return RoleBaseline(config.decay)

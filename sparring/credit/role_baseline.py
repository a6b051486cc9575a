"""Role-conditioned advantage estimation (SPIRAL): a running mean reward per game and seat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparring.core.types import Episode
from sparring.credit.credit import Credit, earned, rewards_to_go
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
        advantages = []
        for episode in episodes:
            before = dict(self.baselines)
            self.update(episode, learned)
            advantages.append(
                [
                    to_go - before.get(f"{episode.game}/{turn.seat}", 0.0)
                    for turn, to_go in zip(episode.turns, rewards_to_go(episode), strict=True)
                ]
            )
        return advantages

    def update(self, episode: Episode, learned: set[str]) -> None:
        """Move the baselines of the seats that learners hold towards what those seats earned."""
        learning = learning_seats(episode, learned)
        for seat in episode.rewards:  # in order: the checkpoint's bytes repeat, too
            if seat in learning:
                role, own = f"{episode.game}/{seat}", earned(episode, seat)
                baseline = self.baselines.get(role, 0.0)
                self.baselines[role] = self.decay * baseline + (1 - self.decay) * own

    def state(self) -> dict[str, Any]:
        return {"baselines": self.baselines}

    def load(self, state: dict[str, Any]) -> None:
        self.baselines = dict(state["baselines"])


def make(config: CreditConfig) -> RoleBaseline:
    return RoleBaseline(config.decay)

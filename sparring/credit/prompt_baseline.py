"""Role-conditioned advantages with a memory for prompts: where a prompt has been met before, the
baseline is what came of it then, and the role's otherwise. In games whose prompts repeat this
takes most of the variance out; where none does, it is the role baseline.

With `trace` below 1 a turn also answers less for what its seat did later: the values of the seat's
later prompts stand in for the reward, as in TD(λ) with a table for a critic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sparring.core.types import Episode, Turn, derive
from sparring.credit.credit import Credit
from sparring.credit.role_baseline import RoleBaseline, learners
from sparring.run.config import CreditConfig

_MOST = 200_000  # prompts remembered; the longest unseen are forgotten


class PromptBaseline(Credit):
    """b of a prompt begins at its role's b and moves by 1/(n + prior), at least by `rate`."""

    def __init__(
        self, decay: float = 0.95, *, trace: float = 1.0, prior: int = 2, rate: float = 0.05
    ) -> None:
        self.roles = RoleBaseline(decay)
        self.trace, self.prior, self.rate = trace, prior, rate
        self.prompts: dict[str, tuple[float, int]] = {}  # prompt -> baseline, times met
        # The games of a group begin with the same prompt, and the next iteration's may too.
        self._digest = lru_cache(maxsize=8192)(lambda ids: f"{derive(list(ids)):x}")

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        learned = learners(episodes)
        return [self._episode(episode, learned) for episode in episodes]

    def _episode(self, episode: Episode, learned: set[str]) -> list[float]:
        """Backwards over each seat's turns: A = δ + trace · A of the next, δ prompt to prompt."""
        keys = [self._key(episode.game, turn) for turn in episode.turns]
        values = [
            self.prompts[key][0]
            if key in self.prompts
            else self.roles.baselines.get(f"{episode.game}/{turn.seat}", 0.0)
            for key, turn in zip(keys, episode.turns, strict=True)
        ]
        self.roles.update(episode, learned)
        advantages = [0.0] * len(keys)
        later: dict[str, tuple[float, float]] = {}  # seat -> value and advantage of its next turn
        for i in reversed(range(len(keys))):
            turn = episode.turns[i]
            following, advantage = later.get(turn.seat, (episode.rewards[turn.seat], 0.0))
            advantages[i] = turn.reward + following - values[i] + self.trace * advantage
            later[turn.seat] = (values[i], advantages[i])
        for turn, key, value, surprise in zip(episode.turns, keys, values, advantages, strict=True):
            if turn.policy in learned:
                self._learn(key, value, surprise)
        return advantages

    def _learn(self, key: str, value: float, surprise: float) -> None:
        known, met = self.prompts.pop(key, (value, 0))
        step = max(1 / (met + self.prior), self.rate)
        self.prompts[key] = (known + step * surprise, met + 1)
        if len(self.prompts) > _MOST:
            self.prompts.pop(next(iter(self.prompts)))

    def _key(self, game: str, turn: Turn) -> str:
        ids = turn.prompt_ids
        digest = self._digest(tuple(ids)) if ids else f"{derive(turn.prompt):x}"
        return f"{game}/{turn.seat}/{digest}"

    def state(self) -> dict[str, Any]:
        return {**self.roles.state(), "prompts": self.prompts}

    def load(self, state: dict[str, Any]) -> None:
        self.roles.load(state)
        self.prompts = {key: (value, met) for key, (value, met) in state["prompts"].items()}


def make(config: CreditConfig) -> PromptBaseline:
    return PromptBaseline(config.decay, trace=config.trace)

"""What every kind of credit is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from sparring.core.types import Episode, Sample
from sparring.credit.samples import to_samples

Values = Callable[[Sequence[Sample]], list[list[float]]]  # one per token that is learned from


def earned(episode: Episode, seat: str) -> float:
    """All that a seat was rewarded with: turn by turn, and by the outcome."""
    return episode.rewards[seat] + sum(turn.reward for turn in episode.turns if turn.seat == seat)


def rewards_to_go(episode: Episode, gamma: float = 1.0) -> list[float]:
    """For each turn, what its seat earned from it on: the turn's own reward, `gamma` times what the
    seat's next turn has, and after its last turn the outcome's reward."""
    to_go = [0.0] * len(episode.turns)
    later: dict[str, float] = {}
    for i in reversed(range(len(to_go))):
        turn = episode.turns[i]
        following = gamma * later[turn.seat] if turn.seat in later else episode.rewards[turn.seat]
        later[turn.seat] = to_go[i] = turn.reward + following
    return to_go


class Credit:
    """Write `advantages`, one for each turn; or `samples`, where tokens differ within a turn."""

    uses_critic: ClassVar[bool] = False  # then the learner has one, and `use_values` is called

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        """For each episode, the advantage of each of its turns."""
        raise NotImplementedError(f"{type(self).__name__} gives no advantages")

    def samples(self, episodes: list[Episode]) -> list[Sample]:
        """What to learn from; none of the episodes is void. The turns keep their advantages."""
        advantages = self.advantages(episodes)
        for episode, values in zip(episodes, advantages, strict=True):
            for turn, value in zip(episode.turns, values, strict=True):
                turn.advantages = [value] if turn.trainable else []
        return to_samples(episodes, advantages)

    def use_values(self, values: Values) -> None:
        """Take the critic's values, where it uses them."""

    def state(self) -> dict[str, Any]:
        """What shapes the next iteration's credit."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""

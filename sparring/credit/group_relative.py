"""Advantages within a group of episodes on the same task: GRPO, Dr. GRPO, leave-one-out."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from sparring.core.types import Episode
from sparring.credit.credit import Credit
from sparring.run.config import CreditConfig

_EPSILON = 1e-4


def centred(
    rewards: list[float], *, leave_one_out: bool = False, scale: bool = False
) -> list[float]:
    """Each reward less the group's mean (or the others' mean), over its deviation if scaled."""
    n = len(rewards)
    if n < 2:
        return [0.0] * n  # nothing to compare with
    mean = sum(rewards) / n
    factor = n / (n - 1) if leave_one_out else 1.0
    spread = statistics.stdev(rewards) + _EPSILON if scale else 1.0
    return [factor * (reward - mean) / spread for reward in rewards]


class GroupRelative(Credit):
    """Games on a task are compared where the same players sat in the same seats: what another
    opponent gave away is nobody's merit. `together`: all seats are one group, for games that are
    won together; otherwise each seat is compared with itself alone."""

    def __init__(
        self, *, leave_one_out: bool = False, scale: bool = False, together: bool = False
    ) -> None:
        self.leave_one_out, self.scale, self.together = leave_one_out, scale, together

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        members: dict[tuple[Any, ...], list[tuple[int, str]]] = defaultdict(list)
        for i, episode in enumerate(episodes):
            if episode.void is None:
                # Only who spoke, and only with themselves: a seat that was never asked, or that
                # another policy held, says nothing of how well this one spoke.
                for seat, policy in {turn.seat: turn.policy for turn in episode.turns}.items():
                    key = (episode.group, policy, tuple(sorted(episode.seating.items())))
                    members[key if self.together else (*key, seat)].append((i, seat))
        by_seat: list[dict[str, float]] = [{} for _ in episodes]
        for group in members.values():
            rewards = [episodes[i].rewards[seat] for i, seat in group]
            values = centred(rewards, leave_one_out=self.leave_one_out, scale=self.scale)
            for (i, seat), value in zip(group, values, strict=True):
                by_seat[i][seat] = value
        return [
            [mine[turn.seat] for turn in episode.turns]
            for episode, mine in zip(episodes, by_seat, strict=True)
        ]


def make(config: CreditConfig) -> GroupRelative:
    return GroupRelative(
        leave_one_out=config.kind == "leave_one_out",
        scale=config.scale,
        together=config.seats == "together",
    )

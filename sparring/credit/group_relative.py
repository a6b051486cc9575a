"""Advantages within a group of episodes on the same task: GRPO, Dr. GRPO, leave-one-out, MaxRL, and
their forms per turn and per agent."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from sparring.core.errors import ConfigError
from sparring.core.types import Episode
from sparring.credit.credit import Credit, earned, rewards_to_go
from sparring.run.config import CreditConfig

Scale = Literal["none", "group", "batch", "mean"]
_EPSILON = 1e-4


def centred(
    rewards: Sequence[float],
    *,
    leave_one_out: bool = False,
    scale: Scale = "none",
    batch: Sequence[float] = (),
) -> list[float]:
    """Each reward less the group's mean (or the others' mean), divided as `scale` says; `batch`
    holds the rewards of all groups."""
    n = len(rewards)
    if n < 2:
        return [0.0] * n  # nothing to compare with
    mean = sum(rewards) / n
    factor = n / (n - 1) if leave_one_out else 1.0
    if scale == "mean":
        if min(rewards) < 0:
            raise ConfigError(
                "credit.scale_rewards=mean is for rewards of 0 and above, and a game gave "
                f"{min(rewards):g}; choose group, batch or none"
            )
        factor /= mean or 1.0
    elif scale != "none":
        factor /= statistics.stdev(batch if scale == "batch" else rewards) + _EPSILON
    if len(set(rewards)) == 1:
        return [0.0] * n  # to the last digit: the mean of equal numbers may be another one
    return [factor * (reward - mean) for reward in rewards]


class _Entry(NamedTuple):
    """One number that is compared within a group, and the turns that its advantage is for."""

    episode: int
    turns: list[int]
    reward: float


class GroupRelative(Credit):
    """Games on a task are compared where the same policies sat in the same seats: a weaker opponent
    is no merit. `together`: all seats are one group, for cooperative games; otherwise each seat is
    compared with itself alone."""

    def __init__(
        self,
        *,
        leave_one_out: bool = False,
        scale: Scale = "none",
        together: bool = False,
        level: Literal["episode", "turn", "agent"] = "episode",
        gamma: float = 1.0,
    ) -> None:
        self.leave_one_out, self.scale, self.together = leave_one_out, scale, together
        self.level, self.gamma = level, gamma

    def advantages(self, episodes: list[Episode]) -> list[list[float]]:
        groups: dict[tuple[Any, ...], list[_Entry]] = defaultdict(list)
        batches: dict[str, list[float]] = defaultdict(list)  # by policy
        for i, episode in enumerate(episodes):
            if episode.void is None:
                for policy, key, entry in self._entries(i, episode):
                    groups[policy, *key].append(entry)
                    batches[policy].append(entry.reward)
        advantages = [[0.0] * len(episode.turns) for episode in episodes]
        for (policy, *_), group in groups.items():
            values = centred(
                [entry.reward for entry in group],
                leave_one_out=self.leave_one_out,
                scale=self.scale,
                batch=batches[policy],
            )
            for entry, value in zip(group, values, strict=True):
                for turn in entry.turns:
                    advantages[entry.episode][turn] = value
        return advantages

    def _entries(self, i: int, episode: Episode) -> list[tuple[str, tuple[Any, ...], _Entry]]:
        """What an episode adds to its groups, with the policy and the rest of the group's key. Only
        seats that spoke: one that was never asked says nothing of how well its policy spoke."""
        to_go = rewards_to_go(episode, self.gamma)
        turns: dict[str, list[int]] = defaultdict(list)
        for number, turn in enumerate(episode.turns):
            turns[turn.seat].append(number)
        entries = []
        for seat, own in turns.items():
            policy = episode.turns[own[-1]].policy
            key: tuple[Any, ...] = (episode.group, tuple(sorted(episode.seating.items())))
            key = key if self.together else (*key, seat)
            total = earned(episode, seat)
            if self.level == "episode":
                entries.append((policy, key, _Entry(i, own, total)))
            elif self.level == "agent":
                entries += [(policy, key, _Entry(i, [t], total)) for t in own]
            else:
                entries += [
                    (policy, (*key, k), _Entry(i, [t], to_go[t])) for k, t in enumerate(own)
                ]
        return entries


def differing(episodes: Sequence[Episode], credit: Credit) -> list[Episode]:
    """The episodes of groups in which some turn that learns did better or worse than others: by
    the advantages that such credit gives or, where credit is of another kind, by what a seat
    earned from its k-th turn on. Void episodes are left out."""
    relative = credit if isinstance(credit, GroupRelative) else GroupRelative(level="turn")
    fair = [episode for episode in episodes if episode.void is None]
    kept = {
        episode.group
        for episode, advantages in zip(fair, relative.advantages(fair), strict=True)
        for turn, advantage in zip(episode.turns, advantages, strict=True)
        if turn.trainable and advantage
    }
    return [episode for episode in fair if episode.group in kept]


def groups(episodes: Sequence[Episode]) -> int:
    return len({episode.group for episode in episodes})


def make(config: CreditConfig) -> GroupRelative:
    return GroupRelative(
        leave_one_out=config.kind == "leave_one_out",
        scale=config.scale_rewards,
        together=config.seats == "together",
        level=config.level,
        gamma=config.gamma,
    )

"""Generalised advantage estimation: a critic estimates the value before each token, and
the temporal differences that follow, discounted, are the token's advantage."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import ClassVar, NamedTuple

from sparring.core.types import Episode, Sample, Turn
from sparring.credit.credit import Credit, Values
from sparring.credit.samples import Span, join_with_spans
from sparring.run.config import CreditConfig

_EPSILON = 1e-8


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float, trace: float
) -> tuple[list[float], list[float]]:
    """Advantages and returns of one trajectory that ends: its last state is worth nothing more.

    δ_t = r_t + γ V_{t+1} − V_t,  A_t = δ_t + γλ A_{t+1},  return_t = A_t + V_t
    """
    advantages = [0.0] * len(rewards)
    following = later = 0.0
    for t in reversed(range(len(rewards))):
        surprise = rewards[t] + gamma * following - values[t]
        later = advantages[t] = surprise + gamma * trace * later
        following = values[t]
    returns = [a + v for a, v in zip(advantages, values, strict=True)]
    return advantages, returns


def whiten(values: Sequence[float]) -> list[float]:
    """Mean 0 and deviation 1. Values that do not differ are all 0: none was better."""
    if not values:
        return []
    mean, spread = fmean(values), pstdev(values)
    return [(v - mean) / (spread + _EPSILON) for v in values]


class Gae(Credit):
    """Each seat's sampled tokens of an episode, in the order they were spoken, are one trajectory;
    a turn's own reward comes with its last token, the outcome's after the last of all. With
    `by_turn` a step is a whole turn: its value is that before its first token, and its tokens share
    its advantage and return. `values` is the critic's, given when there is one to ask."""

    uses_critic: ClassVar[bool] = True

    def __init__(
        self,
        gamma: float = 1.0,
        trace: float = 0.95,
        *,
        whitened: bool = True,
        by_turn: bool = False,
    ) -> None:
        self.gamma, self.trace, self.whitened, self.by_turn = gamma, trace, whitened, by_turn
        self.values: Values | None = None

    def use_values(self, values: Values) -> None:
        self.values = values

    def samples(self, episodes: list[Episode]) -> list[Sample]:
        if self.values is None:
            raise RuntimeError("GAE needs a critic: give it a learner's with `use_values`")
        trajectories = [t for episode in episodes for t in _trajectories(episode)]
        samples = [sample for t in trajectories for sample in t.samples]
        worth = iter(self.values(samples))
        for trajectory in trajectories:
            for sample in trajectory.samples:
                sample.values = _at_mask(next(worth), sample.mask)
            self._credit(trajectory)
        if self.whitened:
            for policy in {sample.policy for sample in samples}:
                _whiten([sample for sample in samples if sample.policy == policy])
        for trajectory in trajectories:
            for turn, (number, start, end) in zip(trajectory.turns, trajectory.spans, strict=True):
                turn.advantages = trajectory.samples[number].advantages[start:end]
        return samples

    def _credit(self, trajectory: _Trajectory) -> None:
        parts = trajectory.samples
        for sample in parts:
            sample.returns = [0.0] * len(sample.ids)
        steps, rewards = [], []  # a step is a span of tokens: one of them, or those of a turn
        for span, turn in zip(trajectory.spans, trajectory.turns, strict=True):
            width = max(1, span.end - span.start) if self.by_turn else 1
            own = [
                Span(span.sample, start, start + width)
                for start in range(span.start, span.end, width)
            ]
            steps += own
            rewards += [0.0] * (len(own) - 1) + [turn.reward] * bool(own)
        rewards[-1] += trajectory.reward
        values = [parts[step.sample].values[step.start] for step in steps]
        advantages, returns = gae(rewards, values, self.gamma, self.trace)
        for (number, start, end), advantage, worth in zip(steps, advantages, returns, strict=True):
            parts[number].advantages[start:end] = [advantage] * (end - start)
            parts[number].returns[start:end] = [worth] * (end - start)


def make(config: CreditConfig) -> Gae:
    return Gae(config.gamma, config.trace, whitened=config.whiten, by_turn=config.level == "turn")


class _Trajectory(NamedTuple):
    """A seat's turns as samples, and where in them each stands, in the order of speaking."""

    reward: float
    turns: list[Turn]
    samples: list[Sample]
    spans: list[Span]


def _trajectories(episode: Episode) -> list[_Trajectory]:
    """One for each seat that learns."""
    by_seat: dict[str, list[Turn]] = {}
    for turn in episode.turns:
        if turn.trainable:
            by_seat.setdefault(turn.seat, []).append(turn)
    return [
        _Trajectory(episode.rewards[seat], turns, *join_with_spans([(t, 0.0) for t in turns]))
        for seat, turns in by_seat.items()
    ]


def _at_mask(values: Sequence[float], mask: Sequence[int]) -> list[float]:
    """One value per token that is learned from, spread over all of them, 0 elsewhere."""
    following = iter(values)
    return [next(following) if m else 0.0 for m in mask]


def _whiten(samples: Sequence[Sample]) -> None:
    learned = [a for s in samples for a, m in zip(s.advantages, s.mask, strict=True) if m]
    whitened = iter(whiten(learned))
    for sample in samples:
        sample.advantages = [next(whitened) if m else 0.0 for m in sample.mask]

"""Generalised advantage estimation: a critic estimates the value before each token, and
the temporal differences that follow, discounted, are the token's advantage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
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


def centre(advantages: Sequence[float], of_one: Sequence[float]) -> list[float]:
    """The advantages that a critic gives which expects so much more everywhere that their mean is
    0. `of_one` are those of the same tokens where nothing is earned and 1 is always expected.

    Subtracting the mean would hold a token's distance from the end against it: what the critic does
    not expect yet, such as all of it at first, fades with λ on the way back to the early tokens,
    which would then be pushed down in replies that are all equally good. With λ = 1 and γ = 1 the
    two are the same. No fits are needed in which the critic learns alone, and it can follow a level
    that moves. Advantages that do not differ are all 0, to the last digit: an optimizer that
    divides by the size of its gradients makes whole steps of rounding errors."""
    level = -math.fsum(advantages) / math.fsum(of_one)
    centred = [a + level * one for a, one in zip(advantages, of_one, strict=True)]
    return centred if _deviation(centred) > _EPSILON else [0.0] * len(centred)


def _deviation(centred: Sequence[float]) -> float:
    return math.sqrt(fmean(a * a for a in centred))


class Gae(Credit):
    """Each seat's sampled tokens of an episode, in the order they were spoken, are one trajectory;
    a turn's own reward comes with its last token, the outcome's after the last of all. With
    `by_turn` a step is a whole turn: its value is that before its first token, and its tokens share
    its advantage and return. Whitened advantages of a policy have mean 0 and deviation 1, and its
    critic learns what they leave of its own values: how tokens differ from the level of the batch.
    `values` is the critic's, given when there is one to ask."""

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
        for sample, values in zip(samples, self.values(samples), strict=True):
            sample.values = _at_mask(values, sample.mask)
            sample.returns = [0.0] * len(sample.ids)
        for policy in {trajectory.turns[0].policy for trajectory in trajectories}:
            self._credit([t for t in trajectories if t.turns[0].policy == policy])
        for trajectory in trajectories:
            for turn, (number, start, end) in zip(trajectory.turns, trajectory.spans, strict=True):
                turn.advantages = trajectory.samples[number].advantages[start:end]
        return samples

    def _credit(self, trajectories: Sequence[_Trajectory]) -> None:
        """Advantages and returns of one policy's tokens."""
        tokens: list[tuple[Sample, int]] = []
        values: list[float] = []
        advantages: list[float] = []
        of_one: list[float] = []
        for trajectory in trajectories:
            steps, rewards = self._steps(trajectory)
            expected = [trajectory.samples[step.sample].values[step.start] for step in steps]
            own, _ = gae(rewards, expected, self.gamma, self.trace)
            ones, _ = gae([0.0] * len(steps), [1.0] * len(steps), self.gamma, self.trace)
            for step, value, advantage, one in zip(steps, expected, own, ones, strict=True):
                sample, width = trajectory.samples[step.sample], step.end - step.start
                tokens += [(sample, i) for i in range(step.start, step.end)]
                values += [value] * width
                advantages += [advantage] * width
                of_one += [one] * width
        scale = 1.0
        if self.whitened and tokens:
            advantages = centre(advantages, of_one)
            scale = 1 / (_deviation(advantages) + _EPSILON)
        for (sample, i), value, advantage in zip(tokens, values, advantages, strict=True):
            sample.advantages[i] = scale * advantage
            sample.returns[i] = advantage + value

    def _steps(self, trajectory: _Trajectory) -> tuple[list[Span], list[float]]:
        """Spans of tokens that are a step, one token or those of a turn, and their rewards."""
        steps: list[Span] = []
        rewards: list[float] = []
        for span, earned in zip(trajectory.spans, trajectory.earned, strict=True):
            width = max(1, span.end - span.start) if self.by_turn else 1
            own = [
                Span(span.sample, start, start + width)
                for start in range(span.start, span.end, width)
            ]
            steps += own
            rewards += [0.0] * (len(own) - 1) + [earned] * bool(own)
        rewards[-1] += trajectory.reward
        return steps, rewards


def make(config: CreditConfig) -> Gae:
    return Gae(config.gamma, config.trace, whitened=config.whiten, by_turn=config.level == "turn")


class _Trajectory(NamedTuple):
    """A seat's turns as samples, and where in them each stands, in the order of speaking."""

    reward: float
    turns: list[Turn]
    earned: list[float]  # by each turn itself, and by those after it that are not learned from
    samples: list[Sample]
    spans: list[Span]


def _trajectories(episode: Episode) -> list[_Trajectory]:
    """One for each seat that learns."""
    by_seat: dict[str, list[Turn]] = {}
    earned: dict[str, list[float]] = {}
    for turn in episode.turns:
        if turn.trainable:
            by_seat.setdefault(turn.seat, []).append(turn)
            earned.setdefault(turn.seat, []).append(turn.reward)
        elif turn.seat in earned:  # of a stage that does not learn now: it counts for those before
            earned[turn.seat][-1] += turn.reward
    return [
        _Trajectory(
            episode.rewards[seat], turns, earned[seat], *join_with_spans([(t, 0.0) for t in turns])
        )
        for seat, turns in by_seat.items()
    ]


def _at_mask(values: Sequence[float], mask: Sequence[int]) -> list[float]:
    """One value per token that is learned from, spread over all of them, 0 elsewhere."""
    following = iter(values)
    return [next(following) if m else 0.0 for m in mask]

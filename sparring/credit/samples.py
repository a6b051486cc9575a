"""Turns to samples: the sampled ids as they are, joined only where each prompt extends the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparring.core.types import Episode, Sample, Turn


class Span(NamedTuple):
    """One turn's tokens: the number of a sample, and from where to where."""

    sample: int
    start: int
    end: int


def to_samples(episodes: Sequence[Episode], advantages: Sequence[Sequence[float]]) -> list[Sample]:
    """Every trainable turn of every episode that is not void, with its advantage."""
    samples: list[Sample] = []
    for episode, values in zip(episodes, advantages, strict=True):
        if episode.void is not None:
            continue
        by_seat: dict[str, list[tuple[Turn, float]]] = {}
        for turn, value in zip(episode.turns, values, strict=True):
            if turn.trainable:
                by_seat.setdefault(turn.seat, []).append((turn, value))
        for turns in by_seat.values():
            samples += join(turns)
    return samples


def join(turns: Sequence[tuple[Turn, float]]) -> list[Sample]:
    """One sample per conversation: a turn whose prompt extends a sample goes on with it."""
    return join_with_spans(turns)[0]


def join_with_spans(turns: Sequence[tuple[Turn, float]]) -> tuple[list[Sample], list[Span]]:
    """The samples, and where in them each turn's tokens stand: conversations that take turns, and
    forks, are not spoken in the order of the samples."""
    samples: list[Sample] = []
    spans: list[Span] = []
    for turn, advantage in turns:
        extended = (i for i in reversed(range(len(samples))) if _extends(turn, samples[i]))
        host = next(extended, len(samples))
        if host == len(samples):
            samples.append(Sample(turn.policy, [], [], [], [], turn.temperature))
        sample = samples[host]
        context, drawn = turn.prompt_ids[len(sample.ids) :], len(turn.token_ids)
        sample.ids += context
        sample.ids += turn.token_ids
        sample.mask += [0] * len(context) + [1] * drawn
        sample.advantages += [0.0] * len(context) + [advantage] * drawn
        sample.logprobs += [0.0] * len(context) + turn.logprobs
        if turn.allowed:
            before = len(sample.ids) - drawn - len(sample.allowed)
            sample.allowed += [[]] * before + turn.allowed
        spans.append(Span(host, len(sample.ids) - drawn, len(sample.ids)))
    return samples, spans


def _extends(turn: Turn, sample: Sample) -> bool:
    return (
        turn.policy == sample.policy
        and turn.temperature == sample.temperature
        and len(turn.prompt_ids) > len(sample.ids)
        and turn.prompt_ids[: len(sample.ids)] == sample.ids
    )

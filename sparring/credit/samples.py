"""Turns to samples: the sampled ids as they are, joined only where each prompt extends the last."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.types import Episode, Sample, Turn


def to_samples(episodes: Sequence[Episode], advantages: Sequence[Sequence[float]]) -> list[Sample]:
    """Every trainable turn of every episode that is not void, with its advantage."""
    found: list[Sample] = []
    for episode, values in zip(episodes, advantages, strict=True):
        if episode.void is not None:
            continue
        by_seat: dict[str, list[tuple[Turn, float]]] = {}
        for turn, value in zip(episode.turns, values, strict=True):
            if turn.trainable:
                by_seat.setdefault(turn.seat, []).append((turn, value))
        for turns in by_seat.values():
            found += join(turns)
    return found


def join(turns: Sequence[tuple[Turn, float]]) -> list[Sample]:
    """One sample per conversation: a turn whose prompt extends a sample goes on with it."""
    samples: list[Sample] = []
    for turn, advantage in turns:
        host = next((s for s in reversed(samples) if _extends(turn, s)), None)
        if host is None:
            host = Sample(turn.policy, [], [], [], [], turn.temperature)
            samples.append(host)
        heard = turn.prompt_ids[len(host.ids) :]
        host.ids += [*heard, *turn.token_ids]
        host.mask += [0] * len(heard) + [1] * len(turn.token_ids)
        host.advantages += [0.0] * len(heard) + [advantage] * len(turn.token_ids)
        host.logprobs += [0.0] * len(heard) + turn.logprobs
    return samples


def _extends(turn: Turn, sample: Sample) -> bool:
    return (
        turn.policy == sample.policy
        and turn.temperature == sample.temperature
        and len(turn.prompt_ids) > len(sample.ids)
        and turn.prompt_ids[: len(sample.ids)] == sample.ids
    )

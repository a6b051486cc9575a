"""Samples to tensors, within a budget of tokens.

Games repeat themselves: many samples share everything but their last token, and that token is
never read, only scored. So a batch holds each distinct sequence once and a flat list of the
tokens to score. Shapes: R distinct rows, T places, N tokens to score.

There is no attention mask: rows are padded on the right and attention looks left, so no place that
is scored sees a pad; and without a mask the fastest attention can be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sparring.types import Lesson, Pair, Sample

Key = tuple[int, ...]


@dataclass
class Batch:
    """A micro-batch: rows padded on the right, and the tokens to learn from as flat vectors."""

    ids_RT: Tensor
    row_N: Tensor
    place_N: Tensor  # where the token is predicted from: one before its own place
    target_N: Tensor
    advantage_N: Tensor
    logprob_N: Tensor  # as sampled
    temperature_N: Tensor
    sample_N: Tensor  # which sample the token belongs to
    value_N: Tensor  # the critic's as sampled, and the return to learn; 0 without a critic
    return_N: Tensor


def seen(sample: Sample) -> Key:
    """What the model must read to score the sample: all but the last token."""
    return tuple(sample.ids[:-1])


def collate(samples: Sequence[Sample], pad: int, device: torch.device | str) -> Batch:
    rows = {key: i for i, key in enumerate(dict.fromkeys(map(seen, samples)))}
    width = max(map(len, rows))
    tokens: list[tuple[float, ...]] = [
        (
            *(rows[seen(s)], t - 1, s.ids[t], s.advantages[t], s.logprobs[t], s.temperature, i),
            *((s.values[t], s.returns[t]) if s.returns else (0.0, 0.0)),
        )
        for i, s in enumerate(samples)
        for t in range(1, len(s.ids))
        if s.mask[t]
    ]
    row, place, target, advantage, logprob, temperature, sample, value, gain = zip(
        *tokens, strict=True
    )

    def whole(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    def real(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return Batch(
        ids_RT=whole([[*key, *[pad] * (width - len(key))] for key in rows]),
        row_N=whole(row),
        place_N=whole(place),
        target_N=whole(target),
        advantage_N=real(advantage),
        logprob_N=real(logprob),
        temperature_N=real(temperature),
        sample_N=whole(sample),
        value_N=real(value),
        return_N=real(gain),
    )


def members(lesson: Lesson) -> tuple[Sample, ...]:
    """The sequences of a lesson: one, or the two of a pair."""
    return (lesson.chosen, lesson.rejected) if isinstance(lesson, Pair) else (lesson,)


def by_budget(
    lessons: Sequence[Lesson], tokens: int, most: int | None = None
) -> list[list[Lesson]]:
    """Micro-batches of like lengths whose padded rows stay within the budget (or single ones), and
    of at most so many lessons. A pair is never parted: its loss is no sum over its sequences."""
    batches: list[list[Lesson]] = []
    rows: set[Key] = set()
    for lesson in sorted(lessons, key=_by_length):
        # Sorted upwards, so the newcomer is the longest and sets the padded width.
        own = {seen(sample) for sample in members(lesson)}
        rows |= own
        room = not batches or most is None or len(batches[-1]) < most
        if batches and room and len(rows) * _by_length(lesson)[0] <= tokens:
            batches[-1].append(lesson)
        else:
            batches.append([lesson])
            rows = own
    return batches


def _by_length(lesson: Lesson) -> tuple[int, list[list[int]]]:
    ids = [sample.ids for sample in members(lesson)]
    return max(map(len, ids)), ids


def split(lessons: Sequence[Lesson], parts: int, generator: torch.Generator) -> list[list[Lesson]]:
    """A random partition into optimizer batches of about equal size; empty ones are left out.
    Samples that are read alike stay together, so that each is read once."""
    alike: dict[tuple[Key, ...], list[Lesson]] = {}
    for lesson in lessons:
        alike.setdefault(tuple(map(seen, members(lesson))), []).append(lesson)
    groups = list(alike.values())
    dealt: list[list[Lesson]] = [[] for _ in range(parts)]
    for i in torch.randperm(len(groups), generator=generator).tolist():
        min(dealt, key=len).extend(groups[i])
    return [part for part in dealt if part]


def deal(lessons: Sequence[Lesson], size: int, generator: torch.Generator) -> list[list[Lesson]]:
    """A random partition into optimizer batches of `size`; the last one may be smaller."""
    order = torch.randperm(len(lessons), generator=generator).tolist()
    return [[lessons[i] for i in order[k : k + size]] for k in range(0, len(order), size)]

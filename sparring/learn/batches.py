"""Samples to tensors, within a budget of tokens.

Games repeat themselves: many samples share everything but their last token, and that token is
never read, only scored. So a batch holds each distinct sequence once and a flat list of the
tokens to score. Shapes: R distinct rows, T places, L tokens, N tokens to score.

There is no attention mask: rows are padded on the right and attention looks left, so no place that
is scored sees a pad; and without a mask the fastest attention can be had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparring.types import Lesson, Pair, Sample

Key = tuple[int, ...]

# Packed rows in longest lessons: more leaves fewer pads, and more places that may not be seen.
ROW = 2


@dataclass
class Batch:
    """A micro-batch: rows padded on the right, and the tokens to learn from as flat vectors."""

    ids_RT: Tensor
    position_RT: Tensor | None  # None: each row is one sequence, from 0
    row_N: Tensor
    place_N: Tensor  # where the token is predicted from: one before its own place
    target_N: Tensor
    advantage_N: Tensor
    logprob_N: Tensor  # as sampled
    temperature_N: Tensor | None  # None where all are 1
    sample_N: Tensor  # which sample the token belongs to
    value_N: Tensor  # the critic's as sampled, and the return to learn; 0 without a critic
    return_N: Tensor
    samples: int


def seen(sample: Sample) -> Key:
    """What the model must read to score the sample: all but the last token."""
    return tuple(sample.ids[:-1])


def collate(
    samples: Sequence[Sample], pad: int, device: torch.device | str, width: int | None = None
) -> Batch:
    """One row per sequence; or, given a width, as many in a row as fit in their order."""
    laid = _lay(dict.fromkeys(map(seen, samples)), width)
    rows = 1 + max(row for row, _ in laid.values())
    shape = (rows, max(at + len(key) for key, (_, at) in laid.items()))
    ids_RT = np.full(shape, pad, dtype=np.int64)
    for key, (row, at) in laid.items():
        ids_RT[row, at : at + len(key)] = key
    lengths = [len(s.ids) for s in samples]
    sample_L = np.repeat(np.arange(len(samples)), lengths)
    place_L = np.arange(sum(lengths)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    row_L, begin_L = np.array([laid[seen(s)] for s in samples])[sample_L].T
    heated = any(s.temperature != 1 for s in samples)
    learned_L = _flat((s.mask for s in samples), np.bool_) & (place_L > 0)

    def real(lists: Iterable[Sequence[float]]) -> Tensor:
        return _send(_flat(lists, np.float32)[learned_L], device)

    def judged(lists: Iterable[Sequence[float]]) -> Tensor:
        given = list(lists)
        if not any(given):
            return torch.zeros(int(learned_L.sum()), device=device)
        return real(x if x else [0.0] * n for x, n in zip(given, lengths, strict=True))

    return Batch(
        ids_RT=_send(ids_RT, device),
        position_RT=None if width is None else _send(_positions(laid, shape), device),
        row_N=_send(row_L[learned_L], device),
        place_N=_send((begin_L + place_L)[learned_L] - 1, device),
        target_N=_send(_flat((s.ids for s in samples), np.int64)[learned_L], device),
        advantage_N=real(s.advantages for s in samples),
        logprob_N=real(s.logprobs for s in samples),
        temperature_N=real([s.temperature] * len(s.ids) for s in samples) if heated else None,
        sample_N=_send(sample_L[learned_L], device),
        value_N=judged(s.values if s.returns else [] for s in samples),
        return_N=judged(s.returns for s in samples),
        samples=len(samples),
    )


def _lay(keys: Iterable[Key], width: int | None) -> dict[Key, tuple[int, int]]:
    """The row of each sequence and where in it the sequence begins."""
    laid: dict[Key, tuple[int, int]] = {}
    row, end = -1, 0
    for key in keys:
        if row < 0 or width is None or end + len(key) > width:
            row, end = row + 1, 0
        laid[key] = (row, end)
        end += len(key)
    return laid


def _positions(laid: dict[Key, tuple[int, int]], shape: tuple[int, int]) -> np.ndarray:
    """Each sequence's own, from 0."""
    position_RT = np.zeros(shape, dtype=np.int64)
    for key, (row, at) in laid.items():
        position_RT[row, at : at + len(key)] = np.arange(len(key))
    return position_RT


def _flat(lists: Iterable[Sequence[float]], dtype: Any) -> np.ndarray:
    return np.array(list(chain.from_iterable(lists)), dtype)


def _send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """To the device, without waiting for what it is busy with."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


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


def pack(
    lessons: Sequence[Lesson], tokens: int, most: int | None = None
) -> tuple[list[list[Lesson]], int]:
    """Micro-batches of rows of one width, and that width: longest first, each lesson goes into the
    first row that has room for it, next to those that are read alike. They come row by row: the
    first lesson of a row did not fit behind the last one of the row before."""
    alike: dict[tuple[Key, ...], list[Lesson]] = {}
    for lesson in lessons:
        alike.setdefault(tuple(dict.fromkeys(map(seen, members(lesson)))), []).append(lesson)
    units = [
        (sum(map(len, keys)), some[i : i + (most or len(some))])
        for keys, some in alike.items()
        for i in range(0, len(some), most or len(some))
    ]
    longest = max(size for size, _ in units)
    width = max(longest, min(tokens, ROW * longest))
    rows: list[tuple[int, list[Lesson]]] = []
    for size, some in sorted(units, key=lambda unit: (-unit[0], _by_length(unit[1][0]))):
        for i, (used, row) in enumerate(rows):
            if used + size <= width and (most is None or len(row) + len(some) <= most):
                rows[i] = (used + size, [*row, *some])
                break
        else:
            rows.append((size, some))
    batches: list[list[Lesson]] = []
    taken = 0
    for _, row in rows:
        room = most is None or (batches and len(batches[-1]) + len(row) <= most)
        if batches and room and (taken + 1) * width <= tokens:
            batches[-1].extend(row)
            taken += 1
        else:
            batches.append(list(row))
            taken = 1
    return batches, width


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

"""Samples to tensors, within a budget of tokens.

Games repeat themselves: many samples share everything but their last token, and that token is
never read, only scored. So a batch holds each distinct sequence once and a flat list of the
tokens to score. Shapes: R distinct rows, T positions, L tokens, N tokens to score, S samples.

There is no attention mask: rows are padded on the right and attention looks left, so no position
that is scored sees a pad; and without a mask the fastest attention can be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sparring.core.types import Lesson, Sample, members
from sparring.learn.graphs import CAPTURING
from sparring.run.config import LearnConfig

Item = TypeVar("Item")
Width = Callable[[int], int]  # of a row, by its tokens
Key = tuple[int, ...]
Halves = tuple[Key, Key]  # a sequence's prompt, and what follows it
Piece = tuple[int, int, Key, int, int]  # row, start, ids, position in its sequence, parent
Family = dict[tuple[Halves, ...], list[Lesson]]  # of the same prompts, those alike together

# Packed rows in longest lessons: more leaves fewer pads, and more positions that may not be seen.
ROW = 2
SHARED = 4  # the same where lessons share their prompts: more is read once


@dataclass
class Packed:
    """Who is who in rows of several pieces. A piece sees itself, and the one it goes on from."""

    position_RT: Tensor  # in its own sequence
    piece_RT: Tensor
    before_RT: Tensor  # the piece it goes on from; itself, where it begins a sequence
    pieces: Pieces | None  # None where attention by rows looks at fewer pairs of positions


@dataclass
class Pieces:
    """The same rows as pieces with all that each sees, for attention over them. P pieces, L their
    positions, K the positions seen; an index is row · T + position."""

    query_PL: Tensor
    key_PK: Tensor
    mask_P1LK: Tensor
    output_RT: Tensor  # where a position is among the P · L


@dataclass
class Batch:
    """A micro-batch: rows padded on the right, and the tokens to learn from as flat vectors."""

    ids_RT: Tensor
    packed: Packed | None  # None: each row is one sequence
    row_N: Tensor
    position_N: Tensor  # where the token is predicted from: one before its own
    target_N: Tensor
    advantage_N: Tensor
    logprob_N: Tensor  # the engine's, as sampled
    old_logprob_N: Tensor | None  # the learner's at the start of the fit, where they are kept apart
    temperature_N: Tensor | None  # None where all are 1
    sample_N: Tensor  # which sample the token belongs to
    value_N: Tensor  # the critic's as sampled, and the return to learn; 0 without a critic
    return_N: Tensor
    samples: int
    allowed_NA: Tensor | None = None  # what it was drawn from, padded with −1; None: never masked


def seen(sample: Sample) -> Key:
    """What the model must read to score the sample: all but the last token."""
    return tuple(sample.ids[:-1])


def distinct_tokens(lessons: Sequence[Lesson]) -> int:
    """Tokens that are read for these lessons, if each sequence is read once."""
    return sum(map(len, {seen(sample) for lesson in lessons for sample in members(lesson)}))


def collate(
    samples: Sequence[Sample],
    pad: int,
    device: torch.device | str,
    width: int | None = None,
    width_of: Width = int,
) -> Batch:
    """One row per sequence; or, given a width, as many in a row as fit in their order. `width_of`
    says how wide rows of so many tokens are."""
    first = list(map(_first, samples))  # what stands before is often most of a sample
    lengths = [len(s.ids) - start for s, start in zip(samples, first, strict=True)]
    sample_L = np.repeat(np.arange(len(samples)), lengths)
    position_L = np.arange(sum(lengths)) + np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    selected = b"".join(bytes(s.mask[start:]) for s, start in zip(samples, first, strict=True))
    learned_L = np.frombuffer(selected, np.bool_)
    sample_N, from_N = sample_L[learned_L], position_L[learned_L] - 1
    packed = None
    if width is None:
        ids_RT, row_S = _one_each(samples, pad, width_of)
    else:
        halves = list(map(_halves, samples))
        ids_RT, row_S, shift_S2, packed = _end_to_end(halves, pad, width, device, width_of)
        goes_on_N = from_N >= np.array([len(prompt) for prompt, _ in halves])[sample_N]
        from_N = from_N + shift_S2[sample_N, goes_on_N.astype(np.int64)]
    heated = any(s.temperature != 1 for s in samples)

    def of_learned(lists: Iterable[Sequence[float]], dtype: Any = np.float32) -> Tensor:
        rest = (x[start:] for x, start in zip(lists, first, strict=True))
        chosen = compress(chain.from_iterable(rest), selected)
        return _send(np.fromiter(chosen, dtype, len(sample_N)), device)

    def judged(lists: Iterable[Sequence[float]]) -> Tensor:
        given = list(lists)
        if not any(given):
            return torch.zeros(len(sample_N), device=device)
        return of_learned(
            x if x else [0.0] * len(s.ids) for x, s in zip(given, samples, strict=True)
        )

    return Batch(
        ids_RT=_send(ids_RT, device),
        packed=packed,
        row_N=_send(row_S[sample_N], device),
        position_N=_send(from_N, device),
        target_N=of_learned((s.ids for s in samples), np.int64),
        advantage_N=of_learned(s.advantages for s in samples),
        logprob_N=of_learned(s.logprobs for s in samples),
        old_logprob_N=of_learned(s.old_logprobs for s in samples)
        if any(s.old_logprobs for s in samples)
        else None,
        temperature_N=of_learned([s.temperature] * len(s.ids) for s in samples) if heated else None,
        sample_N=_send(sample_N, device),
        value_N=judged(s.values if s.returns else [] for s in samples),
        return_N=judged(s.returns for s in samples),
        samples=len(samples),
        allowed_NA=_allowed(samples, first, selected, device),
    )


def _allowed(
    samples: Sequence[Sample], first: Sequence[int], selected: bytes, device: torch.device | str
) -> Tensor | None:
    if not any(s.allowed for s in samples):
        return None
    whole = (s.allowed + [[]] * (len(s.ids) - len(s.allowed)) for s in samples)
    rest = (lists[start:] for lists, start in zip(whole, first, strict=True))
    lists = list(compress(chain.from_iterable(rest), selected))
    most = max(map(len, lists))
    padded = [tokens + [-1] * (most - len(tokens)) for tokens in lists]
    return _send(np.array(padded, dtype=np.int64).reshape(len(lists), most), device)


def _one_each(
    samples: Sequence[Sample], pad: int, width_of: Width
) -> tuple[np.ndarray, np.ndarray]:
    """A row for each distinct sequence, and each sample's row."""
    keys = [seen(sample) for sample in samples]
    rows = {key: row for row, key in enumerate(dict.fromkeys(keys))}
    ids_RT = np.full((len(rows), width_of(max(map(len, rows)))), pad, dtype=np.int64)
    for key, row in rows.items():
        ids_RT[row, : len(key)] = key
    return ids_RT, np.array([rows[key] for key in keys])


def _first(sample: Sample) -> int:
    """Where the first token to learn from is: one that nothing precedes cannot be."""
    return sample.mask.index(1, 1) if 1 in sample.mask[1:] else max(1, len(sample.ids) - 1)


def _halves(sample: Sample) -> Halves:
    """What is seen before anything is learned from, and what is seen after."""
    first = _first(sample)
    return tuple(sample.ids[:first]), tuple(sample.ids[first:-1])


def _end_to_end(
    halves: Sequence[Halves], pad: int, width: int, device: torch.device | str, width_of: Width
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Packed]:
    """Rows of prompts and what follows them, each once: a prompt that several samples of a row
    share is read once, and each of them goes on from there. Also each sample's row, and by how
    much its two halves lie further on than they would by themselves."""
    pieces: list[Piece] = []
    spots: dict[Halves, tuple[int, int, int]] = {}
    prompts: dict[Key, tuple[int, int]] = {}  # of this row: start and piece
    row, end = -1, width
    for prompt, rest in dict.fromkeys(halves):
        if prompt not in prompts or end + len(rest) > width:
            if end + len(prompt) + len(rest) > width:
                row, end, prompts = row + 1, 0, {}
            prompts[prompt] = (end, len(pieces))
            pieces.append((row, end, prompt, 0, len(pieces)))
            end += len(prompt)
        start, piece = prompts[prompt]
        spots[prompt, rest] = (row, start, end - len(prompt))
        pieces.append((row, end, rest, len(prompt), piece))
        end += len(rest)
    shape = (row + 1, width_of(max(at + len(ids) for _, at, ids, _, _ in pieces)))
    ids_RT = np.full(shape, pad, dtype=np.int64)
    position_RT, piece_RT = np.zeros(shape, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
    before_RT = piece_RT.copy()
    for number, (row, at, ids, position, before) in enumerate(pieces):
        here = (row, slice(at, at + len(ids)))
        ids_RT[here], position_RT[here] = ids, position + np.arange(len(ids))
        piece_RT[here], before_RT[here] = number, before
    spot_S3 = np.array([spots[one] for one in halves])
    packed = Packed(
        _send(position_RT, device),
        _send(piece_RT, device),
        _send(before_RT, device),
        _by_piece(pieces, shape, device),
    )
    return ids_RT, spot_S3[:, 0], spot_S3[:, 1:], packed


def _by_piece(
    pieces: Sequence[Piece], shape: tuple[int, int], device: torch.device | str
) -> Pieces | None:
    """What each piece sees: the prompt that it goes on from, and itself up to each position."""
    most = max(len(ids) for _, _, ids, _, _ in pieces)
    most_seen = max(position + len(ids) for _, _, ids, position, _ in pieces)
    if len(pieces) * most * most_seen >= shape[0] * shape[1] ** 2:
        return None
    query_PL = np.zeros((len(pieces), most), dtype=np.int64)
    key_PK = np.zeros((len(pieces), most_seen), dtype=np.int64)
    output_T = np.zeros(shape[0] * shape[1], dtype=np.int64)
    for number, (row, at, ids, position, before) in enumerate(pieces):
        own = row * shape[1] + at + np.arange(len(ids))
        query_PL[number, : len(ids)] = own
        key_PK[number, :position] = row * shape[1] + pieces[before][1] + np.arange(position)
        key_PK[number, position : position + len(ids)] = own
        output_T[own] = number * most + np.arange(len(ids))
    # What is behind the end of a piece sees something as well, and is never looked at.
    position_P1 = np.array([position for _, _, _, position, _ in pieces])[:, None]
    last_PL1 = (position_P1 + np.arange(most))[:, :, None]
    mask_P1LK = (np.arange(most_seen) <= last_PL1)[:, None]
    given = (query_PL, key_PK, mask_P1LK, output_T.reshape(shape))
    return Pieces(*(_send(array, device) for array in given))


def prefetched(
    batches: Sequence[tuple[Item, float]], make: Callable[[Item], Batch], device: torch.device
) -> Iterator[tuple[Batch, float]]:
    """Each item's batch and what it counts. On a GPU the next one is laid out and sent by a thread
    while the device is busy with the last."""
    if device.type != "cuda" or len(batches) < 2:
        yield from ((make(item), counts) for item, counts in batches)
        return
    stream = torch.cuda.current_stream(device)

    def work(item: Item) -> Batch:
        with torch.cuda.stream(stream), CAPTURING:
            return make(item)

    with ThreadPoolExecutor(1, "collate") as thread:
        following = thread.submit(work, batches[0][0])
        for number, (_, counts) in enumerate(batches):
            batch = following.result()
            if number + 1 < len(batches):
                following = thread.submit(work, batches[number + 1][0])
            yield batch, counts


def _send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """To the device, without waiting for what it is busy with."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def by_budget(
    lessons: Sequence[Lesson], tokens: int, most: int | None = None, width_of: Width = int
) -> list[list[Lesson]]:
    """Micro-batches of like lengths whose rows, as they are padded, stay within the budget (or
    single ones), and of at most so many lessons. A pair is never parted: its loss is no sum over
    its sequences."""
    batches: list[list[Lesson]] = []
    rows: set[Key] = set()
    for lesson in sorted(lessons, key=_by_length):
        # Sorted upwards, so the newcomer is the longest and sets the padded width.
        own = {seen(sample) for sample in members(lesson)}
        rows |= own
        room = not batches or most is None or len(batches[-1]) < most
        if batches and room and len(rows) * width_of(_by_length(lesson)[0]) <= tokens:
            batches[-1].append(lesson)
        else:
            batches.append([lesson])
            rows = own
    return batches


def pack(
    lessons: Sequence[Lesson], tokens: int, most: int | None = None
) -> tuple[list[list[Lesson]], int]:
    """Micro-batches of rows of one width, and that width: longest first, each unit of lessons that
    share their prompt goes into the first row that has room for it. They come row by row: the
    first lesson of a row did not fit behind the last one of the row before."""
    families: dict[tuple[Key, ...], Family] = {}
    for lesson in lessons:
        halves = tuple(dict.fromkeys(map(_halves, members(lesson))))
        prompts = tuple(dict.fromkeys(prompt for prompt, _ in halves))
        families.setdefault(prompts, {}).setdefault(halves, []).append(lesson)
    begun = [(sum(map(len, prompts)), family) for prompts, family in families.items()]
    longest = max(used + max(map(_more, family)) for used, family in begun)
    shared = any(len(family) > 1 for family in families.values())
    width = max(longest, min(tokens, (SHARED if shared else ROW) * longest))
    units = [unit for used, family in begun for unit in _units(used, family, width, most)]
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


def _more(halves: tuple[Halves, ...]) -> int:
    """Positions that a lesson takes behind its prompts."""
    return sum(len(rest) for _, rest in halves)


def _units(
    prompts: int, family: Family, width: int, most: int | None
) -> list[tuple[int, list[Lesson]]]:
    """Lessons with the same prompts, as many as fit a row, and the positions they take."""
    units: list[tuple[int, list[Lesson]]] = []
    for halves, alike in family.items():
        for i in range(0, len(alike), most or len(alike)):
            some, more = alike[i : i + (most or len(alike))], _more(halves)
            used, row = units[-1] if units else (width + 1, [])
            if used + more <= width and (most is None or len(row) + len(some) <= most):
                units[-1] = (used + more, [*row, *some])
            else:
                units.append((prompts + more, some))
    return units


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


def optimizer_batches(lessons: list[Lesson], config: LearnConfig, seed: int) -> list[list[Lesson]]:
    """An epoch's lessons, one list for each optimizer step, shuffled by the seed."""
    generator = torch.Generator().manual_seed(seed)
    if config.batch is not None:
        return deal(lessons, config.batch, generator)
    return split(lessons, config.minibatches, generator)


def deal(lessons: Sequence[Lesson], size: int, generator: torch.Generator) -> list[list[Lesson]]:
    """A random partition into optimizer batches of `size`; the last one may be smaller."""
    order = torch.randperm(len(lessons), generator=generator).tolist()
    return [[lessons[i] for i in order[k : k + size]] for k in range(0, len(order), size)]

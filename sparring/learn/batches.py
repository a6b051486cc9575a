"""Samples to tensors, within a budget of tokens.

Games repeat themselves: many samples share everything but their last token, and that token is
never read, only scored. So a batch holds each distinct sequence once and a flat list of the
tokens to score. Shapes: R distinct rows, T places, N tokens to score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sparring.types import Sample

Key = tuple[int, ...]


@dataclass
class Batch:
    """A micro-batch: rows padded on the right, and the tokens to learn from as flat vectors."""

    ids_RT: Tensor
    attention_RT: Tensor
    row_N: Tensor
    place_N: Tensor  # where the token is predicted from: one before its own place
    target_N: Tensor
    advantage_N: Tensor
    logprob_N: Tensor  # as sampled
    temperature_N: Tensor
    sample_N: Tensor  # which sample the token belongs to


def seen(sample: Sample) -> Key:
    """What the model must read to score the sample: all but the last token."""
    return tuple(sample.ids[:-1])


def collate(samples: Sequence[Sample], pad: int, device: torch.device | str) -> Batch:
    rows = {key: i for i, key in enumerate(dict.fromkeys(map(seen, samples)))}
    width = max(map(len, rows))
    tokens: list[tuple[float, ...]] = [
        (rows[seen(s)], t - 1, s.ids[t], s.advantages[t], s.logprobs[t], s.temperature, i)
        for i, s in enumerate(samples)
        for t in range(1, len(s.ids))
        if s.mask[t]
    ]
    row, place, target, advantage, logprob, temperature, sample = zip(*tokens, strict=True)

    def whole(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    def real(values: Sequence[object]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    return Batch(
        ids_RT=whole([[*key, *[pad] * (width - len(key))] for key in rows]),
        attention_RT=whole([[1] * len(key) + [0] * (width - len(key)) for key in rows]),
        row_N=whole(row),
        place_N=whole(place),
        target_N=whole(target),
        advantage_N=real(advantage),
        logprob_N=real(logprob),
        temperature_N=real(temperature),
        sample_N=whole(sample),
    )


def by_budget(samples: Sequence[Sample], tokens: int) -> list[list[Sample]]:
    """Micro-batches of like lengths whose padded rows stay within the budget (or single ones)."""
    batches: list[list[Sample]] = []
    rows: set[Key] = set()
    for sample in sorted(samples, key=lambda s: (len(s.ids), s.ids)):
        # Sorted upwards, so the newcomer is the longest and sets the padded width.
        rows.add(seen(sample))
        if batches and len(rows) * len(sample.ids) <= tokens:
            batches[-1].append(sample)
        else:
            batches.append([sample])
            rows = {seen(sample)}
    return batches


def split(samples: Sequence[Sample], parts: int, generator: torch.Generator) -> list[list[Sample]]:
    """A random partition into optimizer batches of about equal size; empty ones are left out.
    Samples that are read alike stay together, so that each is read once."""
    alike: dict[Key, list[Sample]] = {}
    for sample in samples:
        alike.setdefault(seen(sample), []).append(sample)
    groups = list(alike.values())
    dealt: list[list[Sample]] = [[] for _ in range(parts)]
    for i in torch.randperm(len(groups), generator=generator).tolist():
        min(dealt, key=len).extend(groups[i])
    return [part for part in dealt if part]

"""Samples to padded tensors, within a budget of tokens. Shapes: B sequences, T tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sparring.types import Sample


@dataclass
class Batch:
    """A micro-batch, padded on the right. Field t speaks of the token at place t."""

    ids: Tensor
    attention: Tensor
    mask: Tensor
    advantages: Tensor
    logprobs: Tensor
    temperature: Tensor  # B


def collate(samples: Sequence[Sample], pad: int, device: torch.device | str) -> Batch:
    longest = max(len(s.ids) for s in samples)

    def padded(rows: list[list[int]] | list[list[float]], fill: float, dtype: torch.dtype) -> Tensor:
        full = [[*row, *[fill] * (longest - len(row))] for row in rows]
        return torch.tensor(full, dtype=dtype, device=device)

    return Batch(
        ids=padded([s.ids for s in samples], pad, torch.int64),
        attention=padded([[1] * len(s.ids) for s in samples], 0, torch.int64),
        mask=padded([s.mask for s in samples], 0, torch.bool),
        advantages=padded([s.advantages for s in samples], 0.0, torch.float32),
        logprobs=padded([s.logprobs for s in samples], 0.0, torch.float32),
        temperature=torch.tensor([s.temperature for s in samples], device=device),
    )


def by_budget(samples: Sequence[Sample], tokens: int) -> list[list[Sample]]:
    """Micro-batches of like lengths whose padded size stays within the budget (or single ones)."""
    batches: list[list[Sample]] = []
    for sample in sorted(samples, key=lambda s: len(s.ids)):
        # Sorted upwards, so the newcomer is the longest and sets the padded width.
        if batches and len(sample.ids) * (len(batches[-1]) + 1) <= tokens:
            batches[-1].append(sample)
        else:
            batches.append([sample])
    return batches


def split(samples: Sequence[Sample], parts: int, generator: torch.Generator) -> list[list[Sample]]:
    """A random partition into near-equal optimizer batches; empty ones are left out."""
    order = torch.randperm(len(samples), generator=generator).tolist()
    dealt = [[samples[i] for i in order[k::parts]] for k in range(parts)]
    return [part for part in dealt if part]

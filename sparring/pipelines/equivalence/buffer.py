"""What of a round is kept to learn from: everything hard, and a share of the easy, spread evenly
over what there is."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from sparring.core.types import derive

T = TypeVar("T")


def keep(
    items: Sequence[T],
    difficulty: Callable[[T], float],
    stratum: Callable[[T], Hashable],
    *,
    threshold: float = 5.0,
    easy: float = 0.2,
    seed: int = 0,
) -> list[T]:
    """The items above the threshold, and of each stratum of the others a share `easy`, rounded up
    so that none is forgotten. The order stays, and the choice hangs on the seed alone."""
    kept = {i for i, item in enumerate(items) if difficulty(item) > threshold}
    strata: dict[Hashable, list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        if i not in kept:
            strata[stratum(item)].append(i)
    for name, indices in strata.items():
        count = math.ceil(easy * len(indices) - 1e-9)
        kept |= set(random.Random(derive(seed, repr(name))).sample(indices, count))
    return [item for i, item in enumerate(items) if i in kept]


def histogram(values: Sequence[float], bins: int = 10, top: float = 10.0) -> list[int]:
    """How many values lie in each of `bins` equal parts of 0 … top; the last one holds top."""
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(value / top * bins))] += 1
    return counts

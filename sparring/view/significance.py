"""Whether a change is more than chance: only then is a figure called better or worse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance

SIGNIFICANT = 0.05  # a change less likely than this by chance alone is called better or worse
_Z = 1.96


def means_differ(before: float, after: float, n: float, span: float = 1.0) -> bool:
    """Whether two means of n games each, of numbers within `span`, differ: by Hoeffding's bound,
    which holds whatever the numbers' distribution is."""
    limit = span * math.sqrt(math.log(4 / SIGNIFICANT) / (2 * n)) if n else math.inf
    return abs(after - before) > 2 * limit


def shares_differ(before: float, after: float, games: tuple[float, float]) -> bool:
    """Whether two shares differ: the pooled z-test of two proportions, two-sided."""
    n, m = games
    if not n or not m:
        return False
    pooled = (before * n + after * m) / (n + m)
    spread = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return abs(after - before) > _Z * spread if spread else after != before


def ends_differ(points: Sequence[tuple[int, float]]) -> bool:
    """Whether the last fifth of a curve lies elsewhere than the first: Welch's t above 2.6, with at
    least five points in each."""
    part = len(points) // 5
    if part < 5:
        return False
    first, last = ([y for _, y in piece] for piece in (points[:part], points[-part:]))
    spread = math.sqrt((variance(first) + variance(last)) / part)
    return abs(fmean(last) - fmean(first)) > 2.6 * spread

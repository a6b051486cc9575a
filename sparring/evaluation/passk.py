"""pass@k and how sure it is."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The chance that at least one of k samples passes, without bias: of all ways to take k of the
    samples drawn, the share that holds one that passed."""
    if not 0 <= passed <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {passed} of {samples} samples passed")
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Over problems, each given as (samples, passed)."""
    return sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)


def wilson(passed: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share of independent trials."""
    if not total:
        return 0.0, 1.0
    share, weight = passed / total, z * z / total
    centre = (share + weight / 2) / (1 + weight)
    reach = z * sqrt(share * (1 - share) / total + weight / (4 * total)) / (1 + weight)
    return max(0.0, centre - reach), min(1.0, centre + reach)

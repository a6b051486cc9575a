"""How sure a figure is: pass@k, intervals, two policies on the same questions, and whether a change
is more than chance. Only then is it called better or worse."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import comb, inf, log, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any

from sparring.core.errors import ConfigError

SIGNIFICANT = 0.05  # a change less likely than this by chance alone is called better or worse
Z = 1.96  # standard deviations either way that hold 95 %


def pass_at_k(samples: int, passed: int, k: int) -> float:
    """The chance that at least one of k samples passes, without bias: of all ways to take k of the
    samples drawn, the share that holds one that passed."""
    if not 0 <= passed <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {passed} of {samples} samples passed")
    return 1.0 - comb(samples - passed, k) / comb(samples, k)


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """Over problems, each given as (samples, passed)."""
    return sum(pass_at_k(n, c, k) for n, c in counts) / len(counts)


def wilson(passed: float, total: float, z: float = Z) -> tuple[float, float]:
    """The 95 % interval of a share of independent trials."""
    if not total:
        return 0.0, 1.0
    share, weight = passed / total, z * z / total
    centre = (share + weight / 2) / (1 + weight)
    reach = z * sqrt(share * (1 - share) / total + weight / (4 * total)) / (1 + weight)
    # At 0 and at all the share itself is an end; rounding would leave it a digit outside.
    return max(0.0, min(share, centre - reach)), min(1.0, max(share, centre + reach))


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test, from the questions that one alone got right."""
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return float(binomtest(only_second, discordant, 0.5).pvalue) if discordant else 1.0


def difference_interval(
    only_first: int, only_second: int, total: int, z: float = Z
) -> tuple[float, float]:
    """The 95 % interval of second minus first, by Bonett and Price's adjustment: sound for few
    questions too, where Wald's is not."""
    a, b, n = only_first + 1, only_second + 1, total + 2
    centre, reach = (b - a) / n, z * sqrt(a + b - (b - a) ** 2 / n) / n
    return max(-1.0, centre - reach), min(1.0, centre + reach)


def compare(first: Sequence[bool], second: Sequence[bool]) -> dict[str, Any]:
    """A paired comparison; positive differences speak for the second."""
    if len(first) != len(second) or not first:
        raise ValueError(f"{len(first)} and {len(second)} results cannot be paired")
    only_first = sum(a and not b for a, b in zip(first, second, strict=True))
    only_second = sum(b and not a for a, b in zip(first, second, strict=True))
    low, high = difference_interval(only_first, only_second, len(first))
    return {
        "problems": len(first),
        "first": sum(first) / len(first),
        "second": sum(second) / len(second),
        "difference": (only_second - only_first) / len(first),
        "interval_95": [round(low, 4), round(high, 4)],
        "only_first": only_first,
        "only_second": only_second,
        "mcnemar_p": mcnemar(only_first, only_second),
    }


def compare_files(first: Path, second: Path) -> dict[str, Any]:
    """The results of two evaluations, paired by id."""
    a, b = _results(first), _results(second)
    shared = [key for key in a if key in b]
    if len(shared) < max(len(a), len(b)):
        raise ConfigError(
            f"{first} has {len(a)} questions and {second} has {len(b)}, {len(shared)} of them the "
            "same; a paired comparison needs the same questions"
        )
    return compare([a[key] for key in shared], [b[key] for key in shared])


def _results(path: Path) -> dict[str, bool]:
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r} of results")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # a text may hold other line ends
        rows = [json.loads(line) for line in lines if line.strip()]
        outcomes = {f"{row['id']} {row.get('question', '')}": bool(row["correct"]) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} does not hold results with `id` and `correct`") from error
    if not outcomes:
        raise ConfigError(f"{path} is empty")
    return outcomes


def means_differ(before: float, after: float, n: float, span: float = 1.0) -> bool:
    """Whether two means of n games each, of numbers within `span`, differ: by Hoeffding's bound,
    which holds whatever the numbers' distribution is."""
    limit = span * sqrt(log(4 / SIGNIFICANT) / (2 * n)) if n else inf
    return abs(after - before) > 2 * limit


def shares_differ(before: float, after: float, games: tuple[float, float]) -> bool:
    """Whether two shares differ: the pooled z-test of two proportions, two-sided."""
    n, m = games
    if not n or not m:
        return False
    pooled = (before * n + after * m) / (n + m)
    spread = sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    return abs(after - before) > Z * spread if spread else after != before


def ends_differ(points: Sequence[tuple[int, float]]) -> bool:
    """Whether the last fifth of a curve lies elsewhere than the first: Welch's t above 2.6, with at
    least five points in each."""
    part = len(points) // 5
    if part < 5:
        return False
    first, last = ([y for _, y in piece] for piece in (points[:part], points[-part:]))
    spread = sqrt((variance(first) + variance(last)) / part)
    return abs(fmean(last) - fmean(first)) > 2.6 * spread

"""Two policies on the same questions: which one is better, and how sure that is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p of McNemar's test, from the questions that one alone got right."""
    from scipy.stats import binomtest

    discordant = only_first + only_second
    return float(binomtest(only_second, discordant, 0.5).pvalue) if discordant else 1.0


def difference_interval(
    only_first: int, only_second: int, total: int, z: float = 1.96
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
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        outcomes = {f"{row['id']} {row.get('question', '')}": bool(row["correct"]) for row in rows}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} does not hold results with `id` and `correct`") from error
    if not outcomes:
        raise ConfigError(f"{path} is empty")
    return outcomes

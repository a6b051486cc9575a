"""pass@k against counting by hand, and the interval against known values."""

from __future__ import annotations

from itertools import combinations

import pytest

from sparring.evaluation.significance import mean_pass_at_k, pass_at_k, wilson


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_pass_at_k_is_the_share_of_all_draws(samples: int) -> None:
    for passed in range(samples + 1):
        results = [True] * passed + [False] * (samples - passed)
        for k in range(1, samples + 1):
            draws = list(combinations(results, k))
            assert pass_at_k(samples, passed, k) == pytest.approx(
                sum(map(any, draws)) / len(draws), abs=1e-12
            )


def test_pass_at_k_of_many_samples_does_not_overflow() -> None:
    # 1 - (1 - 1/1000)(1 - 1/999)…: the chance to hold the one right sample is k/n.
    assert pass_at_k(1000, 1, 100) == pytest.approx(0.1)
    assert pass_at_k(200, 200, 100) == 1.0


def test_impossible_counts_are_refused() -> None:
    for samples, passed, k in ((5, 6, 1), (5, -1, 1), (5, 1, 6), (5, 1, 0)):
        with pytest.raises(ValueError, match="cannot be estimated"):
            pass_at_k(samples, passed, k)


def test_mean_over_problems() -> None:
    assert mean_pass_at_k([(2, 1), (2, 0)], 1) == 0.25
    assert mean_pass_at_k([(2, 1), (2, 0)], 2) == 0.5


def test_wilson() -> None:
    low, high = wilson(5, 10)
    assert (round(low, 4), round(high, 4)) == (0.2366, 0.7634)
    assert wilson(0, 20)[0] == 0.0 and wilson(20, 20)[1] == pytest.approx(1.0)
    assert wilson(0, 0) == (0.0, 1.0)
    for n in range(1, 100):  # no share lies outside of its own interval
        assert wilson(0, n)[0] == 0 and wilson(n, n)[1] == 1

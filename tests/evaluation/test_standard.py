"""The one number of an evaluation that ranks: what it is made from, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.evaluation.arena import Score
from sparring.evaluation.standard import as_metrics, ranking

WELL, VOID = Score(10, 9, 0, 1, 0), Score(0, 0, 0, 0, 0, void=10)


def result(scores: dict[str, Score], exact: dict[str, float] | None = None) -> dict[str, Any]:
    exact = exact or {}
    plain = {opponent: score.as_dict() for opponent, score in scores.items()}
    rank = ranking(scores, exact, hidden=bool(exact))
    return {**plain, "exact": exact, "score": rank, "sampling": []}


def test_points_over_all_opponents() -> None:
    assert ranking({"random": WELL, "perfect": Score(4, 0, 2, 2, 0)}, {}, hidden=False) == (
        pytest.approx((0.9 + 0.25) / 2)
    )


def test_a_match_of_void_games_is_no_defeat() -> None:
    """A judge that broke must not look like a policy that collapsed."""
    assert ranking({"random": WELL, "perfect": VOID}, {}, hidden=False) is None
    other = {"random": WELL}
    flat = as_metrics({"a": result({"random": WELL, "perfect": VOID}), "b": result(other)})
    assert "eval/score" not in flat  # the mean would be of another game than before
    assert flat["eval/a/random/wins"] == 0.9 and "eval/a/perfect/wins" not in flat
    assert as_metrics({"a": result(other), "b": result(other)})["eval/score"] == 0.9


def test_where_no_match_is_asked_for_exact_measures_rank_alone() -> None:
    nothing = {"random": Score(0, 0, 0, 0, 0)}
    games = {"tictactoe": result(nothing), "kuhn": result(nothing, {"exploitability": 0.25})}
    assert as_metrics(games)["eval/score"] == -0.25
    assert "eval/score" not in as_metrics({"tictactoe": result(nothing)})

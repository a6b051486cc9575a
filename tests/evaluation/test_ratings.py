"""Ratings: the same in any order, equal for equals, right for known strengths, sure as they say."""

from __future__ import annotations

import asyncio
import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.core.types import Request, Sampling, Turn
from sparring.evaluation.arena import round_robin
from sparring.evaluation.ratings import ELO, Fit, Result, fit
from sparring.games.tictactoe import TicTacToe

SIX = [f"iteration {i}" for i in range(6)]


def elo(found: Fit) -> dict[str, float]:
    return {rating.name: rating.elo for rating in found.ratings}


def simulate(
    strengths: dict[str, float], draw: float, games: int, rng: np.random.Generator
) -> list[Result]:
    """Every pair, by the model's definition: win, draw and loss weigh √(π/π'), ν and √(π'/π)."""
    found = []
    for a, b in combinations(strengths, 2):
        ratio = math.exp((strengths[a] - strengths[b]) / ELO / 2)
        weights = np.array([ratio, draw, 1 / ratio])
        found.append(Result(a, b, *map(int, rng.multinomial(games, weights / weights.sum()))))
    return found


@pytest.mark.parametrize("ended", [(9, 2, 9), (10, 0, 10), (0, 20, 0), (1, 0, 1)])
def test_six_equal_players_are_equal(ended: tuple[int, int, int]) -> None:
    """Earlier checkpoint first, wins before losses: what an online rating makes progress of."""
    found = fit([Result(a, b, *ended) for a, b in combinations(SIX, 2)])
    assert elo(found) == dict.fromkeys(SIX, 0.0)
    widths = [rating.high - rating.low for rating in found.ratings]
    assert widths == pytest.approx([widths[0]] * 6) and widths[0] > 0


def test_where_the_earlier_one_wins_more_the_ladder_falls() -> None:
    found = fit([Result(a, b, 12, 0, 8) for a, b in combinations(SIX, 2)])
    assert [rating.name for rating in found.ratings] == SIX
    assert [rating.games for rating in found.ratings] == [100] * 6


counts = st.integers(0, 12)
tables = st.lists(
    st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde"), counts, counts, counts),
    min_size=1,
    max_size=15,
)


@settings(max_examples=25, deadline=None)
@given(tables, st.randoms())
def test_no_order_of_games_or_names_changes_a_digit(
    table: list[tuple[str, str, int, int, int]], random: object
) -> None:
    results = [Result(*row) for row in table]
    found = fit(results)
    apart = []
    for name, other, wins, draws, losses, _ in results:  # each game, half as the other saw it
        apart += [Result(name, other, 1, 0, 0)] * wins + [Result(other, name, 0, 1, 0)] * draws
        apart += [Result(other, name, 1, 0, 0)] * losses
    random.shuffle(apart)  # type: ignore[attr-defined]
    again = fit(apart)
    assert again.ratings == found.ratings and np.array_equal(again.covariance, found.covariance)
    for rating in found.ratings:
        assert math.isfinite(rating.low) and rating.low < rating.elo < rating.high


def test_without_draws_it_is_what_choix_finds() -> None:
    """choix 0.4.1, opt_pairwise with an L2 penalty of half the prior's precision, tol=1e-12; less
    its mean, times 400 / ln 10."""
    games = [("a", "b", 14, 6), ("a", "c", 9, 11), ("a", "d", 20, 0)]
    games += [("b", "c", 3, 7), ("c", "d", 5, 2), ("b", "d", 30, 12)]
    expected = {"a": 138.926325, "b": -41.601460, "c": 124.434874, "d": -221.759738}
    found = elo(fit([Result(a, b, w, 0, lost) for a, b, w, lost in games]))
    assert found == pytest.approx(expected, abs=2e-6)


def test_two_players_by_hand() -> None:
    """Without priors: wins / losses = e^d = 3, so 400·log10(3) = 190.8 points; ν = D/√(WL) =
    30/√2700, so equals draw a share of ν / (2 + ν). The priors, at 150 games, move this by 1 %."""
    found = fit([Result("a", "b", 90, 30, 30), Result("b", "a", 0, 0, 0)])
    gap, low, high = found.difference("a", "b")
    assert gap == pytest.approx(400 * math.log10(3), rel=0.01)
    nu = 30 / math.sqrt(2700)
    assert found.draw == pytest.approx(nu / (2 + nu), rel=0.02)
    # d = ln(W/L): its variance is 1/W + 1/L, the draws telling nothing of it.
    deviation = ELO * math.sqrt(1 / 90 + 1 / 30)
    assert (high - low) / 2 == pytest.approx(1.96 * deviation, rel=0.02)


def test_known_strengths_are_recovered() -> None:
    strengths = {"a": -300.0, "b": -120.0, "c": 0.0, "d": 140.0, "e": 280.0}
    found = fit(simulate(strengths, 0.7, 4000, np.random.default_rng(1)))
    assert elo(found) == pytest.approx(strengths, abs=12)
    assert found.draw == pytest.approx(0.7 / 2.7, abs=0.01)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    strengths = {"a": -200.0, "b": -50.0, "c": 50.0, "d": 200.0}
    rng, ratings, gaps = np.random.default_rng(2), 0, 0
    for _ in range(100):
        found = fit(simulate(strengths, 0.5, 20, rng))
        ratings += sum(r.low <= strengths[r.name] <= r.high for r in found.ratings)
        low, high = found.difference("d", "a")[1:]
        gaps += low <= 400 <= high
    assert 0.92 <= ratings / 400 <= 0.98
    assert 0.90 <= gaps / 100 <= 0.99


def test_who_won_everything_stays_finite_and_is_not_sure() -> None:
    few, many = (fit([Result("a", "b", n, 0, 0)]) for n in (2, 200))
    assert 0 < few.ratings[0].elo < many.ratings[0].elo < 2000
    assert few.ratings[0].low < 0 < many.ratings[0].low
    assert few.ratings[0].high - few.ratings[0].low > 500


def test_players_that_never_met_are_not_compared() -> None:
    found = fit([Result("a", "b", 15, 0, 5), Result("y", "x", 1, 0, 19), Result("z", "z", 5, 0, 0)])
    assert {r.name: r.pool for r in found.ratings} == {"a": 0, "b": 0, "x": 1, "y": 1}
    alone = fit([Result("a", "b", 15, 0, 5)])
    assert elo(found)["a"] == pytest.approx(elo(alone)["a"], abs=1e-5) == -elo(found)["b"]
    assert found.ratings[0].high == pytest.approx(alone.ratings[0].high, abs=1e-4)
    with pytest.raises(ValueError, match="no games connect a and x"):
        found.difference("a", "x")


def test_odd_results() -> None:
    assert fit([]).ratings == [] and fit([Result("a", "a", 1, 0, 0)]).ratings == []
    with pytest.raises(ValueError, match="no counts"):
        fit([Result("a", "b", 2, -1, 0)])


def test_a_round_robin_shares_the_seats_evenly() -> None:
    """X takes the first free cell and so wins every game: nobody is the stronger for it."""

    async def speak(request: Request) -> Turn:
        assert request.view is not None
        return Turn(request.seat, request.policy, "", request.view.actions[0])

    players = ["a", "b", "c"]
    results = asyncio.run(
        round_robin("tictactoe", TicTacToe(), speak, players, 5, sampling=Sampling())
    )
    assert [tuple(r) for r in results] == [
        ("a", "b", 3, 0, 3, 0),
        ("a", "c", 3, 0, 3, 0),
        ("b", "c", 3, 0, 3, 0),
    ]
    assert elo(fit(results)) == {"a": 0, "b": 0, "c": 0}

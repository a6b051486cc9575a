"""Empirical games: against nashpy and OpenSpiel, and by hand."""

import itertools

import numpy as np
import pytest

from sparring.evaluation.population import Population, alpha_rank, nash
from sparring.evaluation.ratings import Result, fit

ROCK_PAPER_SCISSORS = [
    Result("rock", "scissors", 90, 0, 10),
    Result("scissors", "paper", 90, 0, 10),
    Result("paper", "rock", 90, 0, 10),
]


def antisymmetric(count: int, seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).uniform(-1, 1, (count, count))
    return (noise - noise.T) / 2


def test_rock_paper_scissors_is_a_cycle_with_a_uniform_mixture() -> None:
    population = Population.of(["rock", "paper", "scissors"], ROCK_PAPER_SCISSORS)
    assert population.payoffs.tolist() == [[0, -0.8, 0.8], [0.8, 0, -0.8], [-0.8, 0.8, 0]]
    assert population.cycles() == [["rock", "scissors", "paper"]]
    for kind in ("nash", "alpharank", "uniform"):
        assert population.mixture(kind) == pytest.approx(
            {"rock": 1 / 3, "paper": 1 / 3, "scissors": 1 / 3}
        )
    # One number for each hides all of that: everybody is equally strong.
    assert [round(r.elo) for r in fit(ROCK_PAPER_SCISSORS).ratings] == [0, 0, 0]
    assert population.summary()["cycles"] == [["rock", "scissors", "paper"]]


def test_a_ladder_has_no_cycle_and_its_best_player_is_all_of_the_mixture() -> None:
    results = [Result("a", "b", 70, 10, 20), Result("b", "c", 70, 10, 20)]
    population = Population.of(["a", "b", "c"], [*results, Result("a", "c", 90, 0, 10)])
    assert population.cycles() == []
    assert population.mixture("nash") == pytest.approx({"a": 1, "b": 0, "c": 0})
    ranks = population.mixture("alpharank")
    assert ranks["a"] > 0.99


def test_payoffs_are_amounts_where_there_are_some() -> None:
    """The caller takes six small pots of ten, the raiser three large ones."""
    result = Result("caller", "raiser", 60, 10, 30, reward=(60 * 1 - 30 * 4) / 100)
    population = Population.of(["caller", "raiser"], [result])
    assert population.payoffs.tolist() == [[0, -0.6], [0.6, 0]]
    assert population.mixture("nash") == pytest.approx({"caller": 0, "raiser": 1})
    # Ratings and cycles are about games won.
    assert fit([result]).ratings[0].name == "caller"
    assert population.beats().tolist() == [[False, True], [False, False]]


def test_a_few_games_make_no_cycle() -> None:
    """Two of three wins are chance."""
    few = [Result(r.player, r.other, 2, 0, 1) for r in ROCK_PAPER_SCISSORS]
    assert Population.of(["rock", "paper", "scissors"], few).cycles() == []


def test_a_longer_circle_is_found() -> None:
    names = list("abcde")
    results = [Result(x, y, 60, 0, 4) for x, y in itertools.pairwise([*names, "a"])]
    assert Population.of(names, results).cycles() == [names]


def test_equals_are_met_equally_often() -> None:
    """Of all equilibria the flattest: players who have not met, and copies of one player."""
    assert nash(np.zeros((4, 4)))[0] == pytest.approx([0.25] * 4, abs=1e-6)
    copies = np.array([[0, -1, 1, 1], [1, 0, -1, -1], [-1, 1, 0, 0], [-1, 1, 0, 0.0]])
    assert nash(copies)[0] == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_nash_is_nashpys(seed: int) -> None:
    nashpy = pytest.importorskip("nashpy", reason="nashpy is not installed")
    payoffs = antisymmetric(3 + seed % 4, seed)
    row, column = nash(payoffs)
    # A random game of this kind has one equilibrium.
    expected = next(iter(nashpy.Game(payoffs, -payoffs).support_enumeration()))
    assert row == pytest.approx(expected[0], abs=1e-6)
    assert column == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize("seed", range(10))
def test_nash_of_two_leagues_is_nashpys(seed: int) -> None:
    """Two learned policies with a league each: a zero-sum game that is not symmetric."""
    nashpy = pytest.importorskip("nashpy", reason="nashpy is not installed")
    payoffs = np.random.default_rng(seed).uniform(-1, 1, (3, 4))
    row, column = nash(payoffs)
    expected = nashpy.Game(payoffs).linear_program()
    assert row == pytest.approx(expected[0], abs=1e-6)
    assert column == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize("alpha", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("seed", range(10))
def test_alpha_rank_is_openspiels(seed: int, alpha: float) -> None:
    pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    from open_spiel.python.egt import alpharank

    payoffs = antisymmetric(2 + seed % 5, seed)
    *_, expected, _, _ = alpharank.compute([payoffs], m=20, alpha=alpha)
    assert alpha_rank(payoffs, alpha, 20) == pytest.approx(expected, abs=1e-7)


def test_alpha_rank_of_payoffs_that_leave_nothing_to_chance() -> None:
    """Rates between 1 and 1e-43, where an eigenvalue solver finds noise."""
    ladder = np.triu(np.ones((4, 4)), 1) - np.tril(np.ones((4, 4)), -1)
    assert alpha_rank(ladder) == pytest.approx([1, 0, 0, 0], abs=1e-9)


def test_alpha_rank_of_large_payoffs() -> None:
    """Beyond what a float64 can exponentiate: from chips, and by fractions of 4,000 digits."""
    circle = np.array([[0, 1, -0.5], [-1, 0, 0.7], [0.5, -0.7, 0]])
    assert alpha_rank(1000 * circle) == pytest.approx([1 / 3] * 3)
    assert alpha_rank(np.array([[0.0, 400], [-400, 0]])) == pytest.approx([1, 0])
    chips = np.array([[0, -32.5, -13.3], [32.5, 0, -14.2], [13.3, 14.2, 0]])
    assert alpha_rank(chips) == pytest.approx([0, 0, 1])
    equals = np.array([[0, 0, -50.0], [0, 0, -50], [50, 50, 0]])
    assert alpha_rank(equals[:2, :2]) == pytest.approx([0.5, 0.5])
    assert alpha_rank(-equals) == pytest.approx([0.5, 0.5, 0])

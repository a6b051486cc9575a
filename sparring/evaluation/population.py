"""Players as an empirical game: the payoff of each against each, from games on record, and what
follows from it: a Nash mixture, alpha-rank, ratings, and the cycles that no rating can show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sparring.evaluation.ratings import MODEL, Result, fit
from sparring.evaluation.significance import wilson

Mixture = Literal["prioritised", "uniform", "nash", "alpharank"]
Matrix = np.ndarray[Any, Any]
ALPHA, POPULATION = 1.0, 50  # alpha-rank: intensity of selection, individuals


@dataclass(frozen=True)
class Population:
    """`games[i, j]` counts the games of i against j, `payoffs[i, j]` is the mean reward of i in
    them, net of what j got, and 0 where they have not met. Both are about seats taken in turn, so
    the game is symmetric and zero-sum: payoffs are antisymmetric."""

    names: list[str]
    games: Matrix
    payoffs: Matrix
    results: list[Result]

    @classmethod
    def of(cls, names: Sequence[str], results: Iterable[Result]) -> Population:
        at = {name: i for i, name in enumerate(names)}
        kept = [r for r in results if r.player in at and r.other in at and r.player != r.other]
        games, totals = np.zeros((len(at), len(at))), np.zeros((len(at), len(at)))
        for result in kept:
            i, j = at[result.player], at[result.other]
            games[i, j] += result.games
            games[j, i] += result.games
            totals[i, j] += result.payoff
            totals[j, i] -= result.payoff
        return cls(list(names), games, totals / np.maximum(games, 1), kept)

    def mixture(self, kind: Mixture) -> dict[str, float]:
        """How often each is met; `prioritised` depends on who asks, and is none of this."""
        if kind == "nash":
            weights = nash(self.payoffs)[1]
        elif kind == "alpharank":
            weights = alpha_rank(self.payoffs)
        else:
            weights = np.full(len(self.names), 1 / max(1, len(self.names)))
        return dict(zip(self.names, map(float, weights), strict=True))

    def beats(self) -> Matrix:
        """Whether i won more than half of the games with j that were decided, beyond chance: the
        95 % interval of the share (Wilson) lies above a half."""
        wins = np.zeros_like(self.games)
        at = {name: i for i, name in enumerate(self.names)}
        for r in self.results:
            wins[at[r.player], at[r.other]] += r.wins
            wins[at[r.other], at[r.player]] += r.losses
        decided = wins + wins.T
        below: Matrix = np.vectorize(lambda won, games: wilson(won, games)[0])(wins, decided)
        return below > 0.5

    def cycles(self) -> list[list[str]]:
        """For each group whose members all beat each other in a circle, a shortest circle: each
        beats the next, the last one the first."""
        from scipy.sparse.csgraph import connected_components, shortest_path

        beats = self.beats()
        steps, before = shortest_path(beats, unweighted=True, return_predecessors=True)
        _, group = connected_components(beats, directed=True, connection="strong")
        shortest: dict[int, tuple[float, int, int]] = {}  # by group: steps from i to j, who beats i
        for j, i in np.argwhere(beats):
            if group[i] == group[j]:
                way = (steps[i, j], int(i), int(j))
                shortest[group[i]] = min(shortest.get(group[i], way), way)
        circles = []
        for _, i, j in sorted(shortest.values(), key=lambda way: way[1:]):
            circle = [j]
            while circle[0] != i:
                circle.insert(0, int(before[i, circle[0]]))
            circles.append([self.names[k] for k in circle])
        return circles

    def summary(self) -> dict[str, Any]:
        """Everything there is to say of it, as plain data."""
        fitted = fit(self.results)
        return {
            "players": self.names,
            "payoffs": self.payoffs.round(6).tolist(),
            "games": self.games.astype(int).tolist(),
            "nash": self.mixture("nash"),
            "alpharank": self.mixture("alpharank"),
            "cycles": self.cycles(),
            "ratings": [rating._asdict() for rating in fitted.ratings],
            "model": MODEL,
            "results": [result._asdict() for result in self.results],
        }


def nash(payoffs: Matrix) -> tuple[Matrix, Matrix]:
    """A Nash equilibrium of a zero-sum game by the row player's payoffs, as both players' mixtures;
    of all equilibria, the one of the highest entropy, so that equals are met equally often."""
    return _maximin(payoffs), _maximin(-payoffs.T)


def _maximin(payoffs: Matrix) -> Matrix:
    """The row player's mixture with the best worst case, by a linear programme for the value and a
    convex one for the entropy among the mixtures that reach it."""
    from scipy.optimize import linprog, minimize

    rows, columns = payoffs.shape
    if rows == 1:
        return np.ones(1)
    # Variables: the mixture, then the value, which every column must grant at least.
    solved = linprog(
        [*np.zeros(rows), -1.0],
        A_ub=np.hstack([-payoffs.T, np.ones((columns, 1))]),
        b_ub=np.zeros(columns),
        A_eq=[[*np.ones(rows), 0.0]],
        b_eq=[1.0],
        bounds=[(0, 1)] * rows + [(None, None)],
    )
    mixture, value = solved.x[:-1], solved.x[-1]
    flattest = minimize(
        lambda x: float(np.sum(x * np.log(np.maximum(x, 1e-12)))),
        mixture * 0.5 + 0.5 / rows,
        jac=lambda x: np.log(np.maximum(x, 1e-12)) + 1,
        bounds=[(0, 1)] * rows,
        constraints=[
            {"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones(rows)},
            {
                "type": "ineq",
                "fun": lambda x: x @ payoffs - value,
                "jac": lambda x: payoffs.T,
            },
        ],
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    flat = np.clip(flattest.x, 0, None)
    reached = float((flat / flat.sum() @ payoffs).min()) if flat.sum() > 0 else -np.inf
    best = flat if reached >= value - 1e-6 else np.clip(mixture, 0, None)
    best = np.where(best < 1e-9, 0, best)
    rounded: Matrix = np.round(best / best.sum(), 9)  # no digits of the solver's
    return rounded / rounded.sum()


def alpha_rank(payoffs: Matrix, alpha: float = ALPHA, individuals: int = POPULATION) -> Matrix:
    """How much of its time a population spends on each strategy, where now and then a mutant
    appears and takes over with its fixation probability: alpha-rank of a symmetric game with one
    population (Omidshafiei et al. 2019)."""
    count = len(payoffs)
    if count < 2:
        return np.ones(count)
    gain = alpha * (payoffs.T - payoffs)  # [i, j]: of a mutant j among i
    size = np.where(np.abs(gain) < 1e-12, 1.0, np.abs(gain))
    fixation = np.log(-np.expm1(-size)) - np.log(-np.expm1(-individuals * size))
    fixation += (individuals - 1) * np.minimum(gain, 0)
    fixation = np.where(np.abs(gain) < 1e-12, -np.log(individuals), fixation)
    return _stationary(fixation - np.log(count - 1))


def _stationary(log_rates: Matrix) -> Matrix:
    """The stationary distribution of a Markov chain by the logs of its rates of change between
    states, by elimination without subtraction (Grassmann, Taksar and Heyman). All in logs: payoffs
    of some ten chips make rates, and shares, that differ by more than a float64 can hold."""
    left = log_rates.copy()
    count = len(left)
    for k in range(count - 1, 0, -1):
        left[:k, k] -= np.logaddexp.reduce(left[k, :k])
        left[:k, :k] = np.logaddexp(left[:k, :k], left[:k, k, None] + left[k, :k])
    shares = np.zeros(count)
    for k in range(1, count):
        shares[k] = np.logaddexp.reduce(shares[:k] + left[:k, k])
    normal: Matrix = np.exp(shares - np.logaddexp.reduce(shares))
    return normal / normal.sum()

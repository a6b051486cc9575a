"""Ratings from games: Bradley–Terry with draws, fitted to all results at once. The order of games
says nothing, and how sure a rating is stands beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparring.evaluation.significance import Z

ELO = 400 / math.log(10)  # points of a nat: with 400 more one wins ten games for each lost
PRIOR = 800.0  # points: standard deviation of a strength, before any game, about its pool's mean
DRAW_PRIOR = 2.0  # nats: standard deviation of the log of how often equals draw
_NEVER = -1000.0  # a logit that is as good as none
MODEL = (
    "Bradley-Terry with draws (Davidson), most likely given all games; Elo points about the mean "
    f"of 0; normal priors of {PRIOR:g} points on strengths and {DRAW_PRIOR:g} nats on draws; 95 % "
    "intervals from the curvature at the mode"
)


class Result(NamedTuple):
    """All games of one player against another, as the first saw them."""

    player: str
    other: str
    wins: int
    draws: int
    losses: int
    reward: float | None = None  # mean per game; None: 1 for a win, -1 for a loss

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def payoff(self) -> float:
        """Summed over the games."""
        return self.wins - self.losses if self.reward is None else self.reward * self.games


class Rating(NamedTuple):
    """Elo points, the 95 % interval, and who can be compared: those of one pool have met, or have
    met others who have."""

    name: str
    elo: float
    low: float
    high: float
    games: int
    pool: int


@dataclass(frozen=True)
class Fit:
    """`ratings` has the best first; `covariance` is theirs, in points², in the same order."""

    ratings: list[Rating]
    covariance: np.ndarray[Any, Any]
    draw: float  # share of draws between equals

    def difference(self, name: str, other: str) -> tuple[float, float, float]:
        """How many points stronger a player is than another of its pool, and the 95 % interval,
        which is not that of either: what both owe to the same opponents cancels."""
        at = {rating.name: i for i, rating in enumerate(self.ratings)}
        i, j = at[name], at[other]
        if self.ratings[i].pool != self.ratings[j].pool:
            raise ValueError(f"no games connect {name} and {other}: nobody knows who is stronger")
        gap = self.ratings[i].elo - self.ratings[j].elo
        cov = self.covariance
        deviation = math.sqrt(max(0.0, cov[i, i] + cov[j, j] - 2 * cov[i, j]))
        return gap, gap - Z * deviation, gap + Z * deviation


def fit(results: Iterable[Result]) -> Fit:
    """The ratings under which these results are the most likely.

    With d the difference of two strengths and e^δ the weight of a draw, the logits of win, draw
    and loss are d/2, δ and −d/2. The priors keep whoever won or lost everything finite, and each
    pool's mean at 0.
    """
    from scipy.optimize import minimize
    from scipy.sparse.csgraph import connected_components

    counts = _counts(results)
    names = sorted({name for pair in counts for name in pair})
    if not names:
        return Fit([], np.zeros((0, 0)), math.nan)
    number = {name: i for i, name in enumerate(names)}
    pairs = np.array([[number[a], number[b]] for a, b in counts])
    ended = np.array(list(counts.values()), dtype=float)
    precision = np.array([(ELO / PRIOR) ** 2] * len(names) + [DRAW_PRIOR**-2])
    solved = minimize(
        lambda x: _objective(x, pairs, ended, precision)[0],
        np.zeros(len(names) + 1),
        jac=lambda x: _objective(x, pairs, ended, precision)[1],
        hess=lambda x: _objective(x, pairs, ended, precision)[2],
        method="trust-exact",
        options={"gtol": 1e-9},
    )
    met = np.zeros((len(names), len(names)))
    met[pairs[:, 0], pairs[:, 1]] = 1
    _, pool = connected_components(met, directed=False)
    # A rating is about its pool's mean, so what is not known of that mean is no part of it.
    same = (pool[:, None] == pool[None, :]).astype(float)
    centre = np.eye(len(names)) - same / same.sum(1, keepdims=True)
    covariance = np.linalg.inv(_objective(solved.x, pairs, ended, precision)[2])[:-1, :-1]
    covariance = ELO**2 * centre @ covariance @ centre.T
    elo = np.round(ELO * centre @ solved.x[:-1], 6) + 0.0  # no digits of the solver's, no −0
    played = np.bincount(pairs.ravel(), np.repeat(ended.sum(1), 2), len(names))
    order = sorted(range(len(names)), key=lambda i: (pool[i], -elo[i], names[i]))
    ratings = []
    for i in order:
        width = Z * math.sqrt(max(0.0, covariance[i, i]))
        at = float(elo[i])
        ratings.append(Rating(names[i], at, at - width, at + width, int(played[i]), int(pool[i])))
    weight = math.exp(solved.x[-1]) if ended[:, 1].any() else 0.0
    return Fit(ratings, covariance[np.ix_(order, order)], weight / (weight + 2))


def _counts(results: Iterable[Result]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Wins, draws and losses by pair, in an order that is the names' own."""
    totals: dict[tuple[str, str], tuple[int, int, int]] = {}
    for name, other, wins, draws, losses, _ in results:
        if min(wins, draws, losses) < 0:
            raise ValueError(f"{name} against {other}: {wins}, {draws}, {losses} are no counts")
        if name == other or not wins + draws + losses:
            continue  # a game against oneself says nothing about strength
        one, two, ended = name, other, (wins, draws, losses)
        if name > other:
            one, two, ended = other, name, (losses, draws, wins)
        before = totals.get((one, two), (0, 0, 0))
        totals[one, two] = (before[0] + ended[0], before[1] + ended[1], before[2] + ended[2])
    return dict(sorted(totals.items()))


def _objective(
    x: np.ndarray[Any, Any],
    pairs: np.ndarray[Any, Any],
    ended: np.ndarray[Any, Any],
    precision: np.ndarray[Any, Any],
) -> tuple[float, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Minus the log posterior of strengths and δ, its gradient and its Hessian; convex.

    P pairs, K = 3 endings, N strengths and δ. A game's logits are linear in them.
    """
    from scipy.special import logsumexp

    at, drawn = np.arange(len(pairs)), bool(ended[:, 1].any())
    design_PKN = np.zeros((len(pairs), 3, len(x)))
    for player, sign in ((0, 0.5), (1, -0.5)):
        design_PKN[at, 0, pairs[:, player]] = sign
        design_PKN[at, 2, pairs[:, player]] = -sign
    design_PKN[:, 1, -1] = drawn
    # Where no game was drawn a draw has no weight: plain Bradley–Terry.
    logits_PK = design_PKN @ x + np.array([0.0, 0.0 if drawn else _NEVER, 0.0])
    log_chance_PK = logits_PK - logsumexp(logits_PK, axis=1, keepdims=True)
    games_P, chance_PK = ended.sum(1), np.exp(log_chance_PK)
    value = float(0.5 * (precision * x * x).sum() - (ended * log_chance_PK).sum())
    expected_PK = games_P[:, None] * chance_PK
    gradient = precision * x + np.einsum("pk,pkn->n", expected_PK - ended, design_PKN)
    mean_PN = np.einsum("pk,pkn->pn", chance_PK, design_PKN)
    centred_PKN = design_PKN - mean_PN[:, None]
    hessian = np.diag(precision) + np.einsum(
        "pk,pkn,pkm->nm", expected_PK, centred_PKN, centred_PKN, optimize=True
    )
    return value, gradient, hessian

"""Ratings over checkpoints: who beats whom, as one ladder that a person can read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Result = tuple[str, str, float]  # name, other name, score of the first: 1, 0.5 or 0


class Rung(NamedTuple):
    """One rated player. `ordinal` is mu - 3 sigma: a skill it has almost surely."""

    name: str
    mu: float
    sigma: float
    ordinal: float
    games: int


def ladder(results: Iterable[Result]) -> list[Rung]:
    """The best first, by ordinal; ties by name. Plackett-Luce, updated in the given order."""
    from openskill.models import PlackettLuce
    from openskill.models.weng_lin.plackett_luce import PlackettLuceRating

    model = PlackettLuce()
    ratings: dict[str, PlackettLuceRating] = {}
    games: dict[str, int] = {}
    for name, other, score in results:
        if score not in (0, 0.5, 1):
            raise ValueError(f"{name} against {other}: a score is 1, 0.5 or 0, not {score}")
        if name == other:
            continue  # a game against oneself says nothing about strength
        for player in (name, other):
            ratings.setdefault(player, model.rating(name=player))
            games[player] = games.get(player, 0) + 1
        rated = model.rate([[ratings[name]], [ratings[other]]], scores=[score, 1 - score])
        ratings[name], ratings[other] = rated[0][0], rated[1][0]
    rungs = [Rung(n, r.mu, r.sigma, r.ordinal(), games[n]) for n, r in ratings.items()]
    return sorted(rungs, key=lambda rung: (-rung.ordinal, rung.name))

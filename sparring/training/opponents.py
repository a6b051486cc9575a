"""Who sits opposite: oneself, a frozen or historical self, a program, or a player by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparring.core.scripted import PROGRAMS
from sparring.core.types import BASE, MAIN, Episode
from sparring.run.config import OpponentsConfig

if TYPE_CHECKING:
    from sparring.models.policies import Policies


def league_weights(scores: Sequence[float], hard: float) -> list[float]:
    """Opponents that take more points from us are met more often; none is forgotten."""
    return [(1.05 - score) ** hard for score in scores]


class Opponents:
    """Seats players for each game, and keeps the league of historical selves."""

    def __init__(self, config: OpponentsConfig, players: Mapping[str, str]) -> None:
        self.config, self.players = config, dict(players)
        self.league: list[str] = []
        self.scores: dict[str, float] = {}  # our running share of points against each

    def seating(self, seats: Sequence[str], index: int, seed: int) -> dict[str, str]:
        """Who plays where in the games of one group. The learner changes seats from one index to
        the next."""
        own = self.own(seats)
        rng = random.Random(seed)
        if self.config.kind == "self" or rng.random() >= self.config.share:
            return own
        keeps = seats[index % len(seats)]
        other = self._choose(rng, own[keeps])
        return {seat: own[seat] if seat == keeps else other for seat in seats}

    def own(self, seats: Sequence[str]) -> dict[str, str]:
        """The players whose seats these are."""
        return {seat: self.players.get(seat, MAIN) for seat in seats}

    def _choose(self, rng: random.Random, own: str) -> str:
        if self.config.kind in PROGRAMS:
            return self.config.kind
        if self.config.kind == "frozen":
            return BASE
        if self.config.kind == "players":
            return rng.choice(self.config.players)
        if not self.league:
            return own
        scores = [self.scores.get(name, 0.5) for name in self.league]
        return rng.choices(self.league, league_weights(scores, self.config.hard))[0]

    def learn_scores(self, results: Sequence[tuple[str, float]], rate: float = 0.05) -> None:
        """Results against league members: (name, our points in 0 … 1)."""
        for name, points in results:
            if name in self.league:
                self.scores[name] = self.scores.get(name, 0.5) * (1 - rate) + points * rate

    def grow(self, policies: Policies, iteration: int) -> None:
        """Every so often today's self joins the league; the easiest member of a full one leaves."""
        if self.config.kind != "league" or iteration % self.config.every:
            return
        name = f"{MAIN}@{iteration}"
        if name in self.league:
            return
        policies.add(name, MAIN)
        self.league.append(name)
        if len(self.league) > self.config.size:
            easiest = max(self.league[:-1], key=lambda n: self.scores.get(n, 0.5))
            self.league.remove(easiest)
            self.scores.pop(easiest, None)
            policies.remove(easiest)

    def state(self) -> dict[str, Any]:
        return {"league": self.league, "scores": self.scores}

    def load(self, state: dict[str, Any], policies: Policies) -> None:
        """Names and scores; the members' weights are loaded by the checkpoint."""
        for name in self.league:
            policies.remove(name)
        self.league, self.scores = list(state["league"]), dict(state["scores"])
        for name in self.league:
            policies.add(name, MAIN)


def against_league(episodes: list[Episode]) -> list[tuple[str, float]]:
    """Our points in each game against a historical self: 1, a half or 0."""
    results = []
    for episode in episodes:
        mine = [s for s, policy in episode.seating.items() if policy == MAIN]
        others = [s for s, policy in episode.seating.items() if policy.startswith(f"{MAIN}@")]
        if mine and others and episode.void is None:
            gap = episode.rewards[mine[0]] - episode.rewards[others[0]]
            results.append((episode.seating[others[0]], 0.5 + 0.5 * ((gap > 0) - (gap < 0))))
    return results

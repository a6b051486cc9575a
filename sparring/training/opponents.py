"""Who sits opposite: oneself, a frozen or historical self, a program, or a player by name. The
league is an empirical game: when a policy joins, matches against the other members give the payoffs
that mixtures are computed from."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sparring.core.scripted import PROGRAMS, STRONG, seated_as
from sparring.core.types import BASE, MAIN, Episode, derive
from sparring.evaluation.arena import match
from sparring.evaluation.population import Population, nash
from sparring.evaluation.ratings import Result
from sparring.evaluation.sampling import as_trained
from sparring.run.config import OpponentsConfig
from sparring.run.rundir import write_json

if TYPE_CHECKING:
    from sparring.models.policies import Policies
    from sparring.training.state import Parts

POPULATION = "population.json"
MEASURED = ("nash", "alpharank")  # mixtures that need games between the members


def league_weights(scores: Sequence[float], hard: float) -> list[float]:
    """Opponents that take more points from us are met more often; none is forgotten."""
    return [(1.05 - score) ** hard for score in scores]


def owner(member: str) -> str:
    """The policy that a historical self is one of."""
    return member.rpartition("@")[0] or MAIN


class Opponents:
    """Seats players for each game, and keeps the league: the historical selves of each policy that
    learns, and the players that `opponents.players` adds to them."""

    def __init__(
        self,
        config: OpponentsConfig,
        players: Mapping[str, str],
        learned: Sequence[str] = (MAIN,),
    ) -> None:
        self.config, self.players, self.learned = config, dict(players), list(learned)
        self.league: list[str] = []
        self.scores: dict[str, float] = {}  # our running share of points against each
        self.results: list[Result] = []  # of members against each other
        self._mixtures: dict[object, list[float]] = {}

    def seating(
        self, seats: Sequence[str], index: int, seed: int, learning: Collection[str] = ()
    ) -> dict[str, str]:
        """Who plays where in the games of one group. The learner changes seats from one index to
        the next, among those that learn: against an opponent in each of them nothing is learned."""
        own = self.own(seats)
        rng = random.Random(seed)
        if self.config.kind == "self" or rng.random() >= self.config.share:
            return own
        kept = [seat for seat in seats if seat in learning] or seats
        keeps = kept[index % len(kept)]
        seating = {keeps: own[keeps]}
        chosen: dict[str, str] = {}  # one opponent of each league that other seats belong to
        for seat in seats:
            if seat != keeps:
                league = own[seat] if self.config.kind == "league" else ""
                if league not in chosen:
                    chosen[league] = self._choose(rng, own[seat])
                seating[seat] = chosen[league]
        return {seat: seating[seat] for seat in seats}

    def own(self, seats: Sequence[str]) -> dict[str, str]:
        """The players whose seats these are."""
        return {seat: self.players.get(seat, MAIN) for seat in seats}

    def members(self, policy: str) -> list[str]:
        """Whom the others may meet in this policy's seats."""
        return [name for name in self.league if owner(name) == policy] + self.config.players

    def everyone(self) -> list[str]:
        """All who may be met besides the policies that learn."""
        return [*self.league, *self.config.players]

    def _choose(self, rng: random.Random, policy: str) -> str:
        if self.config.kind in PROGRAMS:
            return self.config.kind
        if self.config.kind == "frozen":
            return BASE
        if self.config.kind == "players":
            weights = self.config.weights
            players = self.config.players
            return rng.choices(players, weights)[0] if weights else rng.choice(players)
        members = self.members(policy)
        return rng.choices(members, self.weights(policy))[0] if members else policy

    def weights(self, policy: str) -> list[float]:
        """How often each member of a policy's league is met, by the mixture of the config."""
        members, kind = self.members(policy), self.config.mixture
        if kind == "prioritised":
            scores = [self.scores.get(name, 0.5) for name in members]
            return league_weights(scores, self.config.hard)
        key = (*members, len(self.results))
        if key not in self._mixtures:
            self._mixtures[key] = self._mixture(policy, members)
        return self._mixtures[key]

    def _mixture(self, policy: str, members: list[str]) -> list[float]:
        others = [name for name in self.learned if name != policy]
        if self.config.mixture != "nash" or len(self.learned) != 2:
            return list(Population.of(members, self.results).mixture(self.config.mixture).values())
        # Two policies with seats of their own: a zero-sum game between two leagues.
        rows = self.members(others[0])
        whole = Population.of(list(dict.fromkeys([*rows, *members])), self.results)
        at = {name: i for i, name in enumerate(whole.names)}
        between = whole.payoffs[np.ix_([at[n] for n in rows], [at[n] for n in members])]
        return [float(weight) for weight in nash(between)[1]]

    def learn_scores(self, results: Sequence[tuple[str, float]], rate: float = 0.05) -> None:
        """Results against league members: (name, our points in 0 … 1)."""
        for name, points in results:
            if name in self.everyone():
                self.scores[name] = self.scores.get(name, 0.5) * (1 - rate) + points * rate

    def grow(self, policies: Policies, iteration: int) -> list[str]:
        """Every so often today's selves join their leagues; the easiest member of a full one
        leaves. Returns who joined."""
        if self.config.kind != "league" or iteration % self.config.every:
            return []
        joined = [name for p in self.learned if (name := f"{p}@{iteration}") not in self.league]
        for name in joined:
            policies.add(name, owner(name))
            self.league.append(name)
            before = [n for n in self.league[:-1] if owner(n) == owner(name)]
            if len(before) >= self.config.size:
                easiest = max(before, key=lambda n: self.scores.get(n, 0.5))
                self.league.remove(easiest)
                self.scores.pop(easiest, None)
                self.results = [r for r in self.results if easiest not in r[:2]]
                policies.remove(easiest)
        return joined

    def to_play(self, joined: Iterable[str]) -> list[tuple[str, str]]:
        """The pairs of members that have to meet before the mixture is known again."""
        if self.config.mixture not in MEASURED:
            return []
        met = {frozenset(result[:2]) for result in self.results}
        apart = len(self.learned) > 1  # then seats have owners, and members of one never meet
        players = self.config.players
        pairs = []
        for name in joined:
            for other in self.everyone():
                if apart and {name, other} <= {*players}:
                    continue  # they are in each league, and neither has seats of its own
                rival = other in players or not apart or owner(other) != owner(name)
                if other != name and rival and frozenset((name, other)) not in met:
                    met.add(frozenset((name, other)))
                    pairs.append((name, other))
        return pairs

    def state(self) -> dict[str, Any]:
        return {
            "league": self.league,
            "scores": self.scores,
            "results": [list(result) for result in self.results],
        }

    def load(self, state: dict[str, Any], policies: Policies) -> None:
        """Names, scores and results; the members' weights are loaded by the checkpoint."""
        for name in self.league:
            policies.remove(name)
        self.league, self.scores = list(state["league"]), dict(state["scores"])
        self.results = [Result(*result) for result in state["results"]]
        for name in self.league:
            policies.add(name, owner(name))


def against_league(episodes: list[Episode], members: Iterable[str]) -> list[tuple[str, float]]:
    """Our points in each game against a member of the league: 1, a half or 0. A seat that was never
    asked may have no reward, and is not compared."""
    known, points = {name: name for name in members}, []
    for name in [name for name in STRONG if name in known]:
        for program in STRONG:  # as it sits in a game that has only the other one
            known.setdefault(program, name)
    for episode in episodes:
        asked = {s: policy for s, policy in episode.seating.items() if s in episode.rewards}
        mine = [s for s, policy in asked.items() if policy not in known]
        others = [s for s, policy in asked.items() if policy in known]
        if mine and others and episode.void is None:
            gap = episode.rewards[mine[0]] - episode.rewards[others[0]]
            points.append((known[asked[others[0]]], 0.5 + 0.5 * ((gap > 0) - (gap < 0))))
    return points


async def measure(parts: Parts, joined: Iterable[str]) -> None:
    """Play the matches that are missing, and keep their results."""
    opponents, sampling = parts.opponents, as_trained(parts.config)
    for name, other in opponents.to_play(joined):
        wins = draws = losses = 0
        total = 0.0
        for game_name, game in parts.games.items():
            if len(game.seats) < 2:
                continue
            own = opponents.own(game.seats)
            apart = len(set(own.values())) > 1  # then seats are their owners', not taken in turn
            result, _ = await match(
                game_name, game, parts.engine.act, seated_as(game, name), seated_as(game, other),
                opponents.config.matches,
                sampling=sampling, seed=derive(parts.config.seed, name, other),
                own=[seat for seat in game.seats if own[seat] == owner(name)] if apart else (),
            )  # fmt: skip
            wins, draws, losses = wins + result.wins, draws + result.draws, losses + result.losses
            total += result.reward * result.games
        mean = total / max(1, wins + draws + losses)
        opponents.results.append(Result(name, other, wins, draws, losses, mean))


def write_population(opponents: Opponents, run: Path, iteration: int) -> None:
    """The league as it stands, for the report and for runs that train against it."""
    names = opponents.everyone()
    if not names:  # all that had joined went with a roll-back
        (run / POPULATION).unlink(missing_ok=True)
        return
    policies = opponents.learned
    shares = {
        p: dict(zip(opponents.members(p), opponents.weights(p), strict=True)) for p in policies
    }
    summary: dict[str, Any] = {
        "iteration": iteration,
        "kind": opponents.config.mixture,
        "mixture": {
            policy: {name: weight / sum(of.values()) for name, weight in of.items()}
            for policy, of in shares.items()
            if of
        },
        "scores": opponents.scores,
        # The newest checkpoint holds the weights of all members.
        "policies": {
            name: name if name in opponents.config.players else f"{run}@last:{name}"
            for name in names
        },
        **Population.of(names, opponents.results).summary(),
    }
    write_json(run / POPULATION, summary)

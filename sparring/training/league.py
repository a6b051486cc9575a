"""The league as an empirical game: when a policy joins, matches against the other members give the
payoffs that mixtures are computed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sparring.core.game import Game
from sparring.core.table import Speak
from sparring.core.types import Sampling, derive
from sparring.evaluation.arena import match
from sparring.evaluation.population import Population
from sparring.evaluation.ratings import Result
from sparring.run.rundir import write_json
from sparring.training.opponents import Opponents, owner

POPULATION = "population.json"


async def measure(
    opponents: Opponents,
    joined: Iterable[str],
    games: Mapping[str, Game],
    speak: Speak,
    sampling: Sampling,
    seed: int,
) -> None:
    """Play the matches that are missing, and keep their results."""
    for name, other in opponents.to_play(joined):
        wins = draws = losses = 0
        total = 0.0
        for game_name, game in games.items():
            if len(game.seats) < 2:
                continue
            own = opponents.own(game.seats)
            apart = len(set(own.values())) > 1  # then seats are their owners', not taken in turn
            result, _ = await match(
                game_name, game, speak, name, other, opponents.config.matches, sampling=sampling,
                seed=derive(seed, name, other),
                own=[seat for seat in game.seats if own[seat] == owner(name)] if apart else (),
            )  # fmt: skip
            wins, draws, losses = wins + result.wins, draws + result.draws, losses + result.losses
            total += result.reward * result.games
        mean = total / max(1, wins + draws + losses)
        opponents.results.append(Result(name, other, wins, draws, losses, mean))


def write_population(opponents: Opponents, run: Path, iteration: int) -> None:
    """The league as it stands, for the report and for runs that train against it."""
    names = opponents.everyone()
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

"""The evaluation of any game: matches against the programs that can play it, or games with itself
where it is won together, and the measures of games that have their own. Void games count for
nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparring.core.game import Game, Probe
from sparring.core.types import MAIN, Episode, Sampling
from sparring.engines.engine import OwnEngine
from sparring.evaluation.arena import Score, match
from sparring.evaluation.cooperative import with_itself
from sparring.evaluation.sampling import described, noted
from sparring.evaluation.tree_measures import tree_measures


def opponents_of(game: Game) -> list[str]:
    """The programmed opponents a game offers."""
    if not game.zero_sum:
        return []
    kind = type(game)
    named = {
        "perfect": kind.perfect is not Game.perfect,
        "scripted": kind.scripted is not Game.scripted,
    }
    return ["random", *[name for name, there in named.items() if there]]


async def evaluate(
    games: Mapping[str, Game],
    engine: OwnEngine,
    *,
    sampling: Sampling,
    temperature: float = 0.0,
    policy: str = MAIN,
    count: int = 100,
    seed: int = 0,
    most_states: int | None = None,
) -> tuple[dict[str, Any], list[Episode]]:
    """Per game: {opponent: score, "exact": measures, "score": the one number that ranks, and how
    the policy was asked}. `sampling` is what it was trained with; matches have a temperature of
    their own. Games of more than `most_states` information states are not measured exactly."""
    found: dict[str, Any] = {}
    episodes: list[Episode] = []
    for name, game in games.items():
        scores: dict[str, Score] = {}
        played: list[Episode] = []
        used: set[Sampling] = set()
        speak = noted(engine.act, policy, used)
        plan: dict[str, Any] = {
            "seed": seed,
            "sampling": replace(sampling, temperature=temperature),
        }
        for opponent in opponents_of(game):
            scores[opponent], games_played = await match(
                name, game, speak, policy, opponent, count, **plan
            )
            played += games_played
        if game.cooperative:
            played = await with_itself(name, game, speak, policy, count, **plan)
        fair = [e for e in played if e.void is None]
        probe = Probe(policy, engine.act, sampling, engine.probabilities, count, seed)
        tree = game.tree()
        if tree and most_states is not None and len(tree.infosets) > most_states:
            tree = None
        exact, method = (
            await tree_measures(tree, probe, zero_sum=game.zero_sum) if tree else ({}, "")
        )
        measures = {**(game.measures(fair, policy) if fair else {}), **exact}
        found[name] = {
            **{opponent: result.as_dict() for opponent, result in scores.items()},
            "exact": measures,
            **({"method": method} if method else {}),
            "score": ranking(scores, measures, hidden=tree is not None and tree.hidden),
            **described(game, used),
        }
        episodes += played
    return found, episodes


def ranking(
    scores: Mapping[str, Score], measures: Mapping[str, float], *, hidden: bool
) -> float | None:
    """What picks the best checkpoint: exploitability where it is known and information is hidden,
    the common score where there is one, else points per game."""
    if hidden and "exploitability" in measures:
        return -measures["exploitability"]
    if not scores:
        return measures.get("score")
    return sum(s.points for s in scores.values()) / len(scores)


def as_metrics(found: Mapping[str, Any]) -> dict[str, float]:
    """The flat names under which an evaluation stands in metrics.jsonl."""
    flat: dict[str, float] = {}
    for name, result in found.items():
        for opponent, score in result.items():
            if isinstance(score, dict) and "games" in score and score["games"]:
                n = score["games"]
                flat[f"eval/{name}/{opponent}/not_lost"] = 1 - score["losses"] / n
                for key in ("wins", "draws", "losses", "invalid"):
                    flat[f"eval/{name}/{opponent}/{key}"] = score[key] / n
        flat |= {f"eval/{name}/{key}": value for key, value in result["exact"].items()}
    ranks = [result["score"] for result in found.values() if result["score"] is not None]
    if ranks:
        flat["eval/score"] = sum(ranks) / len(ranks)
    return flat

"""The evaluation of any game: matches against the programs that can play it, or games with itself
where it is won together, and the measures of games that have their own. Void games count for
nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparring.core.game import Game, Probe
from sparring.core.table import Speak
from sparring.core.types import MAIN, Episode, Sampling
from sparring.engines.engine import OwnEngine
from sparring.evaluation.arena import Score, match, with_itself
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


SAMPLED = "_sampled"  # ends the name of an opponent who was met as in training, not greedily


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
    the policy was asked}. Games are played at `temperature` and, where that is another one, also
    with the `sampling` that the policy was trained with (`random_sampled`); these rank. Games of
    more than `most_states` information states are not measured exactly. Returned episodes are
    those at `temperature`."""
    results: dict[str, Any] = {}
    episodes: list[Episode] = []
    at_heat = replace(sampling, temperature=temperature)
    for name, game in games.items():
        used: set[Sampling] = set()
        speak = noted(engine.act, policy, used)
        asked = (name, game, speak, policy, count, seed)
        scores, played = await _play(*asked, at_heat)
        trained, sampled = scores, played
        if at_heat != sampling:
            trained, sampled = await _play(*asked, sampling)
        probe = Probe(policy, engine.act, sampling, engine.probabilities, count, seed)
        tree = game.tree()
        if tree and most_states is not None and len(tree.infosets) > most_states:
            tree = None
        exact, method = (
            await tree_measures(tree, probe, zero_sum=game.zero_sum) if tree else ({}, "")
        )
        also = trained if trained is not scores else {}
        results[name] = {
            **{opponent: score.as_dict() for opponent, score in scores.items()},
            **{f"{opponent}{SAMPLED}": score.as_dict() for opponent, score in also.items()},
            "exact": {**_measures(game, played, policy), **exact},
            **({"method": method} if method else {}),
            "score": ranking(
                trained,
                {**_measures(game, sampled, policy), **exact},
                hidden=tree is not None and tree.hidden,
            ),
            **described(game, used),
        }
        episodes += played
    return results, episodes


async def _play(
    name: str, game: Game, speak: Speak, policy: str, count: int, seed: int, sampling: Sampling
) -> tuple[dict[str, Score], list[Episode]]:
    """Matches against each program that plays the game, or games of the policy with itself."""
    plan: dict[str, Any] = {"seed": seed, "sampling": sampling}
    if game.cooperative:
        return {}, await with_itself(name, game, speak, policy, count, **plan)
    scores: dict[str, Score] = {}
    episodes: list[Episode] = []
    for opponent in opponents_of(game):
        scores[opponent], played = await match(name, game, speak, policy, opponent, count, **plan)
        episodes += played
    return scores, episodes


def _measures(game: Game, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
    fair = [episode for episode in episodes if episode.void is None]
    return dict(game.measures(fair, policy)) if fair else {}


def ranking(
    scores: Mapping[str, Score], measures: Mapping[str, float], *, hidden: bool
) -> float | None:
    """What picks the best checkpoint: exploitability where it is known and information is hidden,
    the common score where there is one, else points per game. None where no game against one of
    the opponents was fair: a score without that opponent is another one, and 0 would be a loss."""
    if hidden and "exploitability" in measures:
        return -measures["exploitability"]
    if not scores:
        return measures.get("score")
    if not all(s.games for s in scores.values()):
        return None
    return sum(s.points for s in scores.values()) / len(scores)


def as_metrics(results: Mapping[str, Any]) -> dict[str, float]:
    """The flat names under which an evaluation stands in metrics.jsonl."""
    flat: dict[str, float] = {}
    for name, result in results.items():
        for opponent, score in result.items():
            if _is_match(score) and score["games"]:
                n = score["games"]
                flat[f"eval/{name}/{opponent}/not_lost"] = 1 - score["losses"] / n
                for key in ("wins", "draws", "losses", "invalid"):
                    flat[f"eval/{name}/{opponent}/{key}"] = score[key] / n
        flat |= {f"eval/{name}/{key}": value for key, value in result["exact"].items()}
    ranks = [result["score"] for result in results.values() if result["score"] is not None]
    if ranks and not any(map(_unfair, results.values())):
        flat["eval/score"] = sum(ranks) / len(ranks)
    return flat


def _unfair(result: Mapping[str, Any]) -> bool:
    """Whether a game lacks the score that it has where its matches are not void: without it the
    mean over games would be another number."""
    void = any(score["void"] for score in result.values() if _is_match(score))
    return void and result["score"] is None


def _is_match(score: Any) -> bool:
    return isinstance(score, dict) and "games" in score

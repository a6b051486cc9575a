"""How a matching goes: agreement, score, and the information its players shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from sparring.core.table import Speak
from sparring.core.types import Episode, Sampling, derive
from sparring.evaluation.arena import with_itself
from sparring.pipelines.matching.tables import bounds

if TYPE_CHECKING:
    from sparring.pipelines.matching.game import MatchingGame


SIZES = (2, 3, 4, 8)  # of the tables that a closing evaluation looks at
CELL_KINDS = ("private", "mentioned", "correct", "new", "used")
MOST_SIZED = 48  # games at each size of table
# What the measures are called: title, explanation, whether it is a share.
MEASURES: dict[str, tuple[str, str, bool]] = {
    "score": ("Score", "Value of what was agreed on, of the pooled optimum; 0 without.", True),
    "agreement": ("Games that end in agreement", "The others score nothing.", True),
    "agreed_score": ("Score of the games that agreed", "Of the pooled optimum.", True),
    "agreed_turns": ("Turns to agreement", "Of the games that agreed.", False),
    "error_rate": ("Turns lost to errors", "Share of turns without a valid action.", True),
    "over_greedy": (
        "Score above either player alone",
        "Against the greedy bound of the same tables; above 0 they told each other something.",
        False,
    ),
    "over_greedy_95": ("Score above either player alone, ±", "95 % interval.", False),
    "bound_random": ("Bound: random agreement", "The mean over all matchings.", True),
    "bound_greedy": ("Bound: greedy on own view", "What either player reaches alone.", True),
    "bound_pooling": ("Bound: perfect pooling", "The best by what both see.", True),
    "cells_private": ("Cells that one player alone sees", "Per game.", False),
    "cells_mentioned": ("Cells told", "Given a value in a message, per game.", False),
    "cells_correct": ("Cells told correctly", "By a player who sees that value.", False),
    "cells_new": ("Cells told that the other does not see", "And correct.", False),
    "cells_used": ("Cells told and used", "Part of what was agreed on.", False),
}


def matching_measures(episodes: Sequence[Episode]) -> dict[str, float]:
    """How a matching goes: agreement, score, what it is held against, and what was passed on.
    Void games are left out; turns to agreement are those of the games that agreed."""
    facts = [e.facts for e in episodes if e.void is None]
    if not facts:
        return {}
    agreed = [f for f in facts if f["agreed"]]
    stats = {
        "score": fmean(f["score"] for f in facts),
        "agreement": len(agreed) / len(facts),
        **({"agreed_score": fmean(f["score"] for f in agreed)} if agreed else {}),
        **({"agreed_turns": fmean(f["turns"] for f in agreed)} if agreed else {}),
        "error_rate": sum(f["errors"] for f in facts) / sum(f["turns"] for f in facts),
    }
    stats |= {f"bound_{k}": fmean(f["bounds"][k] for f in facts) for k in facts[0]["bounds"]}
    gains = [f["score"] - f["bounds"]["greedy"] for f in facts]
    stats["over_greedy"] = fmean(gains)
    if len(gains) > 1:  # half of a 95 % interval
        stats["over_greedy_95"] = 1.96 * stdev(gains) / len(gains) ** 0.5
    return stats | {f"cells_{key}": fmean(f["shared"][key] for f in facts) for key in CELL_KINDS}


async def by_size(
    name: str,
    game: MatchingGame,
    speak: Speak,
    policy: str,
    games: int,
    *,
    sampling: Sampling,
    seed: int = 0,
) -> dict[str, dict[str, float]]:
    """A policy's measures at several sizes of table. Where its style has no words for a size,
    only the bounds are known."""
    sizes = {}
    for size in sorted({*SIZES, game.size}):
        try:
            sized = replace(game, size=size)
        except ValueError:  # the terse form ends at 4
            tables = [
                replace(game, style="short", size=size).task(derive(seed, i)) for i in range(games)
            ]
            every = [bounds(task.data) for task in tables]
            sizes[str(size)] = {f"bound_{k}": fmean(b[k] for b in every) for k in every[0]}
            continue
        played = await with_itself(
            name, sized, speak, policy, games, seed=derive(seed, size), sampling=sampling
        )
        sizes[str(size)] = matching_measures(played)
    return sizes

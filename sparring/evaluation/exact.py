"""Exact measures of games on record: regret under minimax, surplus. What a policy would lose to the
best reply to it is in `exploitability.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sparring.core.types import Episode
from sparring.games import tictactoe

# Tic-tac-toe


def regret(board: str, cell: int | None, invalid: float = -1.5) -> float:
    """Game value a move gives away: 0 for a perfect move, up to 2 for throwing a win to a loss.

    No legal move at all (None) gives away what the forfeit costs: value(board) - invalid, so
    up to 2.5, always more than any legal move.
    """
    if cell is None:
        return tictactoe.value(board) - invalid
    return float(tictactoe.value(board) - tictactoe.action_value(board, cell))


def regrets(episode: Episode, policy: str | None = None) -> list[float]:
    """The regret of every move of a tic-tac-toe game, or of one policy's moves only."""
    board, found = tictactoe.EMPTY, []
    moves: list[int | None] = list(episode.facts.get("moves", []))
    offender = episode.facts.get("invalid")
    given = len(episode.task.data.get("opening", ()))  # moves that nobody chose
    for number, cell in enumerate([*moves, None] if offender else moves):
        seat = tictactoe.mover(board).lower()
        if number >= given and (policy is None or episode.seating.get(seat) == policy):
            forfeit = episode.rewards[seat] if cell is None else 0.0
            found.append(regret(board, cell, forfeit))
        if cell is not None:
            board = tictactoe.put(board, cell)
    return found


def mean_regret(episodes: Iterable[Episode], policy: str | None = None) -> float:
    """Mean regret per move over all games that are not void; NaN where nobody moved."""
    found = [r for e in episodes if e.void is None for r in regrets(e, policy)]
    return sum(found) / len(found) if found else math.nan


# Negotiation


def surplus(facts: Mapping[str, Any]) -> dict[str, float]:
    """What trading gained both players together, against the most it could have.

    The most is the Pareto optimum with the largest total: every good with whoever values it
    more. `share` is gained / most, and 1 where there was nothing to gain and nothing was lost.
    """
    (one, start), (two, other) = facts["start"].items()
    gained = float(sum(facts["gains"].values()))
    most = 0.0
    for good in start:
        gap = facts["values"][one][good] - facts["values"][two][good]
        most += max(gap, 0) * other[good] + max(-gap, 0) * start[good]
    if most == 0:
        return {"gained": gained, "most": 0.0, "share": 1.0 if gained == 0 else -math.inf}
    return {"gained": gained, "most": most, "share": gained / most}


def mean_surplus(episodes: Iterable[Episode]) -> float:
    """Mean share of the optimum over all negotiations that are not void; NaN without any."""
    shares = [surplus(e.facts)["share"] for e in episodes if e.void is None]
    return sum(shares) / len(shares) if shares else math.nan

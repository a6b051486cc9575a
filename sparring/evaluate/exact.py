"""Exact measures for the games that allow them: regret under minimax, exploitability, surplus.

Nothing here is estimated by playing: the numbers are what theory says about a policy or a record.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparring.games import kuhn, tictactoe
from sparring.types import Episode

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


# Kuhn poker; a policy maps each of the 12 information sets to its probability of bet or call


def kuhn_prompts(game: kuhn.KuhnPoker) -> dict[str, tuple[str, tuple[str, str]]]:
    """Per information set the very prompt the game shows, and the two legal answers as a model
    is asked to write them: check or fold first, bet or call second."""
    wrap = "\\boxed{{{}}}" if game.style == "reason" else "{}"
    found = {}
    for infoset in kuhn.INFOSETS:
        passive, active = game.actions(infoset)
        found[infoset] = (game.prompt(infoset), (wrap.format(passive), wrap.format(active)))
    return found


def kuhn_policy(
    probabilities: Mapping[str, Sequence[float]],
) -> tuple[dict[str, float], float]:
    """A policy from the probabilities of the two legal answers, renormalised over them, and the
    illegal mass: what is missing to 1, averaged over the information sets."""
    policy, illegal = {}, 0.0
    for infoset in kuhn.INFOSETS:
        passive, active = probabilities[infoset]
        legal = passive + active
        policy[infoset] = active / legal if legal > 0 else 0.5
        illegal += max(0.0, 1.0 - legal) / len(kuhn.INFOSETS)
    return policy, illegal


def game_value(policy: Mapping[str, float]) -> float:
    """Chips the first player expects when both seats follow the policy."""
    deals = [a + b for a in kuhn.CARDS for b in kuhn.CARDS if a != b]
    return sum(_expect(policy, cards, "") for cards in deals) / len(deals)


def value_gap(policy: Mapping[str, float]) -> float:
    """How far the policy's value against itself lies from the game's, -1/18."""
    return abs(game_value(policy) - kuhn.VALUE)


def best_response(policy: Mapping[str, float], seat: int) -> float:
    """Chips a perfect opponent, who knows the policy, wins from it in a seat (0: first)."""
    total = 0.0
    for card in kuhn.CARDS:
        others = {other: 1.0 for other in kuhn.CARDS if other != card}
        total += _respond(policy, seat, card, "", others)
    return total / 6  # six equally likely deals


def exploitability(policy: Mapping[str, float]) -> float:
    """NashConv / 2, OpenSpiel's convention: the mean of what the two best responses win."""
    return (best_response(policy, 0) + best_response(policy, 1)) / 2


def _expect(policy: Mapping[str, float], cards: str, history: str) -> float:
    chips = kuhn.payoff(cards, history)
    if chips is not None:
        return float(chips)
    bet = policy[cards[kuhn.to_move(history)] + history]
    passive, active = (_expect(policy, cards, history + action) for action in "pb")
    return (1 - bet) * passive + bet * active


def _respond(
    policy: Mapping[str, float], seat: int, card: str, history: str, others: Mapping[str, float]
) -> float:
    """The responder's best total, each possible card of the other weighted by how likely the
    policy came here with it. The responder sees no more than that, hence one max for all."""
    if history not in kuhn.WORDS:
        total = 0.0
        for other, weight in others.items():
            chips = kuhn.payoff(card + other if seat == 0 else other + card, history)
            assert chips is not None  # the hand is over
            total += weight * (chips if seat == 0 else -chips)
        return total
    if kuhn.to_move(history) == seat:
        return max(_respond(policy, seat, card, history + action, others) for action in "pb")
    bets = {other: weight * policy[other + history] for other, weight in others.items()}
    passes = {other: weight - bets[other] for other, weight in others.items()}
    return _respond(policy, seat, card, history + "b", bets) + _respond(
        policy, seat, card, history + "p", passes
    )


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

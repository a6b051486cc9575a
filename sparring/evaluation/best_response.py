"""What a policy gives away to opponents who know it, in any game that has a tree: exactly, or with
an interval where its probabilities were estimated from replies.

A policy has a row of probabilities for each information state. What is missing to 1 is the
probability of a reply that names no legal action, which the game ends as a forfeit.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sparring.core.tree import Policy, Tree
from sparring.evaluation.significance import Z

Counts = Sequence[Sequence[int]]  # per information state: replies by action, then illegal ones
Choices = dict[int, int]  # information state -> action


@dataclass(frozen=True)
class Exploit:
    """What each seat expects when all follow the policy, and what a best response to the others
    would bring it instead."""

    values: tuple[float, ...]
    best_responses: tuple[float, ...]

    @property
    def nash_conv(self) -> float:
        """The sum over seats of what a best response gains; 0 in an equilibrium."""
        return sum(self.best_responses) - sum(self.values)

    @property
    def exploitability(self) -> float:
        return self.nash_conv / len(self.values)


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float


def exploit(tree: Tree, policy: Policy) -> Exploit:
    values = _values(tree, policy)[-1]
    best = tuple(best_response(tree, policy, seat)[0] for seat in range(len(tree.seats)))
    return Exploit(tuple(values), best)


def uniform(tree: Tree) -> list[list[float]]:
    return [[1 / len(i.actions)] * len(i.actions) for i in tree.infosets]


def legal(policy: Policy) -> list[list[float]]:
    """As if only legal replies had been possible; all alike where there were none."""
    rows = []
    for row in policy:
        total = sum(row)
        rows.append([p / total for p in row] if total > 0 else [1 / len(row)] * len(row))
    return rows


def mixed(tree: Tree, policies: Sequence[Policy], weights: Sequence[float]) -> list[list[float]]:
    """The one policy that plays like a player who draws one of several before each game. At an
    information state each counts as much as it would have come there by its own choices; of a
    seat that forgets nothing those are the same at all positions of the state."""
    if sum(len(node.children) for node in tree.nodes) >= len(tree.nodes):
        raise ValueError("several ways lead to one position, and a mixture plays on by the way")
    reach = [
        {seat: _reach(tree, _only(tree, policy, seat)) for seat in tree.seats}
        for policy in policies
    ]
    rows = [[0.0] * len(infoset.actions) for infoset in tree.infosets]
    totals = [0.0] * len(tree.infosets)
    members = {node.infoset: number for number, node in enumerate(tree.nodes) if node.infoset >= 0}
    for policy, weight, of_seat in zip(policies, weights, reach, strict=True):
        for i, infoset in enumerate(tree.infosets):
            share = weight * of_seat[infoset.seat][members[i]]
            totals[i] += share
            rows[i] = [x + share * p for x, p in zip(rows[i], policy[i], strict=True)]
    return [
        [x / total for x in row] if total > 0 else list(policies[0][i])
        for i, (row, total) in enumerate(zip(rows, totals, strict=True))
    ]


def _only(tree: Tree, policy: Policy, seat: str) -> list[Sequence[float]]:
    """A seat's own choices; all others, chance included, are certain."""
    return [
        row if infoset.seat == seat else [1.0] * len(infoset.actions)
        for row, infoset in zip(policy, tree.infosets, strict=True)
    ]


def illegal_mass(policy: Policy) -> float:
    """The probability of a forfeit, averaged over the information states; without what rounding
    leaves of rows that sum to 1."""
    missing = (1 - sum(row) for row in policy)
    return sum(lost for lost in missing if lost > 1e-9) / max(1, len(policy))


def best_response(tree: Tree, policy: Policy, seat: int) -> tuple[float, Choices]:
    """What the best response of a seat expects when the others follow the policy, and its action
    at every information state of that seat."""
    reach = _reach(tree, policy, skip=seat)
    members: list[list[int]] = [[] for _ in tree.infosets]
    for number, node in enumerate(tree.nodes):
        if node.infoset >= 0:
            members[node.infoset].append(number)
    mine = [infoset.seat == tree.seats[seat] for infoset in tree.infosets]
    owner = [tree.seats.index(infoset.seat) for infoset in tree.infosets]
    choices: Choices = {}
    known: dict[int, float] = {}

    def value(number: int) -> float:
        if number not in known:
            known[number] = _value(number)
        return known[number]

    def _value(number: int) -> float:
        node = tree.nodes[number]
        if node.rewards:
            return node.rewards[seat]
        if node.infoset < 0:
            return sum(p * value(c) for p, c in zip(node.chances, node.children, strict=True))
        if mine[node.infoset]:
            return value(node.children[choose(node.infoset)])
        row = policy[node.infoset]
        total = sum(p * value(c) for p, c in zip(row, node.children, strict=True) if p)
        return total + (1 - sum(row)) * tree.forfeits[owner[node.infoset]][seat]

    def choose(infoset: int) -> int:
        """One action for all positions that the seat cannot tell apart."""
        if infoset not in choices:
            worth = [
                sum(reach[n] * value(tree.nodes[n].children[action]) for n in members[infoset])
                for action in range(len(tree.infosets[infoset].actions))
            ]
            choices[infoset] = worth.index(max(worth))
        return choices[infoset]

    with _deep_calls():
        return value(len(tree.nodes) - 1), choices


@contextmanager
def _deep_calls() -> Iterator[None]:
    """Room for several calls for each move of a game of up to 250; nobody else is to notice, for
    what a program's deep values are to a judge depends on it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 5000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def _reach(tree: Tree, policy: Policy, skip: int = -1) -> list[float]:
    """The probability of coming to each node, not counting the choices of one seat."""
    reach = [0.0] * len(tree.nodes)
    reach[-1] = 1.0
    for number in range(len(tree.nodes) - 1, -1, -1):
        node, here = tree.nodes[number], reach[number]
        if not here or node.rewards:
            continue
        if node.infoset < 0:
            row: Sequence[float] = node.chances
        elif skip >= 0 and tree.infosets[node.infoset].seat == tree.seats[skip]:
            row = [1.0] * len(node.children)
        else:
            row = policy[node.infoset]
        for p, child in zip(row, node.children, strict=True):
            reach[child] += here * p
    return reach


def _values(tree: Tree, policy: Policy) -> list[list[float]]:
    """What each seat expects from each node on, when all follow the policy."""
    values: list[list[float]] = []
    owner = [tree.seats.index(infoset.seat) for infoset in tree.infosets]
    for node in tree.nodes:
        if node.rewards:
            values.append(list(node.rewards))
            continue
        row = node.chances if node.infoset < 0 else policy[node.infoset]
        sums = [0.0] * len(tree.seats)
        if node.infoset >= 0:
            lost = 1 - sum(row)
            sums = [lost * reward for reward in tree.forfeits[owner[node.infoset]]]
        for p, child in zip(row, node.children, strict=True):
            for seat, worth in enumerate(values[child]):
                sums[seat] += p * worth
        values.append(sums)
    return values


def regrets(tree: Tree, policy: Policy) -> list[float]:
    """Per position of a game of perfect information, what the policy's next action gives away, all
    being perfect afterwards."""
    lost = [0.0] * len(tree.infosets)
    for number, worth in _worth_of_actions(tree):
        row, own = policy[number], tree.seats.index(tree.infosets[number].seat)
        got = sum(p * x for p, x in zip(row, worth, strict=True))
        lost[number] = max(worth) - got - (1 - sum(row)) * tree.forfeits[own][own]
    return lost


def best_actions(tree: Tree) -> list[tuple[int, ...]]:
    """Per position of a game of perfect information, the actions that give nothing away."""
    best: list[tuple[int, ...]] = [()] * len(tree.infosets)
    for number, worth in _worth_of_actions(tree):
        best[number] = tuple(i for i, x in enumerate(worth) if x >= max(worth) - 1e-9)
    return best


def _worth_of_actions(tree: Tree) -> Iterator[tuple[int, list[float]]]:
    """Per position, what each action brings its mover when every mover takes what is best for
    itself from there on."""
    worth: list[tuple[float, ...]] = []
    for node in tree.nodes:
        after = [worth[child] for child in node.children]
        if node.rewards:
            worth.append(node.rewards)
        elif node.infoset < 0:
            weighted = [[p * x for x in row] for p, row in zip(node.chances, after, strict=True)]
            worth.append(tuple(map(sum, zip(*weighted, strict=True))))
        else:
            own = tree.seats.index(tree.infosets[node.infoset].seat)
            yield node.infoset, [row[own] for row in after]
            worth.append(max(after, key=lambda row: row[own]))


# From sampled replies. For fixed responses NashConv is linear in what the policy does at each
# information state, and those were sampled apart; so the variance is known.


def observed(counts: Counts) -> list[list[float]]:
    """The shares of what was counted, without the illegal ones."""
    return [[count / sum(row) for count in row[:-1]] for row in counts]


def added(first: Counts, second: Counts) -> list[list[int]]:
    pairs = zip(first, second, strict=True)
    return [[a + b for a, b in zip(x, y, strict=True)] for x, y in pairs]


def estimate(tree: Tree, first: Counts, second: Counts) -> Estimate:
    """Exploitability from two halves of the replies at each information state.

    A best response to a sample is also one to the sample's luck, so the plain figure is too high
    rather than too low, and its own deviation is a bound above. Below: the response is chosen by
    the first half and what it wins is measured on the second.
    """
    both = added(first, second)
    value, deviation = _gain(tree, both, both)
    low, low_deviation = _gain(tree, first, second)
    low = max(0.0, low - Z * low_deviation)
    return Estimate(value, min(low, value), value + Z * deviation)


def _gain(tree: Tree, chosen_by: Counts, measured_on: Counts) -> tuple[float, float]:
    """What the best responses to one sample gain on another, per seat, and its deviation."""
    policy, seats = observed(measured_on), len(tree.seats)
    total = 0.0
    slopes = [[0.0] * len(row) for row in measured_on]
    for seat in range(seats):
        _, choices = best_response(tree, observed(chosen_by), seat)
        response = [
            [float(a == choices[i]) for a in range(len(row))] if i in choices else row
            for i, row in enumerate(policy)
        ]
        for play, sign in ((response, 1 / seats), (policy, -1 / seats)):
            values = _values(tree, play)
            total += sign * values[-1][seat]
            _add_slopes(tree, play, values, seat, sign, slopes, choices if sign > 0 else {})
    variance = sum(map(_spread, measured_on, slopes))
    return total, math.sqrt(variance)


def _add_slopes(
    tree: Tree,
    play: Policy,
    values: list[list[float]],
    seat: int,
    sign: float,
    slopes: list[list[float]],
    fixed: Choices,
) -> None:
    """Add to each information state what each kind of reply there is worth to a seat, times the
    probability of coming there."""
    reach = _reach(tree, play)
    for number, node in enumerate(tree.nodes):
        if node.infoset < 0 or node.infoset in fixed:
            continue
        row, weight = slopes[node.infoset], sign * reach[number]
        for action, child in enumerate(node.children):
            row[action] += weight * values[child][seat]
        owner = tree.seats.index(tree.infosets[node.infoset].seat)
        row[-1] += weight * tree.forfeits[owner][seat]


def _spread(counts: Sequence[int], slopes: Sequence[float]) -> float:
    """The variance of a mean slope. Half a reply of each kind is added: what was never seen is not
    thereby impossible."""
    total = sum(counts)
    chances = [(count + 0.5) / (total + 0.5 * len(counts)) for count in counts]
    mean = sum(p * x for p, x in zip(chances, slopes, strict=True))
    return sum(p * (x - mean) ** 2 for p, x in zip(chances, slopes, strict=True)) / total

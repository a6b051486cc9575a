"""A game's rules as data: every position, and what the seat to move knows there. A game that has a
tree is measured exactly, by code that knows no game."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from sparring.core.errors import ConfigError

MOST_INFOSETS = 25_000
MOST_NODES = 1_000_000
MOST_DEPTH = 250
PROBED = 20_000  # positions looked at to estimate how many there are

Policy = Sequence[Sequence[float]]  # per information state, the probability of each legal action


class TreeTooLarge(ConfigError):
    """A game with too many positions to look at all of them; `size` estimates how many."""

    size: Callable[[], str] | None = None

    def with_size(self) -> TreeTooLarge:
        return TreeTooLarge(f"{self}. {self.size()}") if self.size else self


@dataclass(frozen=True, slots=True)
class Infoset:
    """All positions that a seat cannot tell apart, as the seat is asked there."""

    key: str
    seat: str
    prompt: str
    actions: tuple[str, ...]
    state: Any = None  # what a program may look at


class Node(NamedTuple):
    """One position: of a seat (an infoset), of chance (chances), or an end (rewards)."""

    infoset: int = -1
    children: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()  # by seat


class Branch(NamedTuple):
    """A position as a game describes it, with the states that follow."""

    infoset: Infoset | None = None
    children: Sequence[Any] = ()
    chances: Sequence[float] = ()
    rewards: Sequence[float] = ()


@dataclass
class Tree:
    """Nodes come after their children, so that the root is the last one. A position that several
    ways lead to may be one node, if what is known there does not say which was taken."""

    seats: tuple[str, ...]
    forfeits: tuple[tuple[float, ...], ...]  # rewards when the first, second … seat breaks a rule
    limits: Mapping[str, Any] = field(default_factory=dict)  # the sampling that the game asks for
    infosets: list[Infoset] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    @property
    def hidden(self) -> bool:
        """Whether some position is indistinguishable from another."""
        return len(self.infosets) < sum(node.infoset >= 0 for node in self.nodes)


def grow(
    tree: Tree,
    root: Any,
    expand: Callable[[Any], Branch],
    *,
    same: Callable[[Any], Hashable] | None = None,
    name: str = "the game",
    most: int = MOST_INFOSETS,
    most_nodes: int = MOST_NODES,
) -> Tree:
    """Fill a tree from its root. States for which `same` gives equal values become one node."""
    known: dict[Hashable, int] = {}
    numbers: dict[str, int] = {}

    def opened(state: Any, key: Hashable) -> tuple[Branch, Hashable, int, list[int]]:
        branch, number = expand(state), -1
        if branch.infoset is not None:
            number = numbers.setdefault(branch.infoset.key, len(tree.infosets))
            if number == len(tree.infosets):
                tree.infosets.append(branch.infoset)
        return branch, key, number, []

    stack = [opened(root, same(root) if same else None)]
    while stack:
        branch, key, number, children = stack[-1]
        if reason := _too_large(tree, len(stack), most, most_nodes):
            error = TreeTooLarge(
                f"{name} {reason}: too many to look at all of them. A match against one of its "
                f"programs is an estimate: sparring arena POLICY --game {name} --against scripted, "
                "or random"
            )
            error.size = partial(estimate_size, root, expand)
            raise error
        if len(children) < len(branch.children):
            state = branch.children[len(children)]
            its_key = same(state) if same else None
            if its_key is not None and its_key in known:
                children.append(known[its_key])
            else:
                stack.append(opened(state, its_key))
            continue
        stack.pop()
        node = Node(number, tuple(children), tuple(branch.chances), tuple(branch.rewards))
        tree.nodes.append(node)
        here = len(tree.nodes) - 1
        if key is not None:
            known[key] = here
        if stack:
            stack[-1][3].append(here)
    return tree


def _too_large(tree: Tree, depth: int, most: int, most_nodes: int) -> str:
    if len(tree.infosets) > most:
        return f"has more than {most:,} information states"
    if len(tree.nodes) > most_nodes:
        return f"has more than {most_nodes:,} positions"
    return f"can go on for more than {MOST_DEPTH} moves" if depth > MOST_DEPTH else ""


def estimate_size(root: Any, expand: Callable[[Any], Branch], seed: int = 0) -> str:
    """How many histories of moves a game has, by Knuth's estimate: along a random game the branches
    so far, multiplied, are in expectation how many histories have that length."""
    rng, games, total, looked, cut = random.Random(seed), 0, 0, 0, False
    while looked < PROBED:
        games, branch, alike = games + 1, expand(root), 1
        for _ in range(MOST_DEPTH):
            total, looked = total + alike, looked + 1 + len(branch.children)
            if not branch.children:
                break
            alike *= len(branch.children)
            branch = expand(rng.choice(branch.children))
        else:
            cut = True
    mean = total // games
    size = f"10^{len(str(mean)) - 1}" if mean >= 10**7 else f"{mean:,}"
    more = f", without what follows after {MOST_DEPTH} moves" if cut else ""
    return (
        f"There are about {size} histories of moves (estimated from {games:,} random games{more})"
    )


def cost_of_forfeit(seats: int, invalid: float, other: float) -> tuple[tuple[float, ...], ...]:
    """What a broken rule pays each seat, for each offender. Between two, whatever it costs the one
    counts as the other's gain, so that a measure is of what a policy loses."""
    gain = -invalid if seats == 2 else other
    return tuple(tuple(invalid if i == j else gain for j in range(seats)) for i in range(seats))

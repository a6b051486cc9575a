"""What is known of variables on one path through a function: the bounds that its guards and
conditions set. Termination and the rule for Int both go by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparring.pipelines.equivalence.judge.liquid_nodes import Call, Clause, Expression, Name, Number
from sparring.pipelines.equivalence.judge.liquid_vocabulary import DENIED, MIRRORED


@dataclass(frozen=True, slots=True)
class Facts:
    """`least` and `most` bound a variable by a number; `below` holds pairs x < y."""

    least: tuple[tuple[str, int], ...] = ()
    most: tuple[tuple[str, int], ...] = ()
    below: frozenset[tuple[str, str]] = frozenset()

    def at_least(self, name: str) -> int | None:
        return max((bound for other, bound in self.least if other == name), default=None)

    def at_most(self, name: str) -> int | None:
        return min((bound for other, bound in self.most if other == name), default=None)

    def assume(self, condition: Expression, holds: bool = True) -> Facts:
        """What is known besides where a condition holds, or where it does not."""
        if not isinstance(condition, Call) or not isinstance(condition.function, Name):
            return self
        word, given = condition.function.text, condition.arguments
        if word == "not" and len(given) == 1:
            return self.assume(given[0], not holds)
        if len(given) != 2:
            return self
        if word == ("&&" if holds else "||"):
            return self.assume(given[0], holds).assume(given[1], holds)
        if word in MIRRORED:
            return self._compare(word if holds else DENIED[word], *given)
        return self

    def _compare(self, word: str, left: Expression, right: Expression) -> Facts:
        if isinstance(left, Number) and isinstance(right, Name):
            return self._compare(MIRRORED[word], right, left)
        if not isinstance(left, Name):
            return self
        x = left.text
        if isinstance(right, Number):
            n = right.value
            low = {">": n + 1, ">=": n, "==": n}.get(word)
            high = {"<": n - 1, "<=": n, "==": n}.get(word)
            facts = self if low is None else replace(self, least=(*self.least, (x, low)))
            return facts if high is None else replace(facts, most=(*facts.most, (x, high)))
        if isinstance(right, Name) and word in ("<", ">"):
            pair = (x, right.text) if word == "<" else (right.text, x)
            return replace(self, below=self.below | {pair})
        return self


def branches(clause: Clause, facts: Facts) -> Sequence[tuple[Facts, Facts, int]]:
    """For each branch of a clause: what is known where its guards are tried, what where they hold,
    and its number. A branch is reached only where all before it have failed."""
    pairs = []
    for number, branch in enumerate(clause.branches):
        held = facts
        for guard in branch.guards:
            held = held.assume(guard)
        pairs.append((facts, held, number))
        if len(branch.guards) == 1:
            facts = facts.assume(branch.guards[0], False)
    return pairs

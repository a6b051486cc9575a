"""The few forms that P, Q and a proof are made of, once GHC's tree of them has been read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sparring.pipelines.equivalence.judge.haskell_source import Refused

# How tightly the operators of the Prelude and of the proof combinators bind: (strength, side).
FIXITIES = {
    "*": (7, "l"), "div": (7, "l"), "mod": (7, "l"), "+": (6, "l"), "-": (6, "l"), ":": (5, "r"),
    "==": (4, "n"), "/=": (4, "n"), "<": (4, "n"), "<=": (4, "n"), ">": (4, "n"), ">=": (4, "n"),
    "&&": (3, "r"), "||": (2, "r"), "$": (0, "r"), ".": (9, "r"),
    "===": (3, "l"), "***": (3, "l"), "?": (3, "l"),
}  # fmt: skip


def refuse(message: str) -> Refused:
    return Refused("proof", message)


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, a function, an operator or a constructor."""

    text: str


@dataclass(frozen=True, slots=True)
class Number:
    value: int


@dataclass(frozen=True, slots=True)
class Letter:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    function: Expression
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class If:
    condition: Expression
    then: Expression
    other: Expression


@dataclass(frozen=True, slots=True)
class Case:
    subject: Expression
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Let:
    bindings: tuple[Binding, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Items:
    """A list or a tuple, written out."""

    kind: str
    items: tuple[Expression, ...]


Expression = Name | Number | Letter | Call | If | Case | Let | Items
Binding = tuple[str, Expression]  # a local name and what it stands for


@dataclass(frozen=True, slots=True)
class Pattern:
    """`kind`: wild, variable, number, letter, constructor (lists and tuples too), alias.

    `name` is what a variable or an alias is called, or the constructor; `value` is the literal.
    """

    kind: str
    name: str = ""
    parts: tuple[Pattern, ...] = ()
    value: int | str = 0

    def names(self) -> Iterator[str]:
        if self.kind in ("variable", "alias"):
            yield self.name
        for part in self.parts:
            yield from part.names()


@dataclass(frozen=True, slots=True)
class Branch:
    guards: tuple[Expression, ...]  # all of which must hold
    body: Expression


@dataclass(frozen=True, slots=True)
class Clause:
    """Patterns, what follows by guards, and the names of a `where`."""

    patterns: tuple[Pattern, ...]
    branches: tuple[Branch, ...]
    bindings: tuple[Binding, ...]

    def bound(self) -> list[str]:
        names = [name for pattern in self.patterns for name in pattern.names()]
        return names + [name for name, _ in self.bindings]


@dataclass(frozen=True, slots=True)
class Module:
    functions: dict[str, tuple[Clause, ...]]
    constructors: dict[str, int]  # with how many fields


def parts_of(expression: Expression) -> Iterator[Expression]:
    """The expressions directly inside, whatever patterns stand between."""
    match expression:
        case Call(function, arguments):
            yield function
            yield from arguments
        case If(condition, then, other):
            yield from (condition, then, other)
        case Case(subject, clauses):
            yield subject
            for clause in clauses:
                yield from inside(clause)
        case Let(bindings, body):
            yield from (value for _, value in bindings)
            yield body
        case Items(_, items):
            yield from items


def inside(clause: Clause) -> Iterator[Expression]:
    yield from (value for _, value in clause.bindings)
    for branch in clause.branches:
        yield from branch.guards
        yield branch.body


def everything(clauses: Sequence[Clause]) -> Iterator[Expression]:
    """Every expression of a function, at any depth."""
    todo = [part for clause in clauses for part in inside(clause)]
    while todo:
        now = todo.pop()
        yield now
        todo += parts_of(now)

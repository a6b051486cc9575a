"""Whether what is proved of the logic's integers, which have no end, holds of Int, which wraps.

A value is *exact* where it is the same number in both. What was calculated is equal modulo 2^64
only; that is enough for a result, and not enough for a comparison, a division or a pattern. Exact
are arguments, literals, and n - 1 or n + 1 where a guard has bounded n."""

from __future__ import annotations

from collections.abc import Sequence

from sparring.pipelines.equivalence.judge import liquid_vocabulary as words
from sparring.pipelines.equivalence.judge.liquid_facts import Facts, branches
from sparring.pipelines.equivalence.judge.liquid_nodes import (
    Call,
    Case,
    Clause,
    Expression,
    If,
    Items,
    Let,
    Letter,
    Module,
    Name,
    Number,
    Pattern,
    refuse,
)
from sparring.pipelines.equivalence.judge.liquid_vocabulary import plain

SAFE = 1 << 62  # a bound and a step below this cannot leave the range of Int together

Exact = dict[str, bool]  # of each variable on a path


def check_machine_integers(module: Module, names: Sequence[str]) -> None:
    """Refuse functions `names` that decide by a number which may have wrapped round."""
    flow = _Flow({name: module.functions[name] for name in names}, module.constructors)
    while True:
        before = flow.state()
        for name in names:
            flow.function(name)
        if flow.state() == before:
            break
    flow.strict = True
    for name in names:
        flow.function(name)


class _Flow:
    """Which parameters and results are exact: all, until something shows otherwise."""

    def __init__(
        self, functions: dict[str, tuple[Clause, ...]], constructors: dict[str, int]
    ) -> None:
        self.functions = functions
        self.parameters = {n: [True] * len(c[0].patterns) for n, c in functions.items()}
        self.results = dict.fromkeys(functions, True)
        self.constructors = {*constructors, *words.CONSTRUCTORS}
        self.strict = False  # whether to refuse, once nothing changes any more
        self.where = ""

    def state(self) -> tuple[object, ...]:
        return tuple((*self.parameters[n], self.results[n]) for n in self.functions)

    def function(self, name: str) -> None:
        self.where = name
        for clause in self.functions[name]:
            exact: Exact = {}
            for pattern, flag in zip(clause.patterns, self.parameters[name], strict=True):
                self._bind(pattern, flag, exact)
            self.results[name] &= self._clause(clause, exact, Facts())

    def _bind(self, pattern: Pattern, flag: bool, exact: Exact) -> None:
        if pattern.kind in ("variable", "alias"):
            exact[pattern.name] = flag
        if pattern.kind == "number":
            self._need(flag, "a number in a pattern is compared with")
        for part in pattern.parts:
            self._bind(part, flag, exact)

    def _need(self, flag: bool, what: str) -> None:
        if self.strict and not flag:
            raise refuse(
                f"{plain(self.where)}: Int wraps round and the logic's integers do not: {what} a "
                "number that was calculated, and a proof says nothing of that. Write Integer for "
                "Int, or compare arguments as they came"
            )

    def _clause(self, clause: Clause, exact: Exact, facts: Facts) -> bool:
        for name, value in clause.bindings:
            exact[name] = self._value(value, exact, facts)
        result = True
        for before, held, number in branches(clause, facts):
            for guard in clause.branches[number].guards:
                self._value(guard, exact, before)
            result &= self._value(clause.branches[number].body, exact, held)
        return result

    def _value(self, now: Expression, exact: Exact, facts: Facts) -> bool:
        match now:
            case Number(value):
                return abs(value) < 1 << 63
            case Letter():
                return True
            case Name(text):
                return self._named(text, exact)
            case Items(_, items):
                return all([self._value(item, exact, facts) for item in items])
            case If(condition, then, other):
                self._value(condition, exact, facts)
                yes = self._value(then, exact, facts.assume(condition))
                return self._value(other, exact, facts.assume(condition, False)) and yes
            case Let(bindings, body):
                inner = dict(exact)
                for name, bound in bindings:
                    inner[name] = self._value(bound, inner, facts)
                return self._value(body, inner, facts)
            case Case(subject, clauses):
                flag = self._value(subject, exact, facts)
                result = True
                for clause in clauses:
                    inner = dict(exact)
                    self._bind(clause.patterns[0], flag, inner)
                    result &= self._clause(clause, inner, facts)
                return result
            case Call(function, arguments):
                return self._call(function, arguments, exact, facts)

    def _named(self, text: str, exact: Exact) -> bool:
        """A variable, or a function that is handed on: its arguments are unknown."""
        if text in self.functions:
            self.parameters[text] = [False] * len(self.parameters[text])
        return exact.get(text, True)

    def _call(
        self,
        function: Expression,
        arguments: Sequence[Expression],
        exact: Exact,
        facts: Facts,
    ) -> bool:
        word = function.text if isinstance(function, Name) else ""
        if word in ("&&", "||"):
            self._value(arguments[0], exact, facts)
            for other in arguments[1:]:
                self._value(other, exact, facts.assume(arguments[0], word == "&&"))
            return True
        flags = [self._value(argument, exact, facts) for argument in arguments]
        if word in words.COMPARISON:
            self._need(all(flags), f"{word} compares")
            return True
        if word in words.DIVISION:
            self._need(all(flags), f"{word} divides")
            return True
        if word in words.ARITHMETIC:
            return all(flags) and _stays(word, arguments, facts, exact)
        if word in self.functions:
            return self._apply(word, flags)
        if word == "$" and len(arguments) == 2:
            return self._call(arguments[0], arguments[1:], exact, facts)
        if word in self.constructors or word in (":", "not", "negate"):
            return all(flags)
        self._value(function, exact, facts)
        return False

    def _apply(self, name: str, flags: Sequence[bool]) -> bool:
        known = self.parameters[name]
        self.parameters[name] = [
            old and (flags[n] if n < len(flags) else False) for n, old in enumerate(known)
        ]
        return self.results[name] and len(flags) <= len(known)


def _stays(word: str, given: Sequence[Expression], facts: Facts, exact: Exact) -> bool:
    """Whether n - k or n + k cannot leave the range, by the guards on n."""
    if word not in ("+", "-") or len(given) != 2:
        return False
    n, k = given
    if not isinstance(n, Name) or not isinstance(k, Number) or not abs(k.value) < SAFE:
        return False
    by = k.value if word == "+" else -k.value
    if by <= 0:
        least = facts.at_least(n.text)
        down = least is not None and abs(least) < SAFE
        return down or (by == -1 and any(y == n.text and exact.get(x) for x, y in facts.below))
    most = facts.at_most(n.text)
    up = most is not None and abs(most) < SAFE
    return up or (by == 1 and any(x == n.text and exact.get(y) for x, y in facts.below))

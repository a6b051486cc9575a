"""Whether a recursive function ends, decided apart from Liquid Haskell: by size-change termination
over its own equations. What the tool believes of termination everything else rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from sparring.pipelines.equivalence.judge.liquid_facts import Facts, branches
from sparring.pipelines.equivalence.judge.liquid_nodes import (
    Call,
    Case,
    Clause,
    Expression,
    If,
    Items,
    Let,
    Name,
    Number,
    Pattern,
    refuse,
)
from sparring.pipelines.equivalence.judge.liquid_vocabulary import plain

# Where a value comes from: the position of a parameter, and whether it is a proper part of it. A
# value is a variable, or a pattern written out again, as (y : rest) where (x:y:rest) was matched.
Origin = tuple[int, bool]
Origins = dict[Expression, Origin]
# A position is a parameter, or the difference of two: ("-", high, low).
Position = int | tuple[str, int, int]
Arc = tuple[Position, Position, bool]  # from, to, and whether it is smaller
Graph = frozenset[Arc]
MOST_GRAPHS = 400


def check_ends(name: str, clauses: Sequence[Clause], bounded: frozenset[int]) -> None:
    """Refuse a function that calls itself without a part, or a bounded number, growing smaller.

    bounded: parameters that are declared to have a least value, at every call.
    """
    walker = _Walker(name, len(clauses[0].patterns), bounded)
    graphs = [graph for clause in clauses for graph in walker.clause(clause)]
    if graphs and not _ends(graphs):
        label = plain(name)
        raise refuse(
            f"{label}: it is not seen that {label} ends. Each call of itself needs a part of an "
            "argument, as xs of (x:xs), or a number made smaller under a guard that bounds it, as "
            f"in `{label} n | n <= 0 = … | otherwise = … {label} (n - 1)`"
        )


def _ends(graphs: Sequence[Graph]) -> bool:
    """Whether on every way of calling itself again and again something must grow smaller."""
    closed = set(graphs)
    todo = list(closed)
    while todo:
        now = todo.pop()
        for other in list(closed):
            for made in (_after(now, other), _after(other, now)):
                if made not in closed:
                    closed.add(made)
                    todo.append(made)
        if len(closed) > MOST_GRAPHS:
            return False
    return all(
        any(start == end and smaller for start, end, smaller in graph)
        for graph in closed
        if _after(graph, graph) == graph
    )


def _after(first: Graph, second: Graph) -> Graph:
    arcs: dict[tuple[Position, Position], bool] = {}
    for (a, b, smaller), (c, d, also) in product(first, second):
        if b == c:
            arcs[a, d] = arcs.get((a, d), False) or smaller or also
    return frozenset((a, d, smaller) for (a, d), smaller in arcs.items())


class _Walker:
    """Goes along every path of a function and draws one graph per call of itself."""

    def __init__(self, name: str, arity: int, bounded: frozenset[int]) -> None:
        self.name, self.arity, self.bounded = name, arity, bounded

    def clause(self, clause: Clause) -> Iterator[Graph]:
        origins: Origins = {}
        for n, pattern in enumerate(clause.patterns):
            origins |= _origins(pattern, (n, False))
        yield from self._clause(clause, origins, Facts())

    def _clause(self, clause: Clause, origins: Origins, facts: Facts) -> Iterator[Graph]:
        for name, value in clause.bindings:
            yield from self._calls(value, origins, facts)
            if value in origins:
                origins = {**origins, Name(name): origins[value]}
        for before, held, number in branches(clause, facts):
            for guard in clause.branches[number].guards:
                yield from self._calls(guard, origins, before)
            yield from self._calls(clause.branches[number].body, origins, held)

    def _calls(self, now: Expression, origins: Origins, facts: Facts) -> Iterator[Graph]:
        match now:
            case Call(Name(text), arguments) if text == self.name:
                if len(arguments) < self.arity:
                    raise self._as_value()
                yield self._graph(arguments[: self.arity], origins, facts)
                for argument in arguments:
                    yield from self._calls(argument, origins, facts)
            case Name(text):
                if text == self.name:
                    raise self._as_value()
            case Call(function, arguments):
                yield from self._calls(function, origins, facts)
                yield from self._lazily(function, arguments, origins, facts)
            case If(condition, then, other):
                yield from self._calls(condition, origins, facts)
                yield from self._calls(then, origins, facts.assume(condition))
                yield from self._calls(other, origins, facts.assume(condition, False))
            case Case(subject, clauses):
                yield from self._calls(subject, origins, facts)
                known = origins.get(subject)
                for clause in clauses:
                    inner = dict(origins)
                    if known is not None:
                        inner |= _origins(clause.patterns[0], known)
                    yield from self._clause(clause, inner, facts)
            case Let(bindings, body):
                for _, value in bindings:
                    yield from self._calls(value, origins, facts)
                yield from self._calls(body, origins, facts)
            case Items(_, items):
                for item in items:
                    yield from self._calls(item, origins, facts)

    def _lazily(
        self,
        function: Expression,
        arguments: Sequence[Expression],
        origins: Origins,
        facts: Facts,
    ) -> Iterator[Graph]:
        """Arguments of a call; what stands after && or || is reached only where it matters."""
        for n, argument in enumerate(arguments):
            known = facts
            if n == 1 and isinstance(function, Name) and function.text in ("&&", "||"):
                known = facts.assume(arguments[0], function.text == "&&")
            yield from self._calls(argument, origins, known)

    def _as_value(self) -> Exception:
        label = plain(self.name)
        return refuse(f"{label}: {label} may call itself, and not hand itself on")

    def _graph(self, given: Sequence[Expression], origins: Origins, facts: Facts) -> Graph:
        arcs: set[Arc] = set()
        step = [self._step(argument, origins) for argument in given]
        for n, argument in enumerate(given):
            if argument in origins:
                start, smaller = origins[argument]
                arcs.add((start, n, smaller))
            origin = step[n]
            if origin is not None and origin[2] < 0:
                start, name, _ = origin
                if facts.at_least(name) is not None or start in self.bounded:
                    arcs.add((start, n, True))
        arcs |= self._differences(step, facts)
        return frozenset(arcs)

    def _step(self, argument: Expression, origins: Origins) -> tuple[int, str, int] | None:
        """A parameter that is handed on as it came, or with a number added or taken away."""
        by = 0
        if isinstance(argument, Call) and isinstance(argument.function, Name):
            word, parts = argument.function.text, argument.arguments
            if word not in ("+", "-") or len(parts) != 2 or not isinstance(parts[1], Number):
                return None
            by = parts[1].value if word == "+" else -parts[1].value
            argument = parts[0]
        if isinstance(argument, Name) and argument in origins:
            start, smaller = origins[argument]
            return None if smaller else (start, argument.text, by)
        return None

    def _differences(self, step: Sequence[tuple[int, str, int] | None], facts: Facts) -> set[Arc]:
        """`go (low + 1) high` under a guard low < high: what lies between grows smaller."""
        arcs: set[Arc] = set()
        for low, high in product(range(len(step)), repeat=2):
            a, b = step[low], step[high]
            if a is None or b is None or low == high or (a[0], b[0]) != (low, high):
                continue
            position = ("-", high, low)
            change = b[2] - a[2]
            if change == 0:
                arcs.add((position, position, False))
            elif change < 0 and (a[1], b[1]) in facts.below:
                arcs.add((position, position, True))
        return arcs


def _origins(pattern: Pattern, origin: Origin) -> Origins:
    """Where the variables of a pattern come from, when it is held against a known value."""
    origins: Origins = {}
    if pattern.kind in ("variable", "alias"):
        origins[Name(pattern.name)] = origin
    again = _again(pattern)
    if again is not None:
        origins[again] = origin
    inner = origin if pattern.kind == "alias" else (origin[0], True)
    for part in pattern.parts:
        origins |= _origins(part, inner)
    return origins


def _again(pattern: Pattern) -> Expression | None:
    """The expression that has the very value which a pattern matched, where every part is named."""
    if pattern.kind in ("variable", "alias"):
        return Name(pattern.name)
    if pattern.kind != "constructor" or not pattern.parts or pattern.name[0] == "(":
        return None
    parts = [_again(part) for part in pattern.parts]
    whole = tuple(part for part in parts if part is not None)
    return Call(Name(pattern.name), whole) if len(whole) == len(parts) else None

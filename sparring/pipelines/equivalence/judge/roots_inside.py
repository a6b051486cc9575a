"""Runs inside the jail, before domains_inside.py: the points of a plane at which an expression of x
and y is 0. Where a variable stands in it once it is solved for, step by step; otherwise signs that
change are closed in on. It imports nothing of Sparring."""

import ast
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Step = Callable[[int, int], Iterable[int]]  # (the other operand, what it must come to): operands
GRID = 24  # intervals in which a change of sign is looked for
LARGE, SOME = 100_000, (*range(-3, 4), -29, 31, 101)
QUOTIENTS = (*range(1, 17), *range(-8, 0))


def exact(n: int, by: int) -> list[int]:
    return [n // by] if by and n % by == 0 else []


def root_of(n: int, power: int) -> list[int]:
    if not 1 < power < 9:
        return []
    near = round(abs(n) ** (1 / power))
    return [v for c in (near - 1, near, near + 1) for v in (c, -c) if v**power == n]


def quotients(o: int, t: int) -> list[int]:
    return [t * o, t * o + o - 1 if o > 0 else t * o + o + 1]


def multiples(o: int, t: int) -> list[int]:
    """Of a small divisor chance finds enough; of a large one few are in reach, so all of them."""
    return [t + k * o for k in (range(-48, 49) if abs(o) > LARGE else SOME)]


# For `v op o == t` and for `o op v == t`, which v come to that: all, or some of many.
LEFT: dict[str, Step] = {
    "Add": lambda o, t: [t - o],
    "Sub": lambda o, t: [t + o],
    "Mult": lambda o, t: exact(t, o),
    "BitXor": lambda o, t: [t ^ o],
    "FloorDiv": quotients,
    "Mod": multiples,
    "Pow": lambda o, t: root_of(t, o),
    "max": lambda o, t: [t] if o <= t else [],
    "min": lambda o, t: [t] if o >= t else [],
}
RIGHT: dict[str, Step] = {
    **LEFT,
    "Sub": lambda o, t: [o - t],
    "FloorDiv": lambda o, t: [o // t, o // (t + 1) + 1 if t != -1 else 0] if t else [],
    "Mod": lambda o, t: [v for q in QUOTIENTS for v in exact(o - t, q)],
    "Pow": lambda o, t: [],
}


def inverse(node: Any, name: str, other: str) -> list[tuple[Step, Callable[[int], int]]] | None:
    """The way from the outside of an expression to the one place where a name stands in it; None
    where that cannot be gone back."""
    steps: list[tuple[Step, Callable[[int], int]]] = []
    while not (isinstance(node, ast.Name) and node.id == name):
        if isinstance(node, ast.BinOp):
            sides, kind = [node.left, node.right], type(node.op).__name__
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 2:
            sides, kind = node.args, node.func.id
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            steps.append((lambda o, t: [-t], lambda _: 0))
            node = node.operand
            continue
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "abs"
        ):
            steps.append((lambda o, t: [t, -t] if t >= 0 else [], lambda _: 0))
            node = node.args[0]
            continue
        else:
            return None
        inside = [any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(s)) for s in sides]
        step = (LEFT if inside[0] else RIGHT).get(kind)
        if step is None or all(inside):
            return None
        rest = sides[1] if inside[0] else sides[0]
        steps.append((step, eval(f"lambda {other}: {ast.unparse(rest)}")))
        node = sides[0] if inside[0] else sides[1]
    return steps


def solved(steps: list[tuple[Step, Callable[[int], int]]], given: int, limit: int) -> set[int]:
    values: Iterable[int] = [0]
    try:
        for step, rest in steps:
            operand = rest(given)
            values = [v for value in values for v in step(operand, value)]
    except (ArithmeticError, ValueError, TypeError):
        return set()
    return {v for v in values if -limit <= v <= limit}


def closed_in(gap: Callable[[int], Any], limit: int) -> Iterator[int]:
    """Where a change of sign is, to the integer on either side."""
    ends = [(n, value(gap, n)) for n in range(-limit, limit + 1, max(1, 2 * limit // GRID))]
    for (low, a), (high, b) in itertools.pairwise(ends):
        while a is not None and b is not None and (a > 0) != (b > 0) and high - low > 1:
            middle = (low + high) // 2
            c = value(gap, middle)
            if c is None:
                break
            low, a, high, b = (middle, c, high, b) if (c > 0) == (a > 0) else (low, a, middle, c)
        if a is not None and b is not None and (a > 0) != (b > 0):
            yield from (low, high)


def value(gap: Callable[[int], Any], n: int) -> Any:
    try:
        result = gap(n)
    except (ArithmeticError, ValueError, TypeError):
        return None
    return result if isinstance(result, int | float) and not math.isnan(result) else None


def roots(text: str, limit: int, order: Iterable[int]) -> Iterator[list[int]]:
    """Points [x, y] at which an expression is 0, or turns from one sign to the other."""
    tree = ast.parse(text, mode="eval").body
    names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
    ways = {
        name: inverse(tree, name, other) if names.count(name) == 1 else None
        for name, other in (("y", "x"), ("x", "y"))
    }
    for name, steps in ways.items():
        for given in order if steps is not None else ():
            for v in solved(steps or [], given, limit):
                yield [given, v] if name == "y" else [v, given]
    if any(steps is not None for steps in ways.values()):
        return
    both = eval(f"lambda x, y: {text}")
    for given in order:
        for v in closed_in(lambda y, x=given: both(x, y), limit):  # type: ignore[misc]
            yield [given, v]

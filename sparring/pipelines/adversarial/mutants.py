"""Programs with one thing wrong: what a reference becomes when one operator, comparison, number or
text of it is changed. A frozen generator that is right some of the time is made of these."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from functools import lru_cache

from sparring.core.source import parsed

MOST = 12
_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}

Change = Callable[[ast.AST], None]


@lru_cache(maxsize=1024)
def mutants(code: str, most: int = MOST) -> tuple[str, ...]:
    """Up to `most` programs that differ from `code` in one place, evenly spread over it."""
    tree = parsed(code) or ast.Module([], [])
    programs: list[str] = []
    for index, node in enumerate(ast.walk(tree)):
        for change in _changes(node):
            twin = copy.deepcopy(tree)
            change(list(ast.walk(twin))[index])
            programs.append(ast.unparse(ast.fix_missing_locations(twin)) + "\n")
    unlike = list(dict.fromkeys(text for text in programs if text != ast.unparse(tree) + "\n"))
    if len(unlike) <= most:
        return tuple(unlike)
    return tuple(unlike[i * len(unlike) // most] for i in range(most))


def _changes(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            for other in _COMPARISONS.get(type(op), ()):
                yield _compare(i, other)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield _set("op", _OPERATORS[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield _set("op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        yield _set("id", _NAMES[node.id])
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield _set("value", node.value + 1)
        yield _set("value", node.value - 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield _set("value", node.value[1:])


def _compare(i: int, other: type[ast.cmpop]) -> Change:
    def change(node: ast.AST) -> None:
        assert isinstance(node, ast.Compare)
        node.ops[i] = other()

    return change


def _set(name: str, value: object) -> Change:
    return lambda node: setattr(node, name, value)

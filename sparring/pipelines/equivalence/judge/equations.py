"""The comparisons of a function of two integers that are about its parameters alone, each as a
function of them, so that a search can look where the two sides are equal whether or not a run
would reach the comparison."""

from __future__ import annotations

import ast
from collections.abc import Iterable

_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CALLS = ("abs", "max", "min", "pow", "int", "divmod", "len", "str", "sum")
_ALLOWED = (
    *(ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call, ast.Load, ast.operator),
    ast.unaryop,
)


def equations_of(trees: Iterable[ast.Module], function: str) -> list[str]:
    """Texts of `left - right`, in the parameters `x` and `y`, shortest first."""
    texts: dict[str, None] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                texts |= dict.fromkeys(_of_function(node))
    return sorted(texts, key=len)


def _of_function(function: ast.FunctionDef) -> Iterable[str]:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    changed = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stored(n)}
    if len(names) != 2 or changed & set(names):
        return
    rename = _Rename(dict(zip(names, "xy", strict=True)))
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = (node.left, node.comparators[0])
            if isinstance(node.ops[0], _COMPARED) and all(_plain(s, names) for s in sides):
                left, right = (ast.unparse(rename.visit(ast.parse(ast.unparse(s)))) for s in sides)
                yield f"({left}) - ({right})"


def _stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _plain(side: ast.expr, names: list[str]) -> bool:
    called = {n.func.id for n in ast.walk(side) if _is_call(n)}  # type: ignore[attr-defined]
    used = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)} - called
    return (
        all(isinstance(n, _ALLOWED) for n in ast.walk(side))
        and used <= set(names)
        and called <= set(_CALLS)
    )


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

"""Programs that count their own steps: each branch, loop and call of a function says that it was
reached, and each comparison what it compared. A limit on steps is the same on any machine, however
busy; what was reached, and how near a comparison came, tells a search where to look next."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

from sparring.core.source import unwarned

# Names that no program may use: see `purity`.
REACHED, VALUE, COMPARED = "__reached__", "__value__", "__compared__"
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@lru_cache(maxsize=512)
def instrumented(source: str) -> str:
    """The same program with `__reached__(n)` in every place that may be reached or not, and
    `__compared__(n, a, op, b)` for `a op b`."""
    with unwarned():
        tree = _Marks().visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree))


class _Marks(ast.NodeTransformer):
    def __init__(self) -> None:
        self.marks = 0

    def _call(self, name: str, *rest: ast.expr) -> ast.Call:
        self.marks += 1
        return ast.Call(ast.Name(name, ast.Load()), [ast.Constant(self.marks), *rest], [])

    def _mark(self) -> ast.stmt:
        return ast.Expr(self._call(REACHED))

    def _statements(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body = [self._mark(), *node.body]
        return node

    visit_FunctionDef = visit_For = visit_While = _statements
    visit_ExceptHandler = visit_match_case = _statements

    def visit_If(self, node: ast.If) -> ast.If:
        self._statements(node)
        node.orelse = [self._mark(), *node.orelse]
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs = [self._call(REACHED), *node.ifs]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        self.generic_visit(node)
        node.body, node.orelse = (self._call(VALUE, part) for part in (node.body, node.orelse))
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        node.body = self._call(VALUE, node.body)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], _COMPARED):
            return node
        name = ast.Constant(type(node.ops[0]).__name__)
        return self._call(COMPARED, node.left, name, node.comparators[0])

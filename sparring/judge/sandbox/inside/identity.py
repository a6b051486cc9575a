"""`is` in tests: what is believed of a program's object hangs on how the tests had it, so that it
may have several stand-ins, which are one object all the same."""

from __future__ import annotations

import importlib
import re
from types import CodeType
from typing import Any

from .remote import Proxy

ONE = "__one__"  # what the function below is called in the tests
USED = re.compile(r"\bis\b(?!\s+(?:not\s+)?(?:None|True|False)\b)")


def one(value: Any) -> Any:
    """The same for all stand-ins of an object."""
    if type(value) is Proxy:
        return value._side.proxy(value._number, value._about)
    return value


def compiled(text: str, label: str) -> CodeType:
    """Tests, with `one(a) is one(b)` for `a is b`."""
    if not USED.search(text):
        return compile(text, label, "exec", dont_inherit=True)
    ast = importlib.import_module("ast")  # no fork without such tests pays for it
    tree = compile(text, label, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Is | ast.IsNot) for op in node.ops
        ):
            node.left, *node.comparators = [
                side if isinstance(side, ast.Constant) else _asked(ast, side)
                for side in (node.left, *node.comparators)
            ]
    return compile(ast.fix_missing_locations(tree), label, "exec", dont_inherit=True)


def _asked(ast: Any, side: Any) -> Any:
    function = ast.copy_location(ast.Name(ONE, ast.Load()), side)
    return ast.copy_location(ast.Call(function, [side], []), side)


def same(method: Any) -> Any:
    """`assertIs` and its contrary, for stand-ins."""

    def asserted(case: Any, first: Any, second: Any, msg: Any = None) -> Any:
        return method(case, one(first), one(second), msg)

    return asserted

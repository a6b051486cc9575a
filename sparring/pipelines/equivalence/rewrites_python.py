"""Rewrites Python functions by rules, some of which keep their meaning and some of which break it.
They are proposals only: a checker has the last word on each."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator

from sparring.pipelines.equivalence.reshaping_python import WHOLE
from sparring.pipelines.equivalence.rewrites import Rewrite, in_order
from sparring.pipelines.equivalence.rules_python import BREAK, KEEP, Change, Scope


def rewrites(source: str, function: str) -> list[Rewrite]:
    """Everything the rules make of a program, without repeats, in a fixed order."""
    tree = ast.parse(source)
    original = ast.unparse(tree)
    by_code: dict[str, Rewrite] = {}
    for keeps, rules in ((True, KEEP), (False, BREAK)):
        for name, change in rules.items():
            for made in _everywhere(tree, function, change):
                code = ast.unparse(ast.fix_missing_locations(made)) + "\n"
                if code.strip() != original:
                    by_code.setdefault(code, Rewrite(name, keeps, code))
    for name, (keeps, whole) in WHOLE.items():
        made_whole = copy.deepcopy(tree)
        if whole(_function(made_whole, function)):
            code = ast.unparse(ast.fix_missing_locations(made_whole)) + "\n"
            by_code.setdefault(code, Rewrite(name, keeps, code))
    return list(by_code.values())


def choose(source: str, function: str, keeps: bool, rng: random.Random) -> list[Rewrite]:
    return in_order(rewrites, source, function, keeps, rng)


def _function(tree: ast.Module, function: str) -> ast.FunctionDef:
    return next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function)


def _everywhere(tree: ast.Module, function: str, change: Change) -> Iterator[ast.Module]:
    """One copy of the module for each place in which the change can be made."""
    own = _function(tree, function)
    scope = _scope(own)
    fitting = [i for i, site in enumerate(_sites(own)) if change(site[0], scope) is not None]
    for chosen in fitting:
        made = copy.deepcopy(tree)
        root = _function(made, function)
        node, parent, key, index = list(_sites(root))[chosen]
        new = change(node, _scope(root))
        if parent is None:
            root.body = new.body
        elif index is None:
            setattr(parent, key, new)
        else:
            getattr(parent, key)[index] = new
        yield made


def _sites(root: ast.FunctionDef) -> Iterator[tuple[ast.AST, ast.AST | None, str, int | None]]:
    """Every node of a function's body with where it hangs; types and defaults are left alone."""
    yield root, None, "", None
    stack: list[ast.AST] = list(reversed(root.body))
    hangs: dict[int, tuple[ast.AST, str, int | None]] = {
        id(part): (root, "body", i) for i, part in enumerate(root.body)
    }
    while stack:
        node = stack.pop()
        yield (node, *hangs[id(node)])
        below: list[ast.AST] = []
        for key, value in ast.iter_fields(node):
            for index, part in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(part, ast.expr | ast.stmt):
                    hangs[id(part)] = (node, key, index if isinstance(value, list) else None)
                    below.append(part)
                elif isinstance(part, ast.comprehension):
                    for inner, expr in enumerate(part.ifs):
                        hangs[id(expr)] = (part, "ifs", inner)
                        below.append(expr)
        if not isinstance(node, ast.JoinedStr | ast.FunctionDef):
            stack += reversed(below)


def _scope(root: ast.FunctionDef) -> Scope:
    types = {a.arg: ast.unparse(a.annotation) for a in root.args.args if a.annotation is not None}
    scope = Scope(types)
    waiting: list[ast.AST] = []
    for node in ast.walk(root):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            waiting.append(node.test)
        elif isinstance(node, ast.comprehension):
            waiting += node.ifs
    while waiting:
        node = waiting.pop()
        scope.tests.add(id(node))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            waiting.append(node.operand)
        elif isinstance(node, ast.BoolOp):
            waiting += node.values
    return scope

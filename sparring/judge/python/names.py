"""Whose the names in tests are: the program's, the tests' own, or Python's."""

from __future__ import annotations

import ast
import builtins
import symtable
from functools import lru_cache

BUILTINS = frozenset(dir(builtins))
DYNAMIC = frozenset({"eval", "exec", "globals", "locals", "vars", "dir", "__import__", "compile"})


def shadowed(
    trees: list[tuple[str, ast.Module]], entry: tuple[str, ...], defined: frozenset[str]
) -> list[str]:
    """Builtin names that mean the program's own function: those of the entry; without one, and
    where the tests call nothing else of the program's, the one that they call and it defines.

    Which one that is, the tests say and not the program, or it could have `abs` for itself in
    `assert abs(max(2, 3) - 3) < 1e-6`: it is called with plain arguments, in an assert or as an
    argument of a function of the tests' own, and no other builtin is."""
    if entry:
        return [name for name in entry if name in BUILTINS]
    if not defined:
        return []
    own = {
        name.asname or name.name.partition(".")[0] if isinstance(name, ast.alias) else name.name
        for _, tree in trees
        for name in ast.walk(tree)
        if isinstance(name, ast.alias | ast.FunctionDef | ast.ClassDef)
    }
    called: set[str] = set()
    for _, tree in trees:
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
                called |= _plainly_called(node, own)
    return sorted(called & defined) if len(called) == 1 else []


def _plainly_called(statement: ast.stmt, own: set[str]) -> set[str]:
    """Names of functions, other than the tests' own, that are called with arguments in which
    there is no call, where their value is looked at."""
    looked_at: list[ast.AST] = []
    for node in ast.walk(statement):
        if isinstance(node, ast.Assert):
            looked_at.append(node.test)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in own:
            looked_at += node.args
    return {
        node.func.id
        for top in looked_at
        for node in ast.walk(top)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if node.func.id not in own
        if not any(isinstance(n, ast.Call) for arg in node.args for n in ast.walk(arg))
    }


@lru_cache(maxsize=256)
def global_names(
    parts: tuple[tuple[str, str], ...], shadow: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The global names that the tests read, builtins aside, and those that they bind; None and
    nothing where it cannot be told."""
    reads: set[str] = set()
    binds: set[str] = set()
    for label, text in parts:
        try:
            scopes = [symtable.symtable(text, label, "exec")]
        except (SyntaxError, ValueError, RecursionError):
            return None, ()
        for scope in scopes:
            scopes += scope.get_children()
            for name in scope.get_symbols():
                if scope.get_type() == "module" or name.is_global():
                    binds |= (
                        {name.get_name()} if name.is_assigned() or name.is_imported() else set()
                    )
                    reads |= {name.get_name()} if name.is_referenced() else set()
    known = {name for name in reads if name in BUILTINS and name not in shadow}
    if known & DYNAMIC:
        return None, ()
    return tuple(sorted(reads - known)), tuple(sorted(binds))

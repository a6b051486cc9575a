"""Whose the names in tests are: the program's, the tests' own, or Python's."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
from collections.abc import Iterable, Iterator
from types import CodeType

from sparring.judge.sandbox.inside.identity import ONE

BUILTINS = frozenset(dir(builtins)) - {"_"}  # which an interactive session binds, not Python
EXTENDED_ARG = dis.EXTENDED_ARG
LOADS = {  # operation → by how many bits its argument is shifted; LOAD_GLOBAL has a flag in it
    dis.opmap[name]: int(name == "LOAD_GLOBAL")
    for name in ("LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS")
    if name in dis.opmap
}
STORES = {dis.opmap[name] for name in ("STORE_NAME", "STORE_GLOBAL")}
ASSIGNS = {dis.opmap[name] for name in ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
           if name in dis.opmap}  # fmt: skip
CHANGING = {"append", "extend", "insert", "pop", "remove", "clear", "update", "add", "discard",
            "sort", "reverse", "setdefault", "popitem"}  # fmt: skip
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


def global_names(
    codes: Iterable[CodeType], shadow: tuple[str, ...]
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The global names that compiled tests read, builtins aside, and those that they bind; None
    and nothing where that is unclear."""
    reads: set[str] = set()
    binds: set[str] = set()
    for module in codes:
        for code in (module, *_nested(module)):
            loaded, stored = _names_of(code)
            if code is not module and not code.co_flags & inspect.CO_OPTIMIZED:
                loaded, stored = loaded - stored, set()  # a class: its names are its own
            reads |= loaded
            binds |= stored
    reads.discard(ONE)
    known = {name for name in reads if name in BUILTINS and name not in shadow}
    if known & DYNAMIC:
        return None, ()
    return tuple(sorted(reads - known)), tuple(sorted(binds))


def changes_values(codes: Iterable[CodeType]) -> bool:
    """Whether compiled tests may change a list, dict or set that they were given."""
    return any(
        CHANGING & set(code.co_names) or any(op in ASSIGNS for op in code.co_code[::2])
        for module in codes
        for code in (module, *_nested(module))
    )


def _nested(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _nested(inner)


def _names_of(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that one code object, without those inside it, loads and stores outside its own
    local variables. Read from its bytes: symbol tables would mean to parse it once more."""
    loaded: set[str] = set()
    stored: set[str] = set()
    argument = 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = argument << 8 | low
        if operation == EXTENDED_ARG:
            continue
        if operation in LOADS:
            loaded.add(code.co_names[argument >> LOADS[operation]])
        elif operation in STORES:
            stored.add(code.co_names[argument])
        argument = 0
    return loaded, stored

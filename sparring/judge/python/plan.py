"""Takes tests apart: the calls go to the program, everything else stays with the judge.

`assert f(1, 2) == [3]` becomes the call `f(1, 2)`, which is all the program's process ever sees,
and the check `Value(0) == [3]`, which is all the judge needs. Tests that are more than a row of
such asserts are left whole, to be run in a process of their own.
"""

from __future__ import annotations

import ast
import marshal
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import MAGIC_NUMBER
from types import CodeType
from typing import Any

from sparring.core.source import unwarned
from sparring.judge.python.expressions import MODULES, Value
from sparring.judge.python.hoisting import Check, Hoisting, NotSimple
from sparring.judge.python.names import BUILTINS, changes_values, global_names, shadowed
from sparring.judge.python.plain_asserts import plain_asserts
from sparring.judge.sandbox.inside import identity

MOST_TEXT = 1 << 20
OWN_NAMES = BUILTINS | MODULES.keys() | {"check"}  # never the program's, unless it shadows them
NOT_SIMPLE = re.compile(  # statements that tests made of asserts alone do not have
    r"^(?:for|while|with|try|class|async|def (?!check\b)|(?!METADATA\b)\w+ *=[^=])"
    r"|^ +(?:for|while|with|try|if|def)\b",
    re.MULTILINE,
)
CALLS_CHECK = re.compile(r"(?<!def )\bcheck\s*\(")


class BadTests(ValueError):
    """The problem's own tests are unusable; the message says where."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`calls` and `checks` when the tests could be taken apart; `parts` is them whole."""

    simple: bool
    imports: tuple[tuple[str, str | None, str | None], ...]
    calls: tuple[tuple[str, str], ...]
    checks: tuple[Check, ...]
    parts: tuple[tuple[str, str], ...]
    entry: tuple[str, ...]
    call_check: bool
    shadow: tuple[str, ...]


@lru_cache(maxsize=1024)
def plan_tests(
    tests: tuple[str, ...], setup: str, entry: tuple[str, ...], defined: frozenset[str]
) -> Plan:
    """`defined`: names of builtins that the program defines anew, which tests may mean to call."""
    parts = [("<setup>", setup)] if setup.strip() else []
    parts += [(f"<test {n}>", text) for n, text in enumerate(tests, 1) if text.strip()]
    if not any(label != "<setup>" for label, _ in parts):
        raise BadTests("the problem has no tests")
    if not entry and (plan := _plain_plan(tuple(parts), defined)) is not None:
        return plan
    if (entry or not defined) and any(NOT_SIMPLE.search(text) for _, text in parts):
        return _whole_plan(tuple(parts), entry)
    trees = [(label, _parse(label, text)) for label, text in parts]
    check = _check_function(trees)
    called = check is not None and _calls_check(trees)
    if check is not None and not called:
        _match_entry(len(check.args.args), entry)
    shadow = shadowed(trees, entry, defined)
    try:
        hoisting = Hoisting(trees, entry, shadow)
        hoisting.hoist(check)
        simple, calls, checks, imports = True, hoisting.calls, hoisting.checks, hoisting.imports
    except (NotSimple, RecursionError):
        simple, calls, checks, imports = False, [], [], []
    return Plan(
        simple,
        tuple(imports),
        tuple(calls),
        tuple(checks),
        tuple(parts),
        entry,
        check is not None and not called,
        tuple(shadow),
    )


def _plain_plan(parts: tuple[tuple[str, str], ...], defined: frozenset[str]) -> Plan | None:
    if any(len(text) > MOST_TEXT for _, text in parts):
        return None
    rows = plain_asserts(text for _, text in parts)
    if rows is None:
        return None
    called = {row.name for row in rows}
    shadow = called & defined if len(called) == 1 else set()
    if called & (OWN_NAMES - shadow):
        return None
    checks = [
        Check(
            ast.Compare(Value(n), [ast.Eq()], [ast.Constant(row.expected)]),
            row.source,
            (n,),
        )
        for n, row in enumerate(rows)
    ]
    calls = tuple((row.call, "") for row in rows)
    return Plan(True, (), calls, tuple(checks), parts, (), False, tuple(shadow))


def _whole_plan(parts: tuple[tuple[str, str], ...], entry: tuple[str, ...]) -> Plan:
    """For tests that surely cannot be taken apart: compiled once, with no syntax tree."""
    codes = compiled(parts)
    check = [
        inner
        for code in codes
        for inner in code.co_consts
        if isinstance(inner, CodeType) and inner.co_name == "check"
        if inner.co_argcount and not inner.co_kwonlyargcount
    ]
    shadow = tuple(name for name in entry if name in BUILTINS)
    call_check = bool(check) and not any(CALLS_CHECK.search(text) for _, text in parts)
    if call_check:
        _match_entry(check[-1].co_argcount, entry)  # of several, the last is the one that is there
    return Plan(False, (), (), (), parts, entry, call_check, shadow)


@lru_cache(maxsize=64)
def for_the_link(parts: tuple[tuple[str, str], ...], shadow: tuple[str, ...]) -> dict[str, Any]:
    """What the tests' process needs beside their text: which names to ask the program for, and
    their code, for an interpreter of the same version."""
    codes = compiled(parts)
    reads, binds = global_names(codes, shadow)
    code = (MAGIC_NUMBER + marshal.dumps(codes)).hex()
    return {"reads": reads, "binds": binds, "code": code, "changes": changes_values(codes)}


def _match_entry(wanted: int, entry: tuple[str, ...]) -> None:
    if not entry:
        raise BadTests("the tests define check() but nothing names the function to check")
    if wanted != len(entry):
        raise BadTests(f"check() takes {wanted} functions, and entry names {len(entry)}")


@lru_cache(maxsize=64)
def compiled(parts: tuple[tuple[str, str], ...]) -> tuple[CodeType, ...]:
    return tuple(_parse(label, text, identity.compiled) for label, text in parts)


def _tree(text: str, label: str) -> Any:
    return compile(text, label, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)


def _parse(label: str, text: str, parse: Callable[[str, str], Any] = _tree) -> Any:
    if len(text) > MOST_TEXT:
        raise BadTests(f"{label.strip('<>')} has {len(text)} characters; the most is {MOST_TEXT}")
    try:
        with unwarned():
            return parse(text, label)
    except SyntaxError as error:
        line = f" line {error.lineno}" if error.lineno else ""  # no line has a null byte
        raise BadTests(f"{label.strip('<>')}{line} does not parse: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadTests(f"{label.strip('<>')} does not parse: {error}") from None


def _check_function(trees: list[tuple[str, ast.Module]]) -> ast.FunctionDef | None:
    for _, tree in trees:
        for node in tree.body:
            match node:
                case ast.FunctionDef("check", ast.arguments(args=[_, *_], kwonlyargs=[])):
                    return node
    return None


def _calls_check(trees: list[tuple[str, ast.Module]]) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "check"
        for _, tree in trees
        for node in ast.walk(tree)
    )

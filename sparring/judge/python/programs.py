"""What the games on programs share: running one, and what it may not do to be predictable."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import lru_cache

from sparring.core.game import Remote
from sparring.core.source import parsed
from sparring.core.types import Task, Verdict, VoidGame
from sparring.judge.python.judge import Execution, Judge
from sparring.judge.python.ray import RayJudge
from sparring.tasks import choose_task, load_tasks

# Modules that are the same at any hour and on any machine, and lead to no other module.
MODULES = (
    *("math", "cmath", "itertools", "functools", "collections", "string", "heapq", "bisect"),
    *("decimal",),
)
OUTSIDE = frozenset(
    {
        *("breakpoint", "compile", "delattr", "eval", "exec", "exit", "getattr", "globals", "help"),
        *("input", "locals", "memoryview", "open", "quit", "setattr", "vars"),
        *("hash", "id"),  # the same in two runs, for some values, and for no reader
    }
)
# Public names that lead to frames, to attributes by text, or to what only this machine has.
LEADING = re.compile(r"(?:gi|cr|ag)_(?:frame|code)|Formatter|format_map|get_cache_token")
BY_TEXT = re.compile(r"\{[^{}]*[.\[]_")  # "{0.__globals__}".format(f)
DUNDERS = frozenset({"__init__", "__name__"})
OWN = ("self", "cls")  # whose private names a class may use


def make_judge(sandbox: str, timeout_s: float) -> Judge:
    make = RayJudge if isinstance(sandbox, Remote) else Judge
    return make(timeout_s=timeout_s, sandbox=str(sandbox))


def ruling(done: Execution) -> Verdict:
    """An execution as a verdict: it ran, with or without output, or it did not."""
    if done.status != "ok":
        return Verdict(done.status, done.kind, done.detail, done.seconds)
    return Verdict("pass", "output" if done.stdout.strip() else "no output", "", done.seconds)


def not_void(verdict: Verdict) -> Verdict:
    """A broken jail voids the game."""
    if verdict.status == "void":
        raise VoidGame(f"the judge could not rule ({verdict.kind}): {verdict.detail}")
    return verdict


@lru_cache(maxsize=4)
def _shipped(name: str) -> tuple[Task, ...]:
    return tuple(load_tasks(f"shipped:{name}", "train"))


def shipped_task(name: str, seed: int) -> Task:
    """A seed's task of our own problems, for play outside a run."""
    tasks = _shipped(name)
    return choose_task(tasks, 0, seed % (64 * len(tasks)))


def forbidden(code: str, modules: Collection[str] = MODULES) -> str:
    """What in a program reaches beyond itself and some modules, or nothing: running twice shows
    most of that, but not what changes only from day to day or from machine to machine."""
    tree = parsed(code)
    if tree is None:
        return ""  # the run will say what is wrong with it
    nodes = [*ast.walk(tree)]
    asked = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Name) and node.id in imported and id(node) not in asked:
            return f"{node.id} itself"  # its file, or what it has imported in its turn
        reason = _reaches(node, modules)
        if reason:
            return reason
    return ""


def _reaches(node: ast.AST, modules: Collection[str]) -> str:
    if isinstance(node, ast.Import):
        return next(
            (
                f"import {alias.name}"
                for alias in node.names
                if alias.name not in modules or alias.asname in OWN
            ),
            "",
        )
    if isinstance(node, ast.ImportFrom):
        private = any(_is_hidden(alias.name) for alias in node.names)
        known = node.level == 0 and node.module in modules and not private
        return "" if known else f"from {node.module} import"
    if isinstance(node, ast.Name):
        hidden = node.id.startswith("__") and node.id not in DUNDERS
        return node.id if node.id in OUTSIDE or hidden else ""
    if isinstance(node, ast.MatchClass):
        return next((f"{name}=" for name in node.kwd_attrs if _is_hidden(name)), "")
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in OWN
        private = own and re.match("_(?!_)", node.attr) is not None
        by_text = node.attr == "format" and not _is_plain_form(node.value)
        hidden = _is_hidden(node.attr) and not private and node.attr not in DUNDERS
        return f".{node.attr}" if hidden or by_text else ""
    return ""


def _is_hidden(name: str) -> bool:
    return name.startswith("_") or LEADING.fullmatch(name) is not None


def _is_plain_form(node: ast.expr) -> bool:
    """A text to fill in that can be read and asks for nothing hidden."""
    match node:
        case ast.Constant(str(text)):
            return BY_TEXT.search(text) is None
    return False

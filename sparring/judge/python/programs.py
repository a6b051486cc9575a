"""What the games on programs share: running one, and what it may not do to be predictable."""

from __future__ import annotations

import ast
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
    }
)
DUNDERS = frozenset({"__init__", "__name__"})


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
    for node in ast.walk(tree):
        reason = _reaches(node, modules)
        if reason:
            return reason
    return ""


def _reaches(node: ast.AST, modules: Collection[str]) -> str:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        return next((f"import {name}" for name in names if name not in modules), "")
    if isinstance(node, ast.ImportFrom):
        private = any(alias.name.startswith("_") for alias in node.names)
        known = node.level == 0 and node.module in modules and not private
        return "" if known else f"from {node.module} import"
    if isinstance(node, ast.Name):
        hidden = node.id.startswith("__") and node.id not in DUNDERS
        return node.id if node.id in OUTSIDE or hidden else ""
    if isinstance(node, ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        hidden = node.attr.startswith("_") and not own
        dunder = node.attr.startswith("__") and node.attr not in DUNDERS
        return f".{node.attr}" if dunder or (hidden and node.attr not in DUNDERS) else ""
    return ""

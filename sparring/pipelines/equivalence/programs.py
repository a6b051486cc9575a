"""Programs to be rewritten, whichever set they are from: which function is meant, and about which
programs anything can be proved."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Sequence

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.pipelines.equivalence.call_graph import root
from sparring.pipelines.equivalence.haskell_programs import choose_function
from sparring.pipelines.equivalence.judge import python
from sparring.pipelines.equivalence.judge.crosshair import bare
from sparring.pipelines.equivalence.judge.haskell import HaskellChecker, read
from sparring.pipelines.equivalence.judge.haskell_source import Refused, tokens
from sparring.pipelines.equivalence.judge.purity import parse
from sparring.pipelines.equivalence.judge.signature import BadSignature

_CODE = ("code", "p", "program", "haskell_code", "canonical_solution", "solution")
_FUNCTION = ("function", "entry_point", "entry")
_FENCED = re.compile(r"```\w*\n(.*?)```", re.DOTALL)


def code_of(task: Task) -> str:
    """The program of a task, under whichever name its set keeps it."""
    code = next((task.data[key] for key in _CODE if isinstance(task.data.get(key), str)), None)
    if code is None:
        raise ConfigError(
            f"task {task.id} has no program: a text was expected under {', '.join(_CODE)}"
        )
    fenced = _FENCED.search(code)
    return (fenced[1] if fenced else code).replace("\r\n", "\n")


def program_of(task: Task, language: str) -> tuple[str, str]:
    """The function to judge and the program it is in: as the task says, or the one that the other
    functions are there for."""
    code = code_of(task)
    named = next((task.data[k] for k in _FUNCTION if isinstance(task.data.get(k), str)), None)
    if language == "haskell":
        try:
            return choose_function(code, named or None)
        except Refused as error:
            raise BadSignature(str(error)) from error
    return named or _python_function(code), code


def unusable(task: Task, language: str) -> str:
    """Why a program cannot be judged, as `kind: reason`, as far as its text tells; or nothing."""
    try:
        function, code = program_of(task, language)
    except BadSignature as error:
        return f"{getattr(error.__cause__, 'kind', 'type')}: {error}"
    if language == "haskell":
        try:
            read(code, function, "P")
        except Refused as refusal:
            return f"{refusal.kind}: {refusal}"
        return ""
    try:
        python.accept_pair(code, code, function)
    except python.Refused as refusal:
        return f"{refusal.verdict.kind}: {refusal.verdict.detail}"
    return ""


def unchanged(p: str, q: str, language: str) -> bool:
    """Whether Q is P but for spaces, comments and, in Python, brackets and docstrings. An indent of
    Python's and spaces in a text are no such spaces: with others it is another program."""
    if language == "haskell":
        try:
            first, second = ([t.text for t in tokens(c) if t.kind != "pragma"] for c in (p, q))
        except Refused:
            return p.split() == q.split()
        return first == second
    if not all(isinstance(parse(code), ast.Module) for code in (p, q)):
        return p.split() == q.split()
    return bare(p) == bare(q)


def _python_function(code: str) -> str:
    tree = parse(code)
    if isinstance(tree, str):
        raise BadSignature(tree)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if not functions:
        raise BadSignature("it has no function")
    calls = {
        name: {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in functions}
        for name, node in functions.items()
    }
    return root(calls, list(functions), ())


def need_proofs(tasks: Sequence[Task], sandbox: str) -> frozenset[str]:
    """The tasks whose programs can be proved about; ConfigError where no proof can be checked."""
    wrong, provable = asyncio.run(_examine(tasks, sandbox))
    if wrong:
        raise ConfigError(
            f"equivalences in Haskell are proved by Liquid Haskell, and {wrong}. "
            "docs/haskell.md says how it is installed; games.equivalence.prove=false plays without"
        )
    count = f"{len(provable)} of {len(tasks)} programs can be proved about"
    if not provable:
        raise ConfigError(f"{count}: give others, or say games.equivalence.prove=false")
    print(
        f"equivalence: {count}; only these are played, for both branches, for the others would "
        "always be inequivalent",
        file=sys.stderr,
    )
    return provable


async def _examine(tasks: Sequence[Task], sandbox: str) -> tuple[str, frozenset[str]]:
    async with HaskellChecker(sandbox) as checker:
        wrong = await checker.self_check()
        if wrong:
            return wrong, frozenset()
        verdicts = await asyncio.gather(*(_provable(checker, task) for task in tasks))
    return "", frozenset(t.id for t, fine in zip(tasks, verdicts, strict=True) if fine)


async def _provable(checker: HaskellChecker, task: Task) -> bool:
    try:
        function, p = program_of(task, "haskell")
    except BadSignature:
        return False
    return (await checker.provable(p, function)).passed

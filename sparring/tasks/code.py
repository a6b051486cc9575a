"""Coding problems, whichever data set they are from, and the program in a reply."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

from sparring.core.errors import ConfigError
from sparring.core.source import parsed
from sparring.core.types import Task

_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL
)
_FENCES = re.compile(r"^[ \t]*```[ \t]*(\w*)", re.MULTILINE)
_ONE_RETURN = re.compile(r"(def [^\n]*:)\n\s+return ([^\n]*)\s*\Z")
_PYTHON = ("", "python", "python3", "py")


@dataclass(frozen=True, slots=True)
class Problem:
    """A coding problem. `code` is its reference solution, which no player sees."""

    id: str
    prompt: str
    tests: tuple[str, ...] = ()
    setup: str = ""
    code: str = ""
    entry: str | None = None
    signature: str = ""


def problem_of(task: Task) -> Problem:
    """A task as a problem: of our own form, of a problems file's, of MBPP's, or of HumanEval's."""
    row = task.data
    keys = ("prompt", "text", "question", "description")
    prompt = next((row[key] for key in keys if row.get(key)), None)
    if not isinstance(prompt, str):
        raise ConfigError(
            f"task {task.id} has no prompt: a coding task has a text under `prompt` or `text`, "
            "and for evaluation `tests` or `test_list`"
        )
    if "canonical_solution" in row:
        code = f"{row['prompt']}{row['canonical_solution']}"
        return Problem(task.id, prompt, (row["test"],), code=code, entry=row["entry_point"])
    tests = row.get("test_list", row.get("tests", row.get("baseline_tests"))) or ()
    return Problem(
        id=task.id,
        prompt=prompt.strip(),
        tests=(tests,) if isinstance(tests, str) else tuple(tests),
        setup=row.get("test_setup_code", row.get("setup")) or "",
        code=(row.get("code") or row.get("reference_solution") or "").replace("\r\n", "\n"),
        entry=row.get("entry"),
        signature=(row.get("function_signature") or "").strip(),
    )


def extract_code(text: str) -> str:
    """The program in a reply: its first Python code block, closed or not, else all of it. A lone
    bare fence with something before it closes a block that was never opened."""
    fences = _FENCES.findall(text)
    before = text.split("```", 1)[0]
    if fences == [""] and before.strip():
        return before
    for language, block in _FENCE.findall(text):
        if language.lower() in _PYTHON:
            return str(block)
    return text


def is_empty(code: str) -> bool:
    """Whether there is no statement at all, as in an empty reply or one of comments."""
    lines = (line.strip() for line in code.splitlines())
    return all(not line or line.startswith("#") for line in lines)


@lru_cache(maxsize=4096)
def formatted(code: str) -> str:
    """A program as Python itself would write it: data sets mix tabs, spaces and styles, which a
    model that imitates them would mix as well. What is no Python stays as it is."""
    tree = parsed(code)
    return code.strip() if tree is None else ast.unparse(tree)


def one_return(code: str) -> tuple[str, str] | None:
    """The first line of a function that only returns an expression, and the expression."""
    match = _ONE_RETURN.match(code)
    return (match[1], match[2]) if match else None

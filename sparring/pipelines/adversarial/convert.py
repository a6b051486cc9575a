"""Makes problems files of other data sets."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.pipelines.adversarial.problems import count_statements, definitions, fault
from sparring.run.lock import writing_file
from sparring.run.rundir import write_whole
from sparring.tasks.code import Problem, parsed, problem_of
from sparring.tasks.source import load_tasks, split_of

_EASY, _MEDIUM = 3, 8  # statements of the reference; MBPP itself grades nothing


def convert_mbpp(source: str, out: Path) -> tuple[int, dict[str, str]]:
    """MBPP's training split (601 to 974) as a problems file: how many were written, and why any
    was left out. The test split never gets here."""
    with writing_file(out):
        if out.exists():
            raise ConfigError(f"{out} exists already; it is not overwritten")
        return _convert(source, out)


def _convert(source: str, out: Path) -> tuple[int, dict[str, str]]:
    folder = Path(source).expanduser() / "mbpp.jsonl"
    tasks = load_tasks(str(folder) if folder.is_file() else source, "train")
    foreign = [task.id for task in tasks if split_of(task.data) != "train"]
    if foreign:
        raise ConfigError(f"{source} is not MBPP: task {foreign[0]} is in none of its splits")
    rows, left_out = [], {}
    for task in tasks:
        try:
            rows.append(_row(problem_of(task)))
        except ValueError as error:
            left_out[task.id] = str(error)
    write_whole(out, (json.dumps({"problems": rows}, indent=1) + "\n").encode())
    return len(rows), left_out


def _row(problem: Problem) -> dict[str, Any]:
    if problem.setup.strip():
        raise ValueError("its tests need a set-up of their own")
    defined = definitions(problem.code) or {}
    called = [
        node.func.id
        for test in problem.tests
        for node in ast.walk(parsed(test) or ast.Module([], []))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    function = next((defined[name] for name in called if name in defined), None)
    if function is None:
        raise ValueError("its tests call no function that its reference defines")
    row = {
        "id": f"mbpp-{problem.id}",
        "description": problem.prompt,
        "function_signature": signature(function),
        "baseline_tests": [test.strip() for test in problem.tests],
        "reference_solution": problem.code,
        "difficulty": difficulty(problem.code),
        "tags": ["mbpp"],
    }
    reason = fault(row)
    if reason:
        raise ValueError(reason)
    return row


def signature(function: ast.FunctionDef) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"def {function.name}({ast.unparse(function.args)}){returns}:"


def difficulty(code: str) -> str:
    """A grade by the length of the reference, for sets that have none."""
    count = count_statements(code)
    return "easy" if count <= _EASY else "medium" if count <= _MEDIUM else "hard"

"""Problem files: coding problems with a signature, baseline tests and a reference solution.

A file is {"problems": [{id, description, function_signature, baseline_tests, reference_solution,
difficulty, tags}, …]}. Nothing is played on a problem whose own reference does not pass its tests.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.source import parsed
from sparring.core.types import Task
from sparring.run.lock import writing_file
from sparring.run.rundir import write_whole
from sparring.tasks.code import Problem, problem_of
from sparring.tasks.source import load_tasks, split_of

if TYPE_CHECKING:
    from sparring.judge.python.judge import Judge


DIFFICULTIES = ("easy", "medium", "hard")
_EASY, _MEDIUM = 3, 8  # statements of the reference; MBPP itself grades nothing
TEXTS = ("description", "function_signature", "reference_solution")
FORM = (
    'a problems file is {"problems": [{"id", "description", "function_signature", '
    '"baseline_tests", "reference_solution", "difficulty", "tags"}, …]}'
)


def read_problems(path: Path) -> list[dict[str, Any]]:
    """The rows of a problems file, each of the right form."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as JSON: {error}") from error
    rows = data.get("problems") if isinstance(data, dict) else data
    if not isinstance(rows, list) or not rows:
        raise ConfigError(f"{path} holds no problems; {FORM}")
    seen: set[str] = set()
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or not row.get("id"):
            raise ConfigError(f"problem {number} of {path} has no id; {FORM}")
        reason = fault(row)
        if not reason and str(row["id"]) in seen:
            reason = "its id is taken by another problem"
        if reason:
            raise ConfigError(f"problem {row['id']!r} of {path}: {reason}")
        seen.add(str(row["id"]))
    return rows


def fault(row: dict[str, Any]) -> str:
    """What is wrong with the form of a problem, or nothing."""
    for key in TEXTS:
        if not isinstance(row.get(key), str) or not row[key].strip():
            return f"it has no {key}"
    tests = row.get("baseline_tests")
    if not isinstance(tests, list) or not tests or not all(isinstance(t, str) for t in tests):
        return "its baseline_tests are no list of texts"
    if row.get("difficulty", DIFFICULTIES[0]) not in DIFFICULTIES:
        return f"its difficulty is {row['difficulty']!r}, and should be one of {DIFFICULTIES}"
    tags = row.get("tags", [])
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        return "its tags are no list of texts"
    name = function_name(row["function_signature"])
    if not name:
        return f"its function_signature {row['function_signature']!r} is no `def name(…):`"
    defined = definitions(row["reference_solution"])
    if defined is None:
        return "its reference_solution does not parse"
    if name not in defined:
        return f"its reference_solution defines no {name!r}, which its function_signature names"
    return next((why for test in tests if (why := _test_fault(test))), "")


def _test_fault(test: str) -> str:
    tree = parsed(test)
    if tree is None:
        return f"its baseline test {test!r:.200} does not parse"
    if not any(isinstance(node, ast.Assert) for node in tree.body):
        return f"its baseline test {test!r:.200} asserts nothing"
    return ""


def function_name(signature: str) -> str:
    """The function that a signature such as `def f(x: int) -> int:` declares, or nothing."""
    node = _header(signature)
    return node.name if node else ""


def parameters(signature: str) -> list[str]:
    """The names of its positional parameters, in order."""
    node = _header(signature)
    return [a.arg for a in (*node.args.posonlyargs, *node.args.args)] if node else []


def _header(signature: str) -> ast.FunctionDef | None:
    text = signature.strip()
    tree = parsed((text if text.endswith(":") else f"{text}:") + " ...")
    node = tree.body[0] if tree and len(tree.body) == 1 else None
    return node if isinstance(node, ast.FunctionDef) else None


def definitions(code: str) -> dict[str, ast.FunctionDef] | None:
    """The functions a program defines at its top, or None where it is no Python."""
    tree = parsed(code)
    if tree is None:
        return None
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


@cache
def count_statements(code: str) -> int:
    return sum(isinstance(node, ast.stmt) for node in ast.walk(parsed(code) or ast.Module([], [])))


def full_problem(task: Task) -> Problem:
    """A task as a problem that has all a game of tests needs: signature, tests, reference."""
    problem = problem_of(task)
    name = function_name(problem.signature)
    missing = [
        what
        for what, there in (
            ("function_signature", name),
            ("baseline_tests", problem.tests),
            ("reference_solution", problem.code),
        )
        if not there
    ]
    if missing:
        raise ConfigError(
            f"problem {task.id} has no {' and no '.join(missing)}; {FORM} "
            "(`sparring convert mbpp` makes one of MBPP)"
        )
    return problem


async def failing(problems: Iterable[Problem], judge: Judge) -> list[str]:
    """A sentence for every problem whose reference does not pass its own baseline tests."""

    async def one(problem: Problem) -> str:
        verdict = await judge.tests(problem.code, problem.tests, setup=problem.setup)
        if verdict.passed:
            return ""
        why = f"{verdict.kind} {verdict.detail}".strip()
        return f"the reference of problem {problem.id!r} does not pass its baseline tests: {why}"

    return [failure for failure in await asyncio.gather(*map(one, problems)) if failure]


def need_references(tasks: Sequence[Task], judge: Judge) -> None:
    """Refuse problems whose reference fails, before anything is played on them."""

    async def ruled() -> list[str]:
        async with judge:
            return await failing(map(full_problem, tasks), judge)

    failures = asyncio.run(ruled())
    if failures:
        more = f"; and {len(failures) - 3} more" if len(failures) > 3 else ""
        raise ConfigError("; ".join(failures[:3]) + more)


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

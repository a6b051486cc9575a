"""Files and functions stay small enough to read: 400 lines and 60."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TREES = ("sparring", "benchmarks", "examples", "tests")
FILES = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))
MOST_LINES, MOST_IN_A_FUNCTION = 400, 60
TABLES = {  # attacks and proofs, one entry after the other: a list, not code to follow
    "tests/judge/attacks.py",
    "tests/pipelines/equivalence/liquid_attacks.py",
    "tests/pipelines/equivalence/liquid_honest.py",
}


def too_large(text: str) -> list[str]:
    """What is too long in a file: functions by their names, and `file`."""
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    lengths = [(f.name, (f.end_lineno or f.lineno) - f.lineno + 1) for f in functions]
    large = [f"{name}: {n} lines" for name, n in lengths if n > MOST_IN_A_FUNCTION]
    lines = len(text.splitlines())
    return large + ([f"file: {lines} lines"] if lines > MOST_LINES else [])


def test_files_and_functions_are_small():
    names = {path: str(path.relative_to(ROOT)) for path in FILES}
    large = {
        name: too_large(path.read_text()) for path, name in names.items() if name not in TABLES
    }
    assert {name: sizes for name, sizes in large.items() if sizes} == {}
    assert set(names.values()) >= TABLES and len(FILES) > 300


@pytest.mark.parametrize(("body", "most"), [(59, 0), (60, 1)])
def test_a_line_too_many_is_seen(body: int, most: int):
    text = "def f():\n" + "    x = 1\n" * body
    assert len(too_large(text)) == most
    assert too_large("x = 1\n" * 400) == [] and too_large("x = 1\n" * 401) == ["file: 401 lines"]

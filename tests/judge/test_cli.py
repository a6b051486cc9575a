"""The judge as a command: verdict lines in order, whatever the lines are like."""

from __future__ import annotations

import inspect
import io
import json
from pathlib import Path
from typing import Any

import pytest

from sparring.cli import judge_command
from sparring.cli.judge import judge_python
from sparring.judge.sandbox import probe

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
GOOD = {"id": "g", "code": "def f(n): return n + 1", "tests": ["assert f(1) == 2"]}


def judged(path: Path, lines: list[Any]) -> tuple[int, list[dict[str, Any]]]:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    path.write_text(text)
    out = io.StringIO()
    code = judge_python(path, True, out=out)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


@jail
def test_verdicts_come_in_order_with_all_fields(tmp_path: Path) -> None:
    slow = {
        "id": 1,
        "code": "import time\ntime.sleep(0.4)\ndef f(n): return 2",
        "tests": "assert f(1) == 2",
    }
    wrong = {**GOOD, "id": 2, "tests": ["assert f(1) == 3"]}
    entry = {
        "id": 3,
        "code": "def g(n): return n",
        "tests": "def check(candidate):\n    assert candidate(1) == 1",
        "entry": "g",
        "setup": "import math",
        "timeout_s": 1,
    }
    late = {"id": 4, "code": "while 1: pass", "tests": ["assert f(1) == 2"], "timeout_s": 0.5}
    code, rows = judged(tmp_path / "in.jsonl", [slow, wrong, entry, late, GOOD])
    assert code == 0
    assert [(r["id"], r["verdict"]) for r in rows] == [
        (1, "pass"), (2, "fail"), (3, "pass"), (4, "fail"), ("g", "pass"),
    ]  # fmt: skip
    assert rows[1]["kind"] == "wrong value" and rows[3]["kind"] == "time-out"
    assert all({"id", "verdict", "kind", "detail", "seconds"} <= set(r) for r in rows)


@jail
def test_the_example_file_of_the_docs() -> None:
    out = io.StringIO()
    file = Path(__file__).parents[2] / "docs" / "examples" / "judge.jsonl"
    assert judge_python(file, True, out=out) == 0
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    assert {r["id"]: r["verdict"] for r in rows} == {
        "asserts": "pass", "wrong": "fail", "check": "pass", "two functions": "pass",
        "like a builtin": "pass", "setup": "pass", "endless": "fail",
    }  # fmt: skip
    used = {field for line in file.read_text().splitlines() for field in json.loads(line)}
    page = (file.parents[1] / "judge.md").read_text()
    text = inspect.getdoc(judge_command.judge_python) or ""
    for field in used:
        assert f"| `{field}` |" in page and field in text


@jail
def test_bad_lines_are_named_and_stop_nothing(tmp_path: Path) -> None:
    bad: list[Any] = [
        "{not json\n",
        [1, 2],
        {"id": "no tests", "code": "x = 1"},
        {"id": "no code", "tests": ["assert f() == 1"]},
        {"id": "not text", "code": 5, "tests": ["assert f() == 1"]},
        {"id": "no name", "code": "x = 1", "tests": ["assert f() == 1"], "entry": ["f", 5]},
        {"id": "long", "code": "#" * 10_000_000, "tests": ["assert f() == 1"]},
        {"id": "unparsable", "code": "def f(): return 1", "tests": ["assert f( == 1"]},
        {"id": "time", "code": "def f(): return 1", "tests": ["assert f()"], "timeout_s": "soon"},
        {"id": "tests", "code": "def f(): return 1", "tests": {"a": 1}},
        {"id": "entry", "code": "def f(): return 1", "tests": ["assert f()"], "entry": 5},
        "\n",
        "[" * 100_000 + "\n",
    ]
    code, rows = judged(tmp_path / "in.jsonl", [*bad, GOOD])
    assert code == 1
    assert len(rows) == len(bad)  # the blank line is none, the good one is one more
    numbers = [*range(1, 12), 13]
    for number, row in zip(numbers, rows[:-1], strict=True):
        assert row["verdict"] in ("fail", "void"), row
        assert f"line {number}:" in row["detail"], row
    assert rows[-1]["verdict"] == "pass"


def test_a_missing_file_is_a_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge_python(tmp_path / "none.jsonl", True) == 2
    assert "no such file" in capsys.readouterr().err


def test_no_jail_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(GOOD) + "\n")
    assert judge_python(path, True) == 2
    assert "bubblewrap" in capsys.readouterr().err


@jail
def test_lines_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({**GOOD, "tests": ["assert f(1) == 3"]}) + "\n")
    assert judge_python(path) == 0
    out, err = capsys.readouterr()
    assert out.startswith("g\tfail\t") and "wrong value: f(1) == 3: got 2" in out
    assert "1 judged: 0 pass, 1 fail, 0 void" in err

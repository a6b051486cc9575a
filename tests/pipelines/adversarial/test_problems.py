"""Problem files: what they must hold, that ours do, and MBPP made into one."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Task
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox import probe
from sparring.pipelines.adversarial.problems import (
    convert_mbpp,
    fault,
    full_problem,
    function_name,
    need_references,
    parameters,
)
from sparring.run.config import TasksConfig
from sparring.tasks import load_tasks
from sparring.tasks.source import held_out_tasks, training_tasks

jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
GOOD: dict[str, Any] = {
    "id": "your_problem",
    "description": "Add one.",
    "function_signature": "def your_function(x):",
    "baseline_tests": ["assert your_function(1) == 2"],
    "reference_solution": "def your_function(x):\n    return x + 1",
    "difficulty": "easy",
    "tags": ["math"],
}


def written(folder: Path, *rows: Any) -> str:
    path = folder / "problems.json"
    path.write_text(json.dumps({"problems": rows}))
    return str(path)


@jailed
def test_the_shipped_problems_are_enough_and_all_hold() -> None:
    tasks = load_tasks("shipped:adversarial")
    grades = Counter(task.data["difficulty"] for task in tasks)
    assert len(tasks) >= 60 and set(grades) == {"easy", "medium", "hard"}
    assert min(grades.values()) >= 15
    assert len({task.data["description"] for task in tasks}) == len(tasks)
    for task in tasks:
        assert len(full_problem(task).tests) >= 3 and task.data["tags"]
    need_references(tasks, Judge(timeout_s=3))
    need_references(load_tasks("shipped:digits"), Judge(timeout_s=3))


def test_problems_on_lists_hold_and_no_constant_passes_two_tests() -> None:
    tasks = load_tasks("shipped:lists")
    rows = [task.data for task in tasks]
    for key in ("id", "description", "reference_solution"):
        assert len({row[key] for row in rows}) == len(rows) > 200
    for row in rows:
        assert not fault(row)
        scope: dict[str, Any] = {}
        exec("\n".join([row["reference_solution"], *row["baseline_tests"]]), scope)
        name = function_name(row["function_signature"])
        assert scope[name]([]) in (0, []), "an empty list is a fair test too"
        assert len({test.partition(" == ")[2] for test in row["baseline_tests"]}) == 3


def test_a_file_in_the_sources_form_is_read(tmp_path: Path) -> None:
    [task] = load_tasks(written(tmp_path, GOOD))
    problem = full_problem(task)
    assert (problem.id, problem.prompt, problem.tests) == (
        "your_problem", "Add one.", ("assert your_function(1) == 2",),
    )  # fmt: skip
    assert problem.signature == "def your_function(x):" and parameters(problem.signature) == ["x"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"function_signature": ""}, "has no function_signature"),
        ({"function_signature": "your_function"}, "no `def name"),
        ({"description": 3}, "has no description"),
        ({"reference_solution": "def other(x): return x"}, "defines no 'your_function'"),
        ({"reference_solution": "def your_function(x"}, "does not parse"),
        ({"baseline_tests": []}, "baseline_tests are no list"),
        ({"baseline_tests": ["assert your_function("]}, "does not parse"),
        ({"baseline_tests": ["your_function(1)"]}, "asserts nothing"),
        ({"difficulty": "brutal"}, "'brutal'"),
        ({"tags": "math"}, "tags"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_problem(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        load_tasks(written(tmp_path, {**GOOD, **change}))
    assert "problems.json" in str(error.value) and "your_problem" in str(error.value)


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    for text, message in (("{", "JSON"), ('{"problems": []}', "no problems"), ("[3]", "no id")):
        (tmp_path / "problems.json").write_text(text)
        with pytest.raises(ConfigError, match=message):
            load_tasks(str(tmp_path / "problems.json"))
    with pytest.raises(ConfigError, match="taken by another"):
        load_tasks(written(tmp_path, GOOD, GOOD))
    with pytest.raises(ConfigError, match=r"problem 601 has no function_signature.*convert mbpp"):
        full_problem(Task("601", data={"text": "x", "test_list": ["assert f(1)"], "code": "y"}))


@jailed
def test_a_reference_that_fails_its_own_tests_is_named(tmp_path: Path) -> None:
    bad = {**GOOD, "id": "off", "reference_solution": "def your_function(x):\n    return x"}
    tasks = load_tasks(written(tmp_path, GOOD, bad))
    with pytest.raises(ConfigError, match=r"reference of problem 'off'.*got 1"):
        need_references(tasks, Judge(timeout_s=3))


def test_what_is_held_out_never_trains_and_hangs_on_ids_alone() -> None:
    config = TasksConfig(holdout=0.2)
    train = [t.id for t in training_tasks(config, "adversarial")]
    out = [t.id for t in held_out_tasks(config, "adversarial")]
    assert len(train) + len(out) == len(load_tasks("shipped:adversarial"))
    assert not set(train) & set(out) and len(out) == 13
    assert held_out_tasks(TasksConfig(), "adversarial") == []


def mbpp_row(number: int, **change: Any) -> dict[str, Any]:
    row = {
        "task_id": number,
        "text": "Write a function to add one.",
        "code": "import math\r\ndef add_one(x, by=1):\r\n  return x + by",
        "test_list": ["assert add_one(1) == 2", "assert add_one(2) == 3"],
        "test_setup_code": "",
    }
    return {**row, **change}


def test_mbpp_converts_and_its_test_split_does_not(tmp_path: Path) -> None:
    rows = [mbpp_row(11), mbpp_row(510), mbpp_row(601), mbpp_row(974)]
    rows.append(mbpp_row(700, code="add = lambda x: x"))
    data, out = tmp_path / "mbpp.jsonl", tmp_path / "out.json"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    count, left_out = convert_mbpp(str(tmp_path), out)
    assert count == 2 and list(left_out) == ["700"] and "call no function" in left_out["700"]
    tasks = load_tasks(str(out))
    assert [task.id for task in tasks] == ["mbpp-601", "mbpp-974"]
    assert full_problem(tasks[0]).signature == "def add_one(x, by=1):"
    with pytest.raises(ConfigError, match="not overwritten"):
        convert_mbpp(str(tmp_path), out)
    data.write_text(json.dumps(mbpp_row(11)) + "\n")
    with pytest.raises(ConfigError, match="no task in its split"):
        convert_mbpp(str(data), tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


@pytest.mark.skipif(not os.environ.get("SPARRING_DATA"), reason="SPARRING_DATA names no folder")
def test_the_whole_of_mbpp_converts(tmp_path: Path) -> None:
    count, left_out = convert_mbpp(os.environ["SPARRING_DATA"], tmp_path / "mbpp.json")
    assert count >= 370 and count + len(left_out) == 374

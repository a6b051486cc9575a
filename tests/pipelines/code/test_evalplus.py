"""HumanEval+ and MBPP+: EvalPlus' own solutions pass, what is subtly wrong fails, and problems with
several right answers accept them all."""

import asyncio
import gzip
import json
import os
from pathlib import Path

import pytest

from sparring.core.errors import ConfigError
from sparring.judge.python.judge import Judge
from sparring.pipelines.code.attempts import rule
from sparring.pipelines.code.evalplus import check_text, inputs, load_evalplus, questions
from sparring.tasks.code import Problem

DATA = os.environ.get("SPARRING_DATA", "")
SANDBOX = "unsafe"


def passes(problem: Problem, *codes: str) -> list[bool]:
    async def judged() -> list[bool]:
        async with Judge(1, timeout_s=20, sandbox=SANDBOX) as judge:
            return [(await rule(judge, problem, code)).passed for code in codes]

    return asyncio.run(judged())


def problem(entry: str, code: str, given: list[list], atol: float = 0) -> Problem:
    return Problem("p", "", (check_text(code, entry, given, atol),), code=code, entry=entry)


def test_numbers_are_compared_as_evalplus_does() -> None:
    half = problem("half", "def half(x):\n    return x / 2", [[1.0], [3.0], [0.0]])
    assert passes(
        half,
        "def half(x):\n    return x * 0.5",
        "def half(x):\n    return x / 2 + 5e-7",  # within the 1e-6 that EvalPlus allows floats
        "def half(x):\n    return x / 2 + 1e-5",
        "def half(x):\n    return int(x / 2)",
        "def half(x):\n    return [x / 2]",
        "def half(x):\n    return None",
    ) == [True, True, False, False, False, False]
    count = problem("count", "def count(x):\n    return len(x)", [[[1, 2]], [[]]])
    assert passes(
        count, "def count(x):\n    return sum(1 for _ in x)", "def count(x):\n    return 2"
    ) == [True, False]


def test_inputs_are_not_shared_between_candidate_and_reference() -> None:
    top = problem("top", "def top(x):\n    return sorted(x)[-1]", [[[1, 3, 2]]])
    assert passes(top, "def top(x):\n    x.sort()\n    return x.pop()") == [True]


def test_problems_with_several_right_answers() -> None:
    code = "def find_zero(xs):\n    return -xs[0] / xs[1]"
    zero = problem("find_zero", code, [[[1.0, 2.0]], [[-3.0, 1.0]]], atol=1e-4)
    assert passes(
        zero,
        "def find_zero(xs):\n    return -xs[0] / xs[1] + 1e-6",
        "def find_zero(xs):\n    return 0.0",
        "class Many:\n"
        "    def __init__(self, xs): self.left = [1.0, -xs[0] / xs[1]] + [0.0] * len(xs)\n"
        "    def __float__(self): return self.left.pop(0)\n"
        "def find_zero(xs):\n    return Many(xs)",
    ) == [True, False, False]
    code = "def Diff(a, b):\n    return list(set(a) - set(b)) + list(set(b) - set(a))"
    difference = problem("Diff", code, [[[1, 2, 3], [3, 4]]])
    assert passes(
        difference,
        "def Diff(a, b):\n    return [4, 2, 1]",
        "def Diff(a, b):\n    return [4, 2]",
    ) == [True, False]
    code = "import re\ndef check_str(s):\n    return re.search('^a', s)"
    match = problem("check_str", code, [["ab"], ["ba"]])
    assert passes(
        match,
        "def check_str(s):\n    return s.startswith('a')",
        "def check_str(s):\n    return 'x' if s[0] == 'a' else None",
        "def check_str(s):\n    return True",
    ) == [True, True, False]
    code = "def digit_distance_nums(a, b):\n    return sum(int(d) for d in str(abs(a - b)))"
    digits = problem("digit_distance_nums", code, [[1, 2], [23, 156]])
    padded = (
        "def digit_distance_nums(a, b):\n    a, b = str(a).zfill(3), str(b).zfill(3)\n"
        "    return sum(abs(int(x) - int(y)) for x, y in zip(a, b))"
    )
    assert passes(digits, padded, "def digit_distance_nums(a, b):\n    return 1") == [True, False]


def test_types_that_json_cannot_hold_come_back() -> None:
    row = {"entry_point": "f", "base_input": [[[1, 2], [[3]]]], "plus_input": [[[], [[4], [5]]]]}
    row["assertion"] = "assert f((1, 2), [(3,)]) == 1"
    assert inputs(row) == [[(1, 2), [(3,)]], [(), [(4,), (5,)]]]
    row = {"entry_point": "f", "base_input": [["1j"]], "plus_input": [["2+1j"]], "assertion": ""}
    assert inputs(row) == [[1j], [2 + 1j]]


def test_a_file_that_is_none_of_evalplus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read as EvalPlus' mbpp_plus"):
        load_evalplus("mbpp+", str(tmp_path))
    file = tmp_path / "mbpp_plus.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps({"task_id": "Mbpp/1"}).encode()))
    with pytest.raises(ConfigError, match="canonical_solution"):
        load_evalplus("mbpp+", str(tmp_path))


@pytest.mark.skipif(
    not (Path(DATA) / "mbpp_plus.jsonl.gz").is_file() if DATA else True,
    reason="SPARRING_DATA names no folder with EvalPlus' files",
)
@pytest.mark.parametrize(("name", "count"), [("humaneval+", 164), ("mbpp+", 378)])
def test_the_first_solutions_of_evalplus_pass(name: str, count: int) -> None:
    problems = load_evalplus(name, DATA)
    assert len(problems) == count and len(questions(problems, name, chat=True)) == count
    for each in problems[:5]:
        wrong = f"def {each.entry}(*given):\n    return 'wrong'"
        assert passes(each, each.code, wrong) == [True, False], each.id

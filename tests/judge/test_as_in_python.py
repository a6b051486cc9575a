"""Tests of every style, with programs that a plain Python passes: the judge does too. And programs
that Python would let through, for they answer what they are asked with what they were told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox import probe

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
HERE = Path(__file__).parent
# A process for each, as some replace streams or functions of the library.
PLAIN = """
import json, os, sys
for line in sys.stdin:
    if os.fork() == 0:
        case = json.loads(line)
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        names = {"__name__": "solution"}
        try:
            exec(case["code"], names)
            exec(case["tests"], names)
        except BaseException:
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), file=sys.__stdout__, flush=True)
"""


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


RIGHT, WRONG = cases("as_in_python.jsonl"), cases("forgeries.jsonl")


@pytest.fixture(scope="module")
def verdicts() -> list[Verdict]:
    async def all_of_them() -> list[Verdict]:
        async with Judge(timeout_s=10) as judge:
            return await asyncio.gather(
                *[judge.tests(case["code"], case["tests"]) for case in RIGHT + WRONG]
            )

    return asyncio.run(all_of_them())


def text_of(case: dict[str, Any]) -> str:
    return f"{case['code']}\n\n{case['tests']}"


def test_what_python_passes_the_judge_passes(verdicts: list[Verdict]) -> None:
    for case, verdict in zip(RIGHT, verdicts, strict=False):
        assert verdict.status == "pass", f"{verdict}\n{text_of(case)}"


def test_who_answers_with_what_it_was_told_fails(verdicts: list[Verdict]) -> None:
    for case, verdict in zip(WRONG, verdicts[len(RIGHT) :], strict=True):
        assert verdict.status == "fail", f"{verdict}\n{text_of(case)}"


def test_a_plain_python_passes_the_right_ones() -> None:
    lines = (HERE / "as_in_python.jsonl").read_text()
    done = subprocess.run(
        [sys.executable, "-c", PLAIN], input=lines, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0"] * len(RIGHT)


CASE = "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n        {}\n"
CASE += "unittest.main()"


@pytest.mark.parametrize(
    ("code", "tests", "why"),
    [
        ("class S: pass", "class C(S): pass\nassert C()", "derives from one of the program's"),
        ("class S: x = 1", "match S():\n    case S(x=1): pass", "match pattern must be a type"),
        ("def f(): return 1", "import nowhere_to_be_had\nassert f() == 1", "No module named"),
        ("def f(): return 1", CASE.format("f(); import nowhere_to_be_had"), "No module named"),
        ("class S: pass", CASE.format("S()\n        class C(S): pass"), "derives from one of the"),
        ("def f(): return 1", "x = 1", "call nothing"),
        ("def f(): return 1", "def of_f():\n    assert f() == 2", "call nothing"),
        ("class F: x = 1", "class OfF:\n    def a(self):\n        assert F.x == 2", "call nothing"),
        ("def f(): return 1", "def check(f):\n    for x in []: f(x)", "call nothing"),
    ],
)
def test_tests_that_cannot_be_run_here_are_void(code: str, tests: str, why: str) -> None:
    async def judged() -> Verdict:
        async with Judge() as judge:
            return await judge.tests(code, tests, entry="f" if "check(" in tests else None)

    verdict = asyncio.run(judged())
    assert (verdict.status, verdict.kind) == ("void", "tests") and why in verdict.detail


ARRAY = "['N', 'float64', [1], ['l', 1.0]]"


@pytest.mark.parametrize(
    "answer",
    [
        "return {'value': ARRAY}",
        "e = side.link.ask({'op': 'call', 'on': 0, 'args': ARRAY})['thrown']\n"
        "        return {'error': ['ValueError'], 'thrown': e}",
    ],
)
def test_an_array_for_tests_without_numpy_is_no_void(answer: str) -> None:
    honest = "return {'value': ['h', 0, {'type': 'X', 'builtin': True}]}"
    code = next(c["code"] for c in WRONG if honest in c["code"])
    code = code.replace(f" {honest}", f"\n        {answer}").replace("ARRAY", ARRAY)

    async def judged() -> Verdict:
        async with Judge(packages=()) as judge:
            return await judge.tests(code, "for n in [1]:\n    assert f(n) == 3")

    assert ARRAY in code and asyncio.run(judged()).status == "fail"


@pytest.mark.parametrize(
    ("code", "status"),
    [("def f(x): return x + 1", "pass"), ("def f(x): return x", "fail"), ("", "fail")],
)
def test_functions_and_cases_that_a_runner_would_find_are_run(code: str, status: str) -> None:
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n"

    async def judged(tests: str) -> Verdict:
        async with Judge() as judge:
            return await judge.tests(code, tests)

    for tests in (
        "def test_f():\n    assert f(1) == 2",
        "async def test_f():\n    assert f(1) == 2",
        "class TestF:\n    def test_f(self):\n        assert f(1) == 2",
        "class TestF:\n    def setup_method(self): self.x = 1\n"
        "    def test_f(self): assert f(self.x) == 2",
        "class TestF:\n    def setup_method(self, method): self.x = method.__name__\n"
        "    def test_f(self): assert self.x == 'test_f' and f(1) == 2",
        "from collections import namedtuple\nTestCase = namedtuple('TestCase', 'test_x want')\n"
        "def test_f():\n    for c in [TestCase(1, 2)]:\n        assert f(c.test_x) == c.want",
        case + "        self.assertEqual(f(1), 2)",
        case + "        self.assertEqual(f(1), 2)\nunittest.main()",
        case + "        assert f(1) == 2\nunittest.main(argv=['x'], exit=False)",
        case + "        self.assertEqual(f(1), 2)\n"
        "unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(T))",
    ):
        assert asyncio.run(judged(tests)).status == status

"""What leaves the judge's hands: the calls, never an expectation."""

from __future__ import annotations

from typing import Any

import pytest

from sparring.judge.python.names import global_names
from sparring.judge.python.plan import BadTests, Plan, plan_tests


def plan(*tests: str, setup: str = "", entry: str | None = None, defined: str = "") -> Plan:
    names = tuple(entry.split()) if entry else ()
    return plan_tests(tests, setup, names, frozenset(defined.split()))


@pytest.mark.parametrize(
    ("test", "calls"),
    [
        ("assert f(1, 2) == [3]", [("f(1, 2)", "")]),
        ("assert not f(4)", [("f(4)", "")]),
        ("assert abs(f(1) - 2.0) < 1e-6", [("f(1)", "")]),
        ("assert set(f(5)) == set([1, 2])", [("f(5)", "set")]),
        ("import math\nassert math.isclose(f(2), 1.4)", [("f(2)", "")]),
        ("assert f(g(1)) == g(2)", [("f(g(1))", ""), ("g(2)", "")]),
        ("assert 1 < f(2) < 3", [("f(2)", "")]),
        ("assert f(1).startswith('ab')", [("f(1)", "")]),
        ("assert Solution().f(3) == 4", [("Solution().f(3)", "")]),
        ("assert f(1)[0] == 7, 'no'", [("f(1)", "")]),
        ("import asyncio\nassert asyncio.run(f(1)) == 2", [("f(1)", "asyncio.run")]),
        ("assert LIMIT == 10", [("LIMIT", "")]),
        ("from math import isclose\nassert isclose(f(1), 2)", [("f(1)", "")]),
    ],
)
def test_calls_are_hoisted(test: str, calls: list[tuple[str, str]]) -> None:
    found = plan(test)
    assert found.simple
    assert list(found.calls) == calls


@pytest.mark.parametrize(
    "test",
    [
        "x = f(1)\nassert x == 2",
        "for n in range(3):\n    assert f(n) == n",
        "assert f(0) or f(1)",  # the second call may never be made
        "assert all(f(n) == n for n in range(3))",
        "try:\n    f(1)\nexcept ValueError:\n    pass",
        "assert f(1) == reference(2)\ndef reference(n): return n",
        "assert (y := f(1)) == 2",
        "from numpy import abs\nassert abs(f(1)) == 2",
    ],
)
def test_the_rest_is_left_whole(test: str) -> None:
    found = plan(test)
    assert not found.simple and not found.calls


def test_expectations_are_in_no_call() -> None:
    found = plan(
        "assert f(1) == 'needle'", "assert 'needle' in g(2)", "assert f(3) != {'needle': 1}"
    )
    assert found.simple
    assert "needle" not in repr(found.calls)


def test_check_function_is_inlined_with_its_entry() -> None:
    text = (
        "METADATA = {}\ndef check(candidate):\n    assert candidate(1) == 2, 'm'\n    assert True\n"
    )
    found = plan(text, entry="g")
    assert found.simple and found.calls == (("g(1)", ""),) and len(found.checks) == 2


def test_setup_with_values_stays_with_the_tests() -> None:
    assert not plan("assert f(1) == X", setup="X = 2").simple
    assert plan("assert f(1) == 1", setup="import math").simple


def test_builtin_names_belong_to_the_judge_unless_nothing_else_is_tested() -> None:
    assert plan("assert sum(1, 2) == 3", defined="sum").calls == (("sum(1, 2)", ""),)
    assert plan("assert abs(f(1)) == 3", defined="abs").calls == (("f(1)", ""),)
    assert plan("assert max([1]) == 1", entry="max").calls == (("max([1])", ""),)


@pytest.mark.parametrize(
    ("tests", "defined", "shadow"),
    [
        ("for a, b in zip(X, Y):\n    assert sum(*a) == b", "sum zip", ("sum",)),
        ("def same(a, b): assert type(a) is int\nsame(sum(1, 2), 3)", "sum type", ("sum",)),
        ("assert abs(max(1, 2) - 3) < 1e-6", "abs", ()),  # which one, the tests say
        ("assert abs(max(1, 2) - 3) < 1e-6", "abs max", ("max",)),
        ("assert set(sum(1, 2)) == set([3])", "sum set", ()),  # they do not
        ("assert sum(1, 2) == f(3)", "sum", ()),
    ],
)
def test_one_builtin_at_most_is_the_programs(tests: str, defined: str, shadow: Any) -> None:
    assert plan(tests, defined=defined).shadow == shadow


@pytest.mark.parametrize(
    ("tests", "called"),
    [
        ("def check(f):\n    for n in [1]:\n        assert f(n) == n", True),
        ("def check(f):\n    for n in [1]:\n        assert f(n) == n\ncheck(g)", False),
        # As of a program that is itself called check: MBPP 56 beside a reference of its own.
        (
            "def check(n): return n\nreference = check\n"
            "def check(f):\n    for n in [1]:\n        assert f(n) == reference(n)",
            True,
        ),
    ],
)
def test_a_check_that_nobody_calls_is_called(tests: str, called: bool) -> None:
    whole = plan(tests, entry="g")
    assert not whole.simple and whole.call_check is called


@pytest.mark.parametrize(
    ("tests", "reads", "binds"),
    [
        ("for i in range(3):\n    assert f(i) == i", ("f", "i"), ("i",)),
        ("def g(x):\n    return h(x)\nassert g(f(1))", ("f", "g", "h"), ("g",)),
        ("import math\nassert math.isclose(f(1), 2)", ("f", "math"), ("math",)),
        ("def g():\n    global x\n    x = [y for y in f()]\ng()", ("f", "g"), ("g", "x")),
        ("assert eval('f(1)')", None, ()),
    ],
)
def test_names_of_whole_tests(tests: str, reads: Any, binds: Any) -> None:
    assert global_names([compile(tests, "<test 1>", "exec")], ()) == (reads, binds)


def test_check_takes_as_many_functions_as_are_named() -> None:
    two = "def check(a, b):\n    assert a(1) == b(2)"
    assert plan(two, entry="f g").calls == (("f(1)", ""), ("g(2)", ""))
    for entry in ("f", "f g h"):
        with pytest.raises(BadTests, match="takes 2 functions, and entry names"):
            plan(two, entry=entry)


@pytest.mark.parametrize(
    ("tests", "entry", "says"),
    [
        ((), None, "no tests"),
        (("  ",), None, "no tests"),
        (("assert f(1) ==",), None, "test 1 line 1 does not parse"),
        (("assert f(1) == 1", "assert (\n\n"), None, "test 2 line 1 does not parse"),
        (("def check(candidate):\n    assert candidate(1)",), None, "check()"),
        (("x" * (2 << 20),), None, "characters"),
        (("assert f(\0)",), None, "test 1"),
        (("assert " + "(" * 5000,), None, "test 1"),
    ],
)
def test_bad_tests_are_named(tests: tuple[str, ...], entry: str | None, says: str) -> None:
    with pytest.raises(BadTests) as error:
        plan(*tests, entry=entry)
    assert says in str(error.value)

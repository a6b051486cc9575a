"""The small interpreter gives Python's answers, and none that would take long."""

from __future__ import annotations

import ast
import time
from collections import deque
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.judge.python.expressions import Hostile, TooMuch, evaluate
from sparring.judge.python.plan import plan_tests


def answer(test: str, *values: Any) -> Any:
    found = plan_tests((f"assert {test}",), "", None, frozenset())
    assert found.simple, test
    return evaluate(found.checks[0].test, list(values))


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(max_examples=50, deadline=None)
@given(plain, plain)
def test_equality_is_pythons(left: Any, right: Any) -> None:
    assert answer("f() == g()", left, right) == (left == right)
    assert answer("f() != g()", left, right) == (left != right)
    assert answer("f() in [g(), 1]", left, right) == (left in [right, 1])


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3 - 4 / 2 == 5", "7 // 2 == 3 and 7 % 2 == 1", "2 ** 10 == 1024", "not []",
        "sorted([3, 1]) == [1, 3]", "[1, 2, 3][1:] == [2, 3]", "{'a': 1}['a'] == 1",
        "max(1, 2) == 2", "round(2.675, 2) == 2.67", "len('abc') == 3", "-5 < 0 <= 0 < 1",
        "isinstance(1, int)", "(1 if [] else 2) == 2", "{1, 2} == {2, 1}", "sum([1, 2], 3) == 6",
        "'a-b'.split('-') == ['a', 'b']", "math.isclose(0.1 + 0.2, 0.3)", "type(1) is int",
        "list(zip([1], [2])) == [(1, 2)]", "1 == 1.0 == True", "[1] * 3 == [1, 1, 1]",
    ],
)  # fmt: skip
def test_expressions_agree_with_python(text: str) -> None:
    import math

    assert answer(f"(f(), {text})", 0)[1] == eval(text, {"math": math})


COLLIDING = [n * (2**61 - 1) for n in range(50_000)]


@pytest.mark.parametrize(
    ("test", "value"),
    [
        ("set(f()[0:])", COLLIDING), ("dict(zip(f(), f()))", COLLIDING),
        ("{1}.union(f())", COLLIDING),
        ("f() ** 10 ** 9", 9), ("9 ** f()", 10**9), ("f() * 10 ** 9", "abc"),
        ("f() * f()", 1 << 10**6),
        ("sum(f())", range(10**15)), ("len(list(f()))", range(10**30)), ("range(f())[5]", 10**12),
        ("bytes(f())", 10**12), ("f() % 5", "%1000000000d"), ("f() % 5", bytearray(b"%99999999d")),
        ("f() * 10 ** 9", deque([1])), ("f() * 10 ** 9", bytearray(b"a")),
        ("sum(f(), [])", [[1]] * 50_000), ("sum(f(), start=[])", [[1]] * 50_000),
        ("sorted(f(), key=sum)", [[Fraction(1, n) for n in range(1, 5000)]]),
        ("2 ** f()", Fraction(10**9)), ("f() ** 10 ** 9", Fraction(3)),
        ("round(5, f())", -(10**9)), ("math.gcd(f(), f())", 3**200_000),
        ("divmod(f(), f())", 3**200_000),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)  # fmt: skip
def test_nothing_takes_long(test: str, value: Any) -> None:
    values = [value] * test.count("f()")
    start = time.process_time()
    with pytest.raises((TooMuch, Hostile, OverflowError, MemoryError)):
        answer(test, *values)
    assert time.process_time() - start < 0.5


def test_equal_keys_are_no_attack() -> None:
    assert answer("set(f()[0:]) == {1, 2}", [1, 2] * 5000)
    assert answer("len(set(f()[0:])) == 9000", list(range(9000)))
    points = [(x, y) for x in range(-50, 50) for y in range(-50, 50)]  # hash(-1) is hash(-2)
    assert answer("len(set(f()[0:])) == 10000", points)


def test_long_ranges_of_the_tests_own() -> None:
    assert answer("f() in range(10 ** 6)", 3)
    with pytest.raises(TooMuch):
        answer("f() in range(10 ** 30)", 3)


def test_only_known_names_are_reached() -> None:
    node = ast.parse("open('x')", mode="eval").body
    with pytest.raises(KeyError):
        evaluate(node, [])
    with pytest.raises(AttributeError):
        answer("f().upper()", 5)


def test_literals_are_made_once_and_never_changed() -> None:
    found = plan_tests(
        ("assert sorted(f()) == [-1, (2, {3: [4.5]}), {'a'}]",), "", None, frozenset()
    )
    test = found.checks[0].test
    assert isinstance(test, ast.Compare) and isinstance(test.comparators[0], ast.Constant)
    assert test.comparators[0].value == [-1, (2, {3: [4.5]}), {"a"}]
    assert answer("f() == {(1, -2): [3]}", {(1, -2): [3]}) is True
    with pytest.raises(TypeError):
        answer("f() == {[1]: 2}", {})

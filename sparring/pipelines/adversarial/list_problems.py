"""Short problems on lists of numbers, made by rule: which numbers, what is taken of each, and what
becomes of them. A small model can learn the parts and be held to combinations it has not met."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from random import Random
from typing import Any, NamedTuple

from sparring.core.types import derive

Numbers = list[int]
_TESTS = 3  # of a problem
_TRIES = 200  # lists that are drawn for these


class Choice(NamedTuple):
    """Which numbers of a list count. `K` in words and code is a number of the problem's own."""

    name: str
    words: str
    condition: str
    holds: Callable[[int, int], bool]


class Change(NamedTuple):
    """What is taken of each."""

    name: str
    words: str
    code: str
    of: Callable[[int, int], int]


class Result(NamedTuple):
    """What becomes of them; `code` has `{}` for the numbers, one after another."""

    name: str
    words: str
    code: str
    kind: str
    of: Callable[[Numbers], Any]


CHOICES = (
    Choice("", "the numbers in a list", "", lambda n, k: True),
    Choice("even", "the even numbers in a list", "n % 2 == 0", lambda n, k: n % 2 == 0),
    Choice("odd", "the odd numbers in a list", "n % 2 == 1", lambda n, k: n % 2 == 1),
    Choice("positive", "the numbers above zero in a list", "n > 0", lambda n, k: n > 0),
    Choice("negative", "the numbers below zero in a list", "n < 0", lambda n, k: n < 0),
    Choice("above_K", "the numbers in a list that are greater than K", "n > K", lambda n, k: n > k),
    Choice("to_K", "the numbers in a list that are K or less", "n <= K", lambda n, k: n <= k),
    Choice("by_K", "the multiples of K in a list", "n % K == 0", lambda n, k: n % k == 0),
)
CHANGES = (
    Change("", "", "n", lambda n, k: n),
    Change("squares", "the squares of ", "n * n", lambda n, k: n * n),
    Change("doubles", "twice each of ", "2 * n", lambda n, k: 2 * n),
    Change("sizes", "the absolute values of ", "abs(n)", lambda n, k: abs(n)),
    Change("opposites", "the opposites of ", "-n", lambda n, k: -n),
    Change("plus_K", "K more than each of ", "n + K", lambda n, k: n + k),
)
RESULTS = (
    Result("sum", "the sum of ", "sum({})", "int", sum),
    Result("count", "how many there are of ", "len([{}])", "int", len),
    Result("most", "the largest of ", "max(({}), default=0)", "int", lambda ns: max(ns, default=0)),
    Result(
        "least", "the smallest of ", "min(({}), default=0)", "int", lambda ns: min(ns, default=0)
    ),
    Result("list", "a list of ", "[{}]", "list[int]", list),
    Result("sorted", "a sorted list of ", "sorted({})", "list[int]", sorted),
)


@cache
def problems() -> tuple[dict[str, Any], ...]:
    """Each combination once, with a number of its own where it has any."""
    rows = (_row(*parts) for parts in product(CHOICES, CHANGES, RESULTS))
    return tuple(row for row in rows if row)


def _row(choice: Choice, change: Change, result: Result) -> dict[str, Any] | None:
    named = [part.name for part in (result, change, choice) if part.name]
    if len(named) == 1 or (result.name == "count" and change.name):
        return None  # nothing to do, or a change that nobody would see
    k = Random(derive("list problem", *named)).randint(2, 9)
    name = "_".join(named).replace("K", str(k))
    header = f"def {name}(numbers: list[int]) -> {result.kind}:"
    each = f"{change.code} for n in numbers" + (f" if {choice.condition}" if choice.name else "")
    code = result.code.format(each).replace("K", str(k))
    default = ", or 0 if there are none" if "default" in code else ""
    tests = _tests(name, lambda ns: result.of([change.of(n, k) for n in ns if choice.holds(n, k)]))
    words = f"{result.words}{change.words}{choice.words}".replace("K", str(k))
    return {
        "id": name.replace("_", "-"),
        "description": f"Return {words}{default}.",
        "function_signature": header,
        "baseline_tests": tests,
        "reference_solution": f"{header}\n    return {code}\n",
        "difficulty": "easy",
        "tags": ["lists"],
    }


def _tests(name: str, answer: Callable[[Numbers], Any]) -> list[str]:
    """Asserts whose answers differ, so that no constant passes two of them."""
    rng, tests = Random(derive("tests of a list problem", name)), dict[str, str]()
    for _ in range(_TRIES):
        numbers = [rng.randint(-9, 20) for _ in range(rng.randint(3, 6))]
        value = repr(answer(numbers))
        tests.setdefault(value, f"assert {name}({numbers}) == {value}")
        if len(tests) == _TESTS:
            break
    return list(tests.values())

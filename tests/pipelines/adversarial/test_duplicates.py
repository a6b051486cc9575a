"""Which tests of a discriminator's ask what was asked before, or what no program owes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparring.core.types import Verdict
from sparring.judge.python.programs import make_judge
from sparring.judge.sandbox import probe
from sparring.pipelines.adversarial.written_tests import Examiner, refusal
from sparring.tasks.code import Problem

POWER = Problem(
    id="power",
    prompt="Raise a number.",
    tests=("assert power(3) == 9",),
    code="def power(n, by=2, *, plus=0):\n    return n ** by + plus\n",
    signature="def power(n: int, by: int = 2, *, plus: int = 0) -> int:",
)


LETTERS = Problem(
    id="letters",
    prompt="The distinct letters of a text, in any order.",
    tests=("assert sorted(letters('aab')) == ['a', 'b']",),
    code="def letters(text):\n    return list(set(text))\n",
    signature="def letters(text: str) -> list:",
)
jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")


def kinds(*tests: str, problem: Problem = POWER) -> list[str]:
    async def ruled() -> list[str]:
        async with Examiner(make_judge("bubblewrap", 3.0)) as examiner:
            return [ruling.kind for ruling in await examiner.examine(problem, tests)]

    return asyncio.run(ruled())


@jailed
def test_an_order_that_three_hash_seeds_agree_on_is_still_luck() -> None:
    orders = ("fa", "lb", "jc", "ge", "je", "fi", "fk", "gi", "jh", "jk")
    tests = [f"assert letters('{''.join(sorted(order))}') == {list(order)}" for order in orders]
    assert set(kinds(*tests, problem=LETTERS)) <= {"wrong", "not deterministic"}


@jailed
def test_a_default_that_is_written_out_makes_no_new_call() -> None:
    known = ("power(3, 2)", "power(3, by=1 + 1)", "power(n=3, plus=0)", "power(*[3, 2], plus=0)")
    assert kinds(*(f"assert {call} == 9" for call in known)) == ["duplicate"] * 4
    new = ("power(2) == 4", "power(2, 3) == 8", "power(2, plus=1) == 5", "power(*[2], by=2) == 4")
    assert kinds(*(f"assert {call}" for call in new)) == ["valid"] * 3 + ["duplicate"]


def test_which_equal_values_are_one_object_is_not_asked() -> None:
    """A right program may return its argument, or the same list twice."""
    for test in ("[f(x) is x for x in [[1]]] == [False]", "f(999) is not f(999)", "1 < f(2) is 2"):
        assert refusal(f"assert {test}", "f") == "not allowed"
    for test in (
        *("f(1) is None", "f(1) is True is not None", "f(1) in [1] and f(2) != f(3)"),
        *("type(f(1)) is int", "type(f(1)) is not type(f('a'))"),
    ):
        assert refusal(f"assert {test}", "f") == ""


@jailed
def test_one_program_that_knows_nothing_and_fails_is_enough() -> None:
    """A test that does not end on such programs held the judge for its limit on each of them."""
    tried: list[str] = []

    async def examined() -> str:
        async with Examiner(make_judge("bubblewrap", 3.0)) as examiner:
            honest = examiner.judge.tests

            async def tests(code: str, *args: Any, **options: Any) -> Verdict:
                tried.append(code)
                return await honest(code, *args, **options)

            examiner.judge.tests = tests  # type: ignore[method-assign]
            return (await examiner.examine(POWER, ["assert power(4) == 16"]))[0].kind

    assert asyncio.run(examined()) == "valid"
    assert len(tried) == 2 and "return None" in tried[1]

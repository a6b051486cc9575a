"""Adversarial tests: what both seats earn, and every way of earning that is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sparring.core.collect import Job, collect
from sparring.core.game import opened
from sparring.core.scripted import ScriptedEngine, programs
from sparring.core.types import Episode, Request, Task
from sparring.judge.sandbox import probe
from sparring.pipelines.adversarial.game import AdversarialTests, score, summarize
from sparring.pipelines.adversarial.mutants import mutants
from sparring.pipelines.adversarial.problems import full_problem
from sparring.pipelines.adversarial.stages import STAGES, Stage, make_stages
from sparring.pipelines.adversarial.written_tests import (
    Ruled,
    calls,
    read_inputs,
    read_tests,
    refusal,
)
from sparring.run.games import load_game

jailed = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")

DOUBLE = Task(
    "double",
    data={
        "id": "double",
        "description": "Double a number.",
        "function_signature": "def double(n: int) -> int:",
        "baseline_tests": ["assert double(2) == 4", "assert double(n=5) == 10"],
        "reference_solution": "def double(n):\n    return 2 * n\n",
    },
)
LETTERS = Task(
    "letters",
    data={
        "id": "letters",
        "description": "The distinct letters of a text, in any order.",
        "function_signature": "def letters(text: str) -> list:",
        "baseline_tests": ["assert sorted(letters('aab')) == ['a', 'b']"],
        "reference_solution": "def letters(text):\n    return list(set(text))\n",
    },
)
RIGHT = "def double(n):\n    return n + n\n"
SQUARE = "def double(n):\n    return n * n\n"  # passes double(2) only
ABSOLUTE = "def double(n):\n    return abs(2 * n)\n"  # passes the baseline tests


def play(
    replies: list[tuple[str, str]], task: Task = DOUBLE, **options: Any
) -> tuple[list[Episode], AdversarialTests]:
    """One game per (program, tests)."""
    game: Any = load_game("adversarial_tests", **options)

    async def go() -> list[Episode]:
        async with opened([game]):
            jobs, scripts = [], {}
            for i, (program, tests) in enumerate(replies):
                scripts[f"generator{i}"] = lambda request, text=program: text
                scripts[f"discriminator{i}"] = lambda request, text=tests: text
                seating = {seat: f"{seat}{i}" for seat in game.seats}
                jobs.append(Job(str(i), "adversarial_tests", game, task, i, seating))
            return await collect(jobs, ScriptedEngine(scripts).act)

    return asyncio.run(go()), game


def kinds(episode: Episode) -> list[str]:
    return [test["kind"] for test in episode.facts["tests"]]


def test_the_rewards_by_numbers() -> None:
    valid, wrong = Ruled("", "valid"), Ruled("", "wrong")
    # Two of three baseline tests and one of two valid tests; two of four written are valid.
    found = score([True, True, False], [valid, wrong, valid, wrong], [True, False])
    assert (found.generator, found.validity) == (3 / 5, 0.5)
    assert found.discriminator == pytest.approx((1 - 3 / 5) * 0.5)
    assert score([False], [], []).discriminator == 0
    assert score([False], [wrong], []).discriminator == 0
    assert score([True], [valid], [True]).discriminator == 0


@jailed
def test_what_both_seats_earn() -> None:
    found, _ = play(
        [
            (RIGHT, "assert double(0) == 0\nassert double(-3) == -6"),
            (ABSOLUTE, "assert double(-3) == -6\nassert double(7) == 14"),
            (ABSOLUTE, "assert double(-3) == -6\nassert double(3) == 7"),
            (SQUARE, "```python\nassert double(3) == 6\n```"),
            ("no program", "assert double(0) == 0"),
        ]
    )
    rewards = [(e.rewards["generator"], e.rewards["discriminator"]) for e in found]
    assert rewards[0] == (1, 0)
    assert rewards[1] == pytest.approx((3 / 4, 1 / 4))  # caught by one of two new tests
    assert rewards[2] == pytest.approx((2 / 3, 1 / 3 * 1 / 2))  # half of its tests are wrong
    assert rewards[3] == pytest.approx((1 / 3, 2 / 3))
    assert rewards[4] == (0, 1)
    assert found[1].facts["tests"][0] == {
        "test": "assert double(-3) == -6", "kind": "valid", "passed": False,
    }  # fmt: skip
    counted = summarize(found)
    assert counted["tests/bugs"] == 4 and counted["tests/hidden_bugs"] == 2
    assert counted["tests/validity"] == pytest.approx(4.5 / 5)
    assert counted["tests/programs_right"] == 3 / 5


NOT_PAID = {
    "": [],
    "I would try negative numbers.": [],
    "assert double(": ["unreadable"],
    "assert True": ["no call"],
    "assert 1 + 1 == 2": ["no call"],
    "assert double": ["not allowed"],
    "assert callable(double)": ["not allowed"],
    "assert double(3) or True": ["checks nothing"],
    "assert double(3) == double(3)": ["checks nothing"],
    "assert double(3) != 'x'": ["checks nothing"],
    "assert isinstance([double(3)], list)": ["checks nothing"],
    "assert double(2) == 4": ["duplicate"],
    "assert 4 == double(n=1 + 1)": ["duplicate"],
    "assert double(2) != 5 and double(5) == 10": ["duplicate"],
    "assert double(3) == 7": ["wrong"],
    "assert double() == 0": ["wrong"],
    "assert double('ab', 3)": ["wrong"],
    "import random\nassert double(random.random()) >= 0": ["not allowed"],
    "assert double(id(1)) > 0": ["not allowed"],
    "assert double(3) == 6 and hash('a') % 2": ["not allowed"],
    "assert double.__code__.co_consts == (None, 2)": ["not allowed"],
    "assert double(3).__class__.__name__ == 'int'": ["not allowed"],
    "assert (lambda: double(3) == 6)()": ["not allowed"],
    "x = 3\nassert double(x) == 6": ["not allowed"],
    # A known call in other words, and a new one whose result decides nothing.
    "assert double(2) == 4 or double(77) == 0": ["duplicate"],
    "assert double(77) == 0 or double(2) == 4": ["duplicate"],
    "assert max(double(2) == 4, double(77) == 0)": ["duplicate"],
    "assert all(double(i) == 4 for i in [2])": ["duplicate"],
    "assert double(*[2]) == 4": ["duplicate"],
    "assert double(**{'n': 5}) == 10": ["duplicate"],
    # A comprehension's own name is its own only there: the reference may import what a right
    # program does not.
    "assert double(3) == 6 and [math for math in [1]] and math.pi > 3": ["not allowed"],
    "assert double(3) == 6 and [open for open in open('/etc/hosts')]": ["not allowed"],
    "assert double(3) == 6 and [1 for globals()['double'] in [1]]": ["not allowed"],
    "assert [double(3) for double in [str]] == ['3']": ["no call"],
}


@jailed
def test_what_is_not_a_test_earns_nothing_even_against_a_broken_program() -> None:
    found, _ = play([("def double(n): return 0", reply) for reply in NOT_PAID])
    for (reply, expected), episode in zip(NOT_PAID.items(), found, strict=True):
        assert kinds(episode) == expected, reply
        assert episode.rewards["discriminator"] == 0, reply
        assert episode.facts["validity"] == 0
        assert episode.rewards["generator"] == 0  # the baseline alone is left


@jailed
def test_a_test_that_hangs_on_luck_earns_nothing() -> None:
    """The order of a set of texts changes with the hash seed: one of these holds, for now."""
    first = [f"assert letters('abcdefgh')[0] == {letter!r}" for letter in "abcdefgh"]
    found, _ = play([("def letters(text): return []", test) for test in first], LETTERS)
    assert sorted(kind for e in found for kind in kinds(e)) == ["not deterministic"] + ["wrong"] * 7
    assert all(e.rewards["discriminator"] == 0 for e in found)


@jailed
def test_repeating_oneself_is_counted_once_and_only_the_first_tests_count() -> None:
    same = "assert double(-3) == -6"
    [twice, many], _ = play(
        [
            (ABSOLUTE, f"{same}\nassert double(n=-3) + 0 == -6"),
            (ABSOLUTE, "\n".join(f"assert double(-{i}) == -{2 * i}" for i in range(1, 9))),
        ],
        most_tests=3,
    )
    assert kinds(twice) == ["valid", "duplicate"]
    assert twice.rewards["discriminator"] == pytest.approx(1 / 3 * 1 / 2)
    assert len(many.facts["tests"]) == 3


@jailed
def test_a_call_is_the_same_one_however_it_is_written_and_new_ones_may_stand_together() -> None:
    loop = "assert all(double({0}) == -6 for {0} in [-3])"
    [again, plain, several], _ = play(
        [
            (ABSOLUTE, "\n".join(loop.format(name) for name in "abc")),
            (ABSOLUTE, f"{loop.format('i')}\nassert double(-3) == -6\nassert double(-4) == -8"),
            (
                ABSOLUTE,
                "assert [double(i) for i in range(-3, 3)] == [-6, -4, -2, 0, 2, 4]\n"
                "assert double(2) == 4 and double(-7) == -14\nassert double(8) == double(-8) + 32",
            ),
        ]
    )
    assert kinds(again) == ["valid", "duplicate", "duplicate"]
    assert kinds(plain) == ["valid", "duplicate", "valid"]
    assert kinds(several) == ["valid"] * 3


@jailed
def test_a_judge_that_breaks_voids_the_game() -> None:
    from sparring.core.types import Verdict

    game: Any = load_game("adversarial_tests")

    async def broken(*args: Any, **named: Any) -> Verdict:
        return Verdict("void", "jail", "gone")

    async def go() -> list[Episode]:
        async with opened([game]):
            game.judge.judge.tests = broken
            engine = ScriptedEngine({"p": lambda request: "assert double(3) == 6"})
            seating = {seat: "p" for seat in game.seats}
            return await collect([Job("0", "g", game, DOUBLE, 0, seating)], engine.act)

    [episode] = asyncio.run(go())
    assert episode.void is not None and "gone" in episode.void


def test_tests_are_read_out_of_whatever_stands_around_them() -> None:
    prose = "Sure:\n1. assert f(1) == 2\n- `assert f(2)==3`\nassert f(\nthat is all"
    assert read_tests(prose, 9) == ["assert f(1) == 2", "assert f(2) == 3", "assert f("]
    block = "```python\ndef test_it():\n    assert f(1) == 2\nassert f(\n  2) == 3\n```"
    assert read_tests(block, 9) == ["assert f(1) == 2", "assert f(2) == 3"]
    assert read_tests(block, 1) == ["assert f(1) == 2"]
    assert refusal("assert all(f(x) == 2 * x for x in range(3))", "f") == ""
    assert refusal("assert f(1) == 2\nassert f(2) == 3", "f") == "unreadable"
    assert refusal(f"assert f({'1' * 600}) == 2", "f") == "unreadable"
    assert calls("assert f(2, b=[1]) == 1", "f", ["a", "b"]) == calls(
        "assert 1 == f(1 + 1, [1])", "f", ["a", "b"]
    )


def test_stages_see_what_they_are_said_to_see() -> None:
    game: Any = load_game("adversarial_tests")
    asked: list[Request] = []

    def speak(request: Request) -> str:
        asked.append(request)
        return f"words {len(asked)}"

    async def go() -> Any:
        from sparring.core.table import Table

        engine = ScriptedEngine({"p": speak})
        table = Table(game.seats, {s: "p" for s in game.seats}, engine.act)
        from sparring.pipelines.adversarial.problems import full_problem

        said = await game.reason(table["generator"], full_problem(DOUBLE))
        return said, table.turns

    said, turns = asyncio.run(go())
    assert list(said) == ["informal", "structured", "pseudocode", "constraints", "code"]
    assert [turn.stage for turn in turns] == list(said)
    shown = [request.messages[-1]["content"] for request in asked]
    assert "words" not in shown[0]
    assert "words 1" in shown[1] and "words 2" not in shown[1]
    assert "words 1" not in shown[3] and "words 2" in shown[3] and "words 3" in shown[3]
    assert all(f"words {i}" in shown[4] for i in (1, 2, 3, 4))
    assert all("Double a number." in text and "def double(n: int)" in text for text in shown)


def test_only_turns_of_the_stages_in_training_train() -> None:
    from sparring.core.table import Table
    from sparring.core.types import Turn

    async def speak(request: Request) -> Turn:
        return Turn(request.seat, request.policy, "", "x", token_ids=[1], logprobs=[0.0])

    async def go(stages: frozenset[str] | None) -> list[bool]:
        table = Table(
            ("a",), {"a": "main"}, speak, trainable=lambda seat, policy: True, stages=stages
        )
        for stage in ("first", "second", ""):
            await table["a"].act("?", stage=stage)
        return [turn.trainable for turn in table.turns]

    assert asyncio.run(go(frozenset({"second"}))) == [False, True, True]
    assert asyncio.run(go(None)) == [True, True, True]


def test_a_sixth_stage_is_one_entry() -> None:
    entry = {"name": "review", "instruction": "Find a mistake.", "sees": ["pseudocode"]}
    names = [stage.name for stage in STAGES]
    stages = make_stages([*names[:4], entry, names[4]])
    assert len(stages) == 6 and stages[4] == Stage("review", "Find a mistake.", ("pseudocode",))
    game: Any = load_game("adversarial_tests", stages=[*names[:4], entry, names[4]])
    assert [stage.name for stage in game.stages][4] == "review"
    for wrong, message in (
        (["codes"], r"no stage 'codes'.*'code'"),
        ([entry], "sees 'pseudocode'"),
        (["code", "code"], "two stages 'code'"),
        ([], "at least one stage"),
        ([{"name": "x"}], "a stage is a name or"),
        ([{"name": "x", "instruction": "y", "see": []}], "no 'see'"),
    ):
        with pytest.raises(ValueError, match=message):
            make_stages(wrong)


@jailed
def test_terse_players_name_an_input_and_a_value() -> None:
    [episode], _ = play([("0", "7\n0\n(\n\n2")], style="terse")
    assert [t["test"] for t in episode.facts["tests"]][:2] == [
        "assert double(7) == 14",
        "assert double(0) == 0",
    ]
    assert kinds(episode) == ["valid", "valid", "unreadable", "wrong", "duplicate"]
    assert episode.facts["code"] == "def double(n: int) -> int:\n    return 0\n"
    assert episode.rewards["generator"] == pytest.approx(1 / 4)
    assert episode.rewards["discriminator"] == pytest.approx(3 / 4 * 2 / 5)


def test_mutants_have_one_thing_wrong() -> None:
    found = mutants("def f(n):\n    return max(3, n) if n > 1 else 0\n")
    assert "def f(n):\n    return min(3, n) if n > 1 else 0\n" in found
    assert "def f(n):\n    return max(3, n) if n >= 1 else 0\n" in found
    assert len(set(found)) == len(found) <= 12
    assert mutants("def f(n):\n    return n\n") == ()


def test_inputs_are_read_from_calls_whatever_they_expect() -> None:
    reply = "Try:\n```python\ndouble(3)\nassert double(n=4) == 9\nprint(1)\ndouble(\n```"
    assert read_inputs(reply, "double", 9) == ["3", "n=4", "double("]
    assert read_inputs(reply, "double", 1) == ["3"]


@jailed
def test_with_inputs_only_the_reference_says_what_to_expect() -> None:
    reply = "double(3)\nassert double(-4) == 99\ndouble(open('x'))\ndouble(2)"
    (square, right), game = play([(SQUARE, reply), (RIGHT, reply)], inputs_only=True)
    kinds = [test["kind"] for test in square.facts["tests"]]
    assert kinds == ["valid", "valid", "not allowed", "duplicate"]
    assert [t["test"] for t in square.facts["tests"]][:2] == [
        "assert double(3) == 6",
        "assert double(-4) == -8",
    ]
    assert square.facts["pass_rate"] == 1 / 4 and right.facts["pass_rate"] == 1
    assert "`double(...)`" in game.test_prompt(full_problem(DOUBLE))
    assert "assert double(...)" in AdversarialTests().test_prompt(full_problem(DOUBLE))


@jailed
def test_perfect_players_show_every_stage_and_calls_that_are_new() -> None:
    game: Any = load_game("adversarial_tests", inputs_only=True)

    async def go() -> list[Episode]:
        async with opened([game]):
            seating = {"generator": "perfect", "discriminator": "perfect"}
            jobs = [Job(t.id, "g", game, t, 0, seating) for t in (DOUBLE, LETTERS)]
            return await collect(jobs, programs(game).act)

    double, letters = asyncio.run(go())
    *stages, code, tests = [turn.text for turn in double.turns]
    assert stages[0] == "Double a number." and all(stages)
    assert stages[2] == "function double(n)\n    result 2 * n"
    assert code == "```python\ndef double(n):\n    return 2 * n\n```"
    assert tests.splitlines()[1:3] == ["double(3)", "double(1)"]
    assert double.facts["validity"] == 1 and double.rewards["generator"] == 1
    assert letters.turns[-1].text == "```python\nletters('ab')\n```"


def test_longer_problems_are_left_out() -> None:
    short, longer = AdversarialTests(statements=1), AdversarialTests(statements=2)
    assert "more than 1 statements" in short.unusable(DOUBLE) and not longer.unusable(DOUBLE)
    assert not AdversarialTests().unusable(DOUBLE)
    long = Task(
        "long",
        data={**DOUBLE.data, "reference_solution": "def double(n):\n    m = n\n    return m + n"},
    )
    assert longer.suited([DOUBLE, long], 0) == [DOUBLE]


@jailed
def test_a_scripted_generator_is_right_half_of_the_time() -> None:
    game: Any = load_game("adversarial_tests")

    async def go() -> list[Episode]:
        async with opened([game]):
            engine = ScriptedEngine({"d": lambda request: "assert double(0) == 0"})
            seating = {"generator": "scripted", "discriminator": "d"}
            jobs = [Job(str(i), "g", game, DOUBLE, i, seating) for i in range(24)]
            return await collect(jobs, engine.act)

    codes = [e.facts["code"].strip() for e in asyncio.run(go())]
    assert 6 <= codes.count("def double(n):\n    return 2 * n") <= 18
    assert len(set(codes)) >= 3

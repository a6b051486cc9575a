"""Claims about two Python functions: what differs is found, what is the same is let through, and
what hangs on anything but its arguments is neither."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from importlib import util
from typing import Any

import pytest

from sparring.core.types import Verdict
from sparring.judge.sandbox import probe
from sparring.judge.sandbox.outcome import Execution
from sparring.pipelines.equivalence.judge.inputs import inputs_for
from sparring.pipelines.equivalence.judge.purity import parse
from sparring.pipelines.equivalence.judge.python import PythonChecker
from sparring.pipelines.equivalence.judge.signature import signature_of
from sparring.tasks import load_tasks

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
PAIRS = {row.id: row.data for row in load_tasks("shipped:pairs_python", None)}
HAND = [name for name in PAIRS if name.startswith("hand/")]
FULL = os.environ.get("SPARRING_FULL") == "1"
EFFORT = {"work": 20_000_000, "timeout_s": 2.0} if FULL else {"work": 400_000, "timeout_s": 0.5}
IDENTITY = "def f(n: int) -> int:\n    return n"
# No input of the attack shows this one, whose only input lies beyond ±10,000 in both arguments.
BEYOND_THE_ATTACK = "hand/magic-sum"


def checked(
    body: Callable[[PythonChecker], Awaitable[Any]], crosshair_paths: int = 0, **options: Any
) -> Any:
    async def go() -> Any:
        async with PythonChecker(crosshair_paths=crosshair_paths, **options) as checker:
            return await body(checker)

    return asyncio.run(go())


def q(body: str, head: str = "n: int) -> int") -> str:
    return f"def f({head}:\n    {body}"


def test_pairs_by_hand_are_told_apart_or_not_as_their_truth_is() -> None:
    """Types, signs of zero, NaN, order in dicts, classes of errors, arguments as they are left.
    Each third pair, a part of the search and a quarter of a call, for the sake of time;
    SPARRING_FULL=1 takes as long as a run does, and the benchmark has all pairs."""
    names = sorted({*HAND[:: 1 if FULL else 3], "hand/magic-cube", BEYOND_THE_ATTACK})

    async def body(checker: PythonChecker) -> list[Verdict]:
        rows = [PAIRS[name] for name in names]
        return await asyncio.gather(
            *(checker.attack(row["p"], row["q"], row["function"]) for row in rows)
        )

    for name, verdict in zip(names, checked(body, inputs=30, **EFFORT), strict=True):
        truth = PAIRS[name]["claim"] == "equivalent"
        wanted = "not refuted" if truth or name == BEYOND_THE_ATTACK else "refuted"
        assert verdict.kind == wanted, f"{name}: {verdict}"


def test_given_inputs_show_what_they_are_said_to_show() -> None:
    names = [n for n in HAND[:: 1 if FULL else 3] if PAIRS[n]["claim"] == "inequivalent"]

    async def body(checker: PythonChecker) -> list[Verdict]:
        rows = [PAIRS[name] for name in names]
        return await asyncio.gather(
            *(checker.diverges(r["p"], r["q"], r["function"], r["input"]) for r in rows)
        )

    for name, verdict in zip(names, checked(body, **EFFORT), strict=True):
        assert (verdict.status, verdict.kind) == ("pass", "differ"), f"{name}: {verdict}"


REFUSALS = {
    "syntax": (IDENTITY, "def f(:", [1], "syntax"),
    "another type": (IDENTITY, q("return n", "n: float) -> int"), [1], "type"),
    "another result": (IDENTITY, q("return n", "n: int) -> float"), [1], "type"),
    "another name": (IDENTITY, "def g(n: int) -> int:\n    return 0", [1], "type"),
    "no types": (IDENTITY, "def f(n):\n    return 0", [1], "type"),
    "other defaults": (IDENTITY, q("return n", "n: int = 1) -> int"), [1], "type"),
    "P without types": ("def f(n):\n    return n", IDENTITY, [1], "type"),
    "printing": (IDENTITY, q("print(n); return 0"), [1], "not pure"),
    "P that prints": (q("print(n); return 0"), IDENTITY, [1], "not pure"),
    "clock": (IDENTITY, "import time\n" + q("return int(time.time())"), [1], "not pure"),
    "input of another type": (IDENTITY, q("return 0"), [True], "input"),
    "input that is no literal": (IDENTITY, q("return 0"), "[open('x')]", "input"),
    "the same": (IDENTITY, q("return n + 0"), [1], "same"),
    "endless": (IDENTITY, q("while True: pass"), [1], "no outcome"),
    "endless, and then not": (
        IDENTITY,
        q("try:\n        while True: pass\n    finally:\n        return 0"),
        [1],
        "no outcome",
    ),
    "endless in one step": (IDENTITY, q("return sum(range(2 ** 62)) * 0"), [1], "no outcome"),
    "too deep": (IDENTITY, q("return f(n + 1)"), [1], "no outcome"),
    "too much memory": (IDENTITY, q("return len([0] * 10 ** 12)"), [1], "no outcome"),
    "a function as value": (IDENTITY, q("return f"), [1], "not data"),
    "a generator as value": (IDENTITY, q("return (i for i in range(n))"), [1], "not data"),
}


def test_what_is_no_divergence() -> None:
    async def body(checker: PythonChecker) -> list[Verdict]:
        asked = ((a, b, "f", given) for a, b, given, _ in REFUSALS.values())
        return await asyncio.gather(*(checker.diverges(*case) for case in asked))

    verdicts = checked(body, timeout_s=0.5)
    for (name, case), verdict in zip(REFUSALS.items(), verdicts, strict=True):
        assert (verdict.status, verdict.kind) == ("fail", case[3]), f"{name}: {verdict}"


def test_what_hangs_on_hashes_is_void_whatever_is_claimed() -> None:
    p = "def f(xs: list[str]) -> list[str]:\n    return sorted(set(xs))"
    unsteady = "def f(xs: list[str]) -> list[str]:\n    return list(set(xs))"
    words = [["one", "two", "three", "four", "five", "six"]]

    async def body(checker: PythonChecker) -> list[Verdict]:
        return [
            await checker.diverges(p, unsteady, "f", words),
            await checker.attack(p, unsteady, "f"),
            await checker.compiles(unsteady, "f"),
        ]

    for verdict in checked(body):
        assert (verdict.status, verdict.kind) == ("void", "not deterministic")


def test_one_set_of_two_words_is_enough() -> None:
    p = "def f(n: int) -> str:\n    return 'left'"
    unsteady = "def f(n: int) -> str:\n    return next(iter({'left', 'right'}))"
    for verdict in (
        checked(lambda c: c.attack(p, unsteady, "f")),
        checked(lambda c: c.diverges(p, unsteady, "f", [1])),
    ):
        assert not verdict.passed


def test_an_endless_q_is_no_equal_and_no_counterexample() -> None:
    loop = q("while n > 3: pass\n    return n")
    verdict = checked(lambda c: c.attack(IDENTITY, loop, "f"), timeout_s=0.5)
    assert (verdict.status, verdict.kind) == ("fail", "no outcome")


def test_a_q_that_is_slow_is_compared_on_every_input_or_not_taken_for_equal() -> None:
    """It must not be let through for the few inputs that it had steps for, wherever it is wrong."""
    slow = q("for i in range(600_000): pass\n    return n if n < 10 ** 6 else 0")
    verdict = checked(lambda c: c.attack(IDENTITY, slow, "f"), timeout_s=0.5)
    assert (verdict.status, verdict.kind) == ("fail", "no outcome")


def test_a_place_that_q_names_is_tried_though_p_takes_long_there() -> None:
    """P is to answer soon, and where it does not, Q could say what it liked."""
    counted = "c = 0\n    for i in range(n):\n        c += i % 7\n    return c"
    p, broken = q(counted), q(f"if n >= 120_000:\n        return 0\n    {counted}")
    verdict = checked(lambda c: c.attack(p, broken, "f"), work=0)
    assert verdict.kind == "refuted" and "input [120000]: P gives 3" in verdict.detail
    honest = q("while n < 0:\n        return 0\n    " + counted)
    assert checked(lambda c: c.attack(p, honest, "f"), work=0).kind == "not refuted"


def test_a_module_that_does_not_end_is_no_outcome() -> None:
    endless = "X = 10 ** 10 ** 9\n" + IDENTITY
    for verdict in (
        checked(lambda c: c.compiles(endless, "f"), timeout_s=0.5),
        checked(lambda c: c.diverges(IDENTITY, endless, "f", [1]), timeout_s=0.5),
    ):
        assert (verdict.status, verdict.kind) == ("fail", "no outcome")


def test_complex_numbers_without_end_are_inputs_too() -> None:
    same = q("return z + 0", "z: complex) -> complex")
    differs = q("return 0j if z.imag == float('inf') else z", "z: complex) -> complex")
    p = q("return z", "z: complex) -> complex")
    given = f"[{complex(1, float('inf'))!r}]"

    async def body(checker: PythonChecker) -> list[Verdict]:
        return [
            await checker.diverges(p, differs, "f", given),
            await checker.diverges(p, same, "f", given),
        ]

    assert [verdict.kind for verdict in checked(body)] == ["differ", "same"]


def test_what_is_nested_too_deeply_to_compare_is_no_outcome_and_no_reason_to_refuse() -> None:
    head = "n: int) -> list"
    deep = q("r: list = []\n    for _ in range(min(n, 300)): r = [r]\n    return r", head)
    same = q("r: list = []\n    while n > 0: r, n = [r], min(n, 300) - 1\n    return r", head)
    other = q(deep.partition(":\n    ")[2].replace("return r", "return r if n != 5 else []"), head)
    within = q("r: list = [n]\n    if n == 7: r.append(r)\n    return r", head)

    async def body(checker: PythonChecker) -> list[Verdict]:
        return [
            await checker.attack(deep, same, "f"),
            await checker.attack(deep, other, "f"),
            await checker.attack(q("return [n]", head), within, "f"),
        ]

    kinds = [verdict.kind for verdict in checked(body, work=400_000, timeout_s=0.5)]
    assert kinds == ["not refuted", "refuted", "no outcome"]


def test_programs_are_refused_by_name_before_use() -> None:
    cases = {
        "def f(n: int) -> int:\n    return n": "compiles",
        "def f(n) -> int:\n    return n": "type",
        "def f(n: int) -> int:\n    return input()": "not pure",
        "def f(n: int) -> int:\n    while True: pass": "no outcome",
        "import math\ndef f(n: int) -> int:\n    return math.nothing(n)": "not pure",
    }

    async def body(checker: PythonChecker) -> list[Verdict]:
        return [await checker.compiles(code, "f") for code in cases]

    found = checked(body, timeout_s=0.5)
    assert [verdict.kind for verdict in found] == list(cases.values())


def test_inputs_are_the_same_each_time_and_hold_the_programs_own_constants() -> None:
    tree = parse(q("return 0 if n == 8675309 else 10 ** 6"))
    assert not isinstance(tree, str)
    signature = signature_of(tree, "f")
    found = inputs_for(signature, [tree], 50, 0)
    assert found == inputs_for(signature, [tree], 50, 0)
    values = [value for [value] in found]
    assert {0, -1, 2**63, 8675309, 8675310, 10**6, 10**6 - 1} <= set(values)
    assert len(values) == len(set(values)) > 80


crosshair = pytest.mark.skipif(
    util.find_spec("crosshair") is None, reason="pip install 'sparring[equivalence]'"
)


@crosshair
def test_crosshair_exhausts_refutes_and_is_overruled() -> None:
    """A cube that no random input hits; a pair that differs only in the type of its result, which
    CrossHair takes for the same."""
    cube = PAIRS["hand/magic-cube"]
    typed = PAIRS["hand/bool-int"]

    async def body(checker: PythonChecker) -> list[Any]:
        return [
            await checker.equivalent(q("return n * 2"), q("return n + n"), "f"),
            await checker.equivalent(cube["p"], cube["q"], "f"),
            await checker.equivalent(typed["p"], typed["q"], "f"),
            await checker.seek(cube["p"], cube["q"], "f"),
        ]

    same, refuted, incident, sought = checked(body, crosshair_paths=100)
    assert (same.status, same.kind) == ("pass", "exhausted")
    assert (refuted.status, refuted.kind) == ("fail", "refuted") and "123" in refuted.detail
    assert (incident.status, incident.kind) == ("fail", "soundness incident")
    assert sought == "[123]"


LOOP = (
    q("return sum(x for x in xs if x > 0)", "xs: list[int]) -> int"),
    q("s = 0\n    for x in xs:\n        s += max(x, 0)\n    return s", "xs: list[int]) -> int"),
)


@crosshair
def test_how_busy_the_machine_is_does_not_change_what_crosshair_says() -> None:
    """As many paths, and the same answer, beside two processes that take the processor away."""

    async def body(checker: PythonChecker) -> tuple[str, str]:
        assert checker.crosshair is not None
        found = await checker.crosshair.search(*LOOP, "f")
        return found.kind, found.detail

    alone = checked(body, crosshair_paths=12)
    burning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        beside = checked(body, crosshair_paths=12)
    finally:
        for process in burning:
            process.kill()
            process.wait()
    assert alone == beside == ("not refuted", "CrossHair found nothing in 12 paths")


@crosshair
def test_a_search_that_the_clock_ends_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(checker: PythonChecker) -> Verdict:
        assert checker.crosshair is not None
        judge = await checker.crosshair._opened()

        async def late(*_: Any, **__: Any) -> Execution:
            return Execution("fail", "time-out", "not done after 120 s")

        monkeypatch.setattr(judge, "run", late)
        return await checker.equivalent(*LOOP, "f")

    verdict = checked(body, crosshair_paths=10, inputs=10, work=0)
    assert (verdict.status, verdict.kind) == ("void", "crosshair")

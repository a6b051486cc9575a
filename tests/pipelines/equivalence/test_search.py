"""The search for a difference: what it must find, what it says of what it did not, and that neither
depends on how busy the machine is."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from sparring.core.types import Verdict
from sparring.judge.sandbox import probe
from sparring.pipelines.equivalence.judge import form_inside, inputs, outcomes_inside
from sparring.pipelines.equivalence.judge.inputs import inputs_for
from sparring.pipelines.equivalence.judge.instrument import instrumented
from sparring.pipelines.equivalence.judge.purity import impure, parse
from sparring.pipelines.equivalence.judge.python import PythonChecker, accept_pair
from sparring.pipelines.equivalence.judge.roots_inside import roots
from sparring.pipelines.equivalence.judge.search import equations_of, search
from sparring.pipelines.equivalence.judge.signature import Signature, Type, signature_of
from sparring.tasks import load_tasks

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
FAMILIES = ("one, hash", "two, line", "two, residues", "two, opaque")
if os.environ.get("SPARRING_FULL") == "1":
    FAMILIES += ("two, hidden point", "two, circle", "two, hash")
SOME = 8_000_000  # steps of a search that finds nothing and uses them all; a run has 20 million
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "differences.py"


def f(body: str, head: str = "n: int) -> int", before: str = "") -> str:
    return f"{before}def f({head}:\n    {body}"


def checked(body: Callable[[PythonChecker], Awaitable[Any]], **options: Any) -> Any:
    async def go() -> Any:
        async with PythonChecker(**{"crosshair_paths": 0, "inputs": 20, **options}) as checker:
            return await body(checker)

    return asyncio.run(go())


def attacked(pairs: list[tuple[str, str]], **options: Any) -> list[Verdict]:
    async def body(checker: PythonChecker) -> list[Verdict]:
        return await asyncio.gather(*(checker.attack(p, q, "f") for p, q in pairs))

    return checked(body, **options)


FERMAT = (
    f(
        "if n < 2 or n > 2000: return False\n    return all(n % d for d in range(2, n))",
        "n: int) -> bool",
    ),
    f("if n < 2 or n > 2000: return False\n    return pow(2, n, n) == 2 % n", "n: int) -> bool"),
)
TWO = "a: int, b: int) -> int"
WORDS = "s: str, t: str) -> bool"
LISTS = "a: list[int], b: list[int]) -> bool"
BOOLS = "a: bool, b: bool) -> bool"
ONE_BOOL = "n: int, up: bool) -> int"
DIFFERENT = {
    "a pseudoprime": FERMAT,
    "one value of a hash": (f("return n"), f("return n + (n * 7919 % 10007 == 5)")),
    "a cube": (f("return n"), f("return n if n * n * n != 1860867 else 0")),
    "a sum over a list": (
        f("return sum(xs)", "xs: list[int]) -> int"),
        f("return sum(xs) if sum(xs) != 4242 else 0", "xs: list[int]) -> int"),
    ),
    "a text": (
        f("return s[::-1]", "s: str) -> str"),
        f("return s[::-1] if s.upper() != 'ZQ' + str(9) else ''", "s: str) -> str"),
    ),
    "an argument that is changed": (
        f("return max(xs, default=0)", "xs: list[int]) -> int"),
        f(
            "m = max(xs, default=0)\n    if m == 7777: xs.sort()\n    return m",
            "xs: list[int]) -> int",
        ),
    ),
    "words that are no anagrams": (
        f("return sorted(s) == sorted(t)", WORDS),
        f("return set(s) == set(t) and len(s) == len(t)", WORDS),
    ),
    "lists of one sum": (
        f("return sorted(a) == sorted(b)", LISTS),
        f("return (len(a), sum(a)) == (len(b), sum(b))", LISTS),
    ),
    "the order of a sum": (
        f("return sum(xs)", "xs: list[float]) -> float"),
        f("return sum(xs[::-1])", "xs: list[float]) -> float"),
    ),
    "digits beyond ASCII": (
        f("return s.isdigit()", "s: str) -> bool"),
        f("return s != '' and set(s) <= set('0123456789')", "s: str) -> bool"),
    ),
    "a letter that hangs on its place": (
        f("return s.lower()", "s: str) -> str"),
        f("return ''.join(c.lower() for c in s)", "s: str) -> str"),
    ),
    "more digits than a Decimal keeps": (
        f("return int(Decimal(n) + 0)", before="from decimal import Decimal\n"),
        f("return n"),
    ),
    "an error": (f("return a // 3 + b", TWO), f("return a // 3 + b // (a * 5 + b != 7777)", TWO)),
}


X, Y = 4321, -6789  # at which each of these holds, and at few other points, all beyond ±300
FAR_OUT = (
    f"(a ^ b) % 45 == {(X ^ Y) % 45} and (b - a) * a == {(Y - X) * X}",
    f"b != 0 and a % b == {X % Y} and a * b ^ 48 == {X * Y ^ 48}",
    f"max(a, b) ^ 70 == {X ^ 70} and b // 7 * a == {Y // 7 * X}",
    f"a * a - b == {X * X - Y} and a // 3 % 50 == {X // 3 % 50}",
    f"a * a * 3 + a * b == {X * X * 3 + X * Y} and b < -700",
)


@pytest.mark.parametrize("condition", FAR_OUT)
def test_points_where_comparisons_turn_hold_what_the_programs_ask_for(condition: str) -> None:
    q = f(f"return 0 if {condition} else a - b", TWO)
    texts = equations_of([ast.parse(q)], "f")
    points = [point for text in texts for point in roots(text, 10_000, range(4000, 4500))]
    points += [point for text in texts for point in roots(text, 10_000, range(-6800, -6700))]
    assert [X, Y] in points


def test_only_comparisons_of_unchanged_parameters_become_equations() -> None:
    body = "c = a + 1\n    return int(c > 3) + int(a * 2 < b) + int(len(str(b)) == a)"
    assert equations_of([ast.parse(f(body, TWO))], "f") == ["(x * 2) - (y)", "(len(str(y))) - (x)"]
    assert equations_of([ast.parse(f("a += 1\n    return int(a < b)", TWO))], "f") == []
    assert equations_of([ast.parse(f("return int(n < 3)"))], "f") == []


@jail
def test_differences_of_two_integers_far_out_are_found() -> None:
    pairs = [
        (f("return a - b", TWO), f(f"return 0 if {condition} else a - b", TWO))
        for condition in FAR_OUT[::2]  # of all of them the points are looked for above
    ]
    for condition, verdict in zip(FAR_OUT[::2], attacked(pairs), strict=True):
        assert verdict.kind == "refuted", f"{condition}: {verdict}"


@jail
def test_differences_that_few_inputs_show_are_found() -> None:
    for name, verdict in zip(DIFFERENT, attacked(list(DIFFERENT.values())), strict=True):
        assert (verdict.status, verdict.kind) == ("fail", "refuted"), f"{name}: {verdict}"


@jail
def test_families_of_hidden_conditions_are_found() -> None:
    """One pair of some families of the benchmark, which has more of them."""
    spec = importlib.util.spec_from_file_location("differences", BENCHMARK)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    drawn = [row for row in benchmark.pairs(1, 1) if row[0] in FAMILIES]
    assert len(drawn) == len(FAMILIES)
    verdicts = attacked([(p, q) for _, p, q in drawn])
    for (family, _, q), verdict in zip(drawn, verdicts, strict=True):
        assert verdict.kind == "refuted", f"{family}: {verdict}\n{q}"


@jail
def test_not_refuted_says_how_many_inputs_stand_behind_it() -> None:
    pairs = [
        (f("return n * 2"), f("return n + n")),
        (f("return a * b + a", TWO), f("return a * (b + 1)", TWO)),
        (f("return a and b", BOOLS), f("return b and a", BOOLS)),
        (f("return n if up else -n", ONE_BOOL), f("return (2 * up - 1) * n", ONE_BOOL)),
    ]  # fmt: skip
    whole = ["all integers from -10000 to 10000", "all pairs of integers from -300 to 300",
             "all inputs there are", "all integers from -10000 to 10000"]  # fmt: skip
    least = [20_001, 361_201, 4, 40_002]
    for verdict, text, count in zip(attacked(pairs, work=SOME), whole, least, strict=True):
        assert verdict.passed and text in verdict.detail, verdict
        assert int(verdict.detail.split()[3]) >= count
    assert "all" not in attacked(pairs[:1], work=0)[0].detail


@jail
def test_what_is_said_to_be_tried_whole_was_compared_whole() -> None:
    """Where P recurs too deep it has no outcome, and Q, which would take for ever, is not asked."""
    deep = "def g(k: int) -> int:\n        return 0 if k < 1 else 1 + g(k - 1)\n    return g(n)"
    pairs = [
        (f(deep), f("return max(n, 0)")),
        (f(deep), f("return max(n, 0) + (n > 3000 and sum(range(2 ** 62)))")),
        (f(deep.replace("n)", "a + b)"), TWO), f("return max(a + b, 0)", TWO)),
    ]
    for verdict in attacked(pairs, work=SOME):
        whole = re.search(
            r"the same on (\d+) inputs(?:, all integers from -(\d+))?", verdict.detail
        )
        assert verdict.passed and whole is not None, verdict
        assert int(whole[1]) > 10_000 and int(whole[2] or 0) < 1000, verdict


@jail
def test_what_is_no_data_on_few_inputs_is_no_equal() -> None:
    """A list with an iterator in it, or with itself, where P's is a plain one."""
    rare, head = "n * 7919 % 10007 == 5", "n: int) -> list"
    within = f"r: list = [n]\n    if {rare}: r[0] = r\n    return r"
    pairs = [
        (f("return [n]", head), f(f"return [iter(()) if {rare} else n]", head)),
        (f("return [n]", head), f(within, head)),
    ]
    assert [v.kind for v in attacked(pairs, work=SOME)] == ["not data", "no outcome"]


@jail
def test_what_does_not_end_is_no_equal_and_holds_nothing_up() -> None:
    swallowed = "try:\n        while n == 341: n = 341\n    finally:\n        return n"
    pairs = [
        (f("return n"), f("while n == 341: pass\n    return n")),
        (f("return n"), f(swallowed)),
        (f("return sum(range(n))"), f("return n * (n - 1) // 2 if n > 0 else 0")),
    ]
    ruled = attacked(pairs, timeout_s=0.2)
    assert [v.kind for v in ruled] == ["no outcome", "no outcome", "not refuted"], ruled


@jail
def test_verdicts_are_the_same_beside_busy_loops() -> None:
    """Near their limits on steps: P takes about as many as it may, Q forty times as many."""
    loop = "t = 0\n    for i in range(abs(n) % {}): t += i\n    return t"
    pairs = [
        DIFFERENT["a pseudoprime"],
        (f(loop.format(24_000)), f(loop.format(24_000) + " + (n == 23_990)")),
        (f("return n"), f("for i in range(1_000_000 * (n == 5)): pass\n    return n")),
        (f("return n"), f("for i in range(990_000 * (n == 5)): pass\n    return n")),
    ]
    idle = attacked(pairs, timeout_s=0.5, work=SOME)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        beside = attacked(pairs, timeout_s=0.5, work=SOME)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert [(v.status, v.kind, v.detail) for v in idle] == [
        (v.status, v.kind, v.detail) for v in beside
    ]
    assert [v.kind for v in idle] == ["refuted"] * 2 + ["no outcome", "not refuted"]


@jail
def test_short_functions_are_tried_ten_thousand_times_a_second() -> None:
    """In seconds of a processor, which a busy machine does not stretch much; measured, it is ten to
    a hundred times as many."""
    pair = accept_pair(f("return n * 2"), f("return n + n"), "f")

    async def body(checker: PythonChecker) -> tuple[int, float]:
        seeds = inputs_for(pair.signature, pair.trees, 0, 0)
        used: list[float] = []
        run = checker.judge.run

        async def counted(*args: Any, **named: Any) -> Any:
            done = await run(*args, **named)
            used.append(done.cpu_s)
            return done

        checker.judge.run = counted  # type: ignore[method-assign]
        found = await search(checker.judge, pair, seeds, checker.work, checker.steps // 40, 0)
        return found.compared, sum(used)

    compared, seconds = checked(body)
    assert compared > 20_000 and compared / seconds > 10_000


def test_instrumented_programs_do_the_same() -> None:
    """On every shipped program: values, errors and arguments as they are left."""
    steps = outcomes_inside.Steps()
    rows = [row.data for row in load_tasks("shipped:pairs_python", None)][::4]
    compared = 0
    for row in rows:
        tree = parse(row["p"])
        assert isinstance(tree, ast.Module)
        text = instrumented(row["p"])
        plain = form_inside.load(row["p"], row["function"])
        counting = form_inside.load(text, row["function"], steps.names())
        some = inputs_for(signature_of(tree, row["function"]), [tree], 0, 0)[:60:3]
        for values in (repr(v) for v in some if len(repr(v)) < 60):
            steps.left = 10_000_000
            given = [form_inside.read(values) for _ in range(2)]
            if any(abs(n) > 10_000 for n in given[0] if type(n) is int):
                continue
            assert outcomes_inside.call(plain, given[0]) == outcomes_inside.call(counting, given[1])
            compared += 1
    assert compared > 200


def test_steps_are_counted_in_every_kind_of_loop() -> None:
    steps = outcomes_inside.Steps()
    bodies = {
        "for i in range(n): pass": 101,
        "while n > 0: n -= 1": 202,  # each comparison is a step as well
        "return sum(i for i in range(n))": 101,
        "return [i for i in range(n) if i]": 101,
        "return f(n - 1) if n else 0": 201,
        "return list(map(lambda x: x, range(n)))": 101,
    }
    for body, count in bodies.items():
        steps.left = 10_000
        form_inside.load(instrumented(f(body)), "f", steps.names())(100)
        assert 10_000 - steps.left in (count, count + 1), body
        steps.left = 50
        with pytest.raises(form_inside.TimeUp):
            form_inside.load(instrumented(f(body)), "f", steps.names())(100)


@pytest.mark.parametrize("name", ["__reached__", "__value__", "__compared__"])
def test_no_program_may_name_the_counter(name: str) -> None:
    for body in (f"return {name}(0)", f"{name} = 3\n    return n"):
        tree = parse(f(body))
        assert isinstance(tree, ast.Module) and name in impure(tree)


def test_what_is_drawn_does_not_hang_on_what_else_is_imported(tmp_path, monkeypatch) -> None:
    """Hypothesis mixes the constants of modules that are not installed packages into its draws."""
    signature = Signature((Type("int"), Type("str")), Type("int"), ())

    def drawn() -> tuple[str, ...]:
        inputs._drawn_texts.cache_clear()
        return inputs._drawn_texts(signature, 300, 5)

    before = drawn()
    (tmp_path / "own_numbers.py").write_text(f"NUMBERS = {[900_000 + 7 * i for i in range(200)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_numbers")
    assert len(before) == 300 and drawn() == before
    monkeypatch.setattr(inputs, "_by_seed_alone", nullcontext)
    assert drawn() != before, "this version of Hypothesis draws no such constants: less to do"

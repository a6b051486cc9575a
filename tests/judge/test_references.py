"""Reference solutions of the public problem sets pass, all of them; wrong ones of ours do not."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from data_sets import data, read

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox import probe

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
OWN = Path(__file__).with_name("problems.jsonl")


def judge_all(problems: list[dict[str, Any]]) -> list[Verdict]:
    async def go() -> list[Verdict]:
        async with Judge(timeout_s=20) as judge:
            return await asyncio.gather(*[judge.tests(**problem) for problem in problems])

    return asyncio.run(go())


def all_pass(name: str, problems: list[dict[str, Any]], ids: list[Any]) -> None:
    verdicts = judge_all(problems)
    failed = [(i, v) for i, v in zip(ids, verdicts, strict=True) if not v.passed]
    print(f"\n{name}: {len(verdicts) - len(failed)} of {len(verdicts)} references pass")
    assert not failed, failed[:5]


def test_mbpp() -> None:
    path = data("mbpp.jsonl")
    if path is None:
        pytest.skip("no mbpp.jsonl: set SPARRING_DATA to its folder; our own problems run below")
    rows = read(path)
    problems = [
        {"code": r["code"], "setup": r["test_setup_code"], "tests": r["test_list"]} for r in rows
    ]
    assert len(rows) == 974
    all_pass("MBPP", problems, [r["task_id"] for r in rows])


def test_humaneval() -> None:
    path = data("humaneval.jsonl")
    if path is None:
        pytest.skip(
            "no humaneval.jsonl: set SPARRING_DATA to its folder; our own problems run below"
        )
    rows = read(path)
    problems = [
        {
            "code": r["prompt"] + r["canonical_solution"],
            "tests": r["test"],
            "entry": r["entry_point"],
        }
        for r in rows
    ]
    assert len(rows) == 164
    all_pass("HumanEval", problems, [r["task_id"] for r in rows])


def test_evalplus_functions_that_were_odd() -> None:
    """A function named like a builtin, and values that hold a million numbers, in both forms of
    benchmarks/evalplus.py, which has all the problems."""
    path = data("mbpp_plus.jsonl.gz")
    if path is None:
        pytest.skip("no mbpp_plus.jsonl.gz: set SPARRING_DATA to its folder")
    file = Path(__file__).parents[2] / "benchmarks" / "evalplus.py"
    spec = importlib.util.spec_from_file_location("evalplus_benchmark", file)
    assert spec is not None and spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = benchmark  # for its dataclasses
    spec.loader.exec_module(benchmark)
    rows = [*benchmark.problems(path.parent, "mbpp"), *benchmark.problems(path.parent, "humaneval")]
    sums, tri = (next(r for r in rows if r.id == i) for i in ("Mbpp/126", "HumanEval/130"))
    largest = dataclasses.replace(tri, inputs=sorted(tri.inputs)[-1:])
    plain = benchmark.Plain(60, 1024)
    forms = [(r.code, f) for r in (sums, largest) for f in benchmark.forms(r, plain).values()]
    assert len(forms) == 3  # the long list is no literal
    all_pass("EvalPlus", [{"code": code, **form} for code, form in forms], [*range(len(forms))])


def own() -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "id"} for row in read(OWN)]


def test_own_problems() -> None:
    all_pass("own problems", own(), [row["id"] for row in read(OWN)])


def test_wrong_solutions_of_own_problems_fail() -> None:
    """Every reference with one number, sign or name changed; none of these is right."""
    swaps = [("2 * n", "2 + n"), ("reversed(", "sorted("), ("len(list(g))", "1"),
             (" == n", " != n"),
             ("/ len(xs)", "/ (len(xs) + 1)"), ("yield n", "yield -n"), ("k %= len(xs)", "k = 0"),
             ("1 + max", "2 + max"), ("return a\n", "return b\n"), (".add(key)", ".add(value)"),
             ("key.strip()", "key"), ("+= amount", "-= amount")]  # fmt: skip
    problems = own()
    for problem, (old, new) in zip(problems, swaps, strict=True):
        assert old in problem["code"]
        problem["code"] = problem["code"].replace(old, new)
    verdicts = judge_all(problems)
    assert [v for v in verdicts if v.status != "fail"] == []

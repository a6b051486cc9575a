"""EvalPlus' canonical solutions, judged by `sparring judge python` and run in plain Python: how
many pass in each, and how much longer the judge takes, in one run.

    SPARRING_DATA=FOLDER python benchmarks/evalplus.py [--suite mbpp] [--only Mbpp/126]

FOLDER holds humaneval_plus.jsonl.gz and mbpp_plus.jsonl.gz, as EvalPlus publishes them. A problem
is tested in two forms over all its base and plus inputs. `asserts`: one assert for each input with
the expected value as a literal, as in MBPP, where it is not too long for one. `loop`: a
check(candidate) that goes over the inputs and compares with a reference of its own. The very same
text is run by a plain Python with the same limits on time and memory; the two take turns, and the
shortest of the rounds counts. All seconds are those of a processor, of every process that takes
part: of plain Python its start too, of the judge the fork, the ruling and, where tests are run
twice, both times.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import gzip
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sparring.judge.python.judge import Judge, Verdict
from sparring.judge.sandbox import pool
from sparring.judge.sandbox.outcome import Exit
from sparring.pipelines.code.evalplus import check_text, inputs

SUITES = {"humaneval": "humaneval_plus.jsonl.gz", "mbpp": "mbpp_plus.jsonl.gz"}
MOST_LITERAL = 200_000  # characters of expected values
SHORT_S = 0.1  # below this, plain Python's time is mostly that of its start
EXPECTED = """
import copy, json, sys
values = []
for given in INPUTS:
    values.append(repr({entry}(*copy.deepcopy(given))))
json.dump(values, sys.stdout)
"""


@dataclass(frozen=True)
class Problem:
    id: str
    code: str
    entry: str
    inputs: list[list[Any]]
    atol: float


@dataclass
class Result:
    id: str
    form: str
    plain_s: float  # 0 when plain Python does not pass
    judge_s: float
    verdict: Verdict

    @property
    def ratio(self) -> float:
        return self.judge_s / self.plain_s


def problems(folder: Path, suite: str) -> Iterator[Problem]:
    with gzip.open(folder / SUITES[suite], "rt") as lines:
        for row in map(json.loads, lines):
            code = row["canonical_solution"]
            if suite == "humaneval":
                code = row["prompt"] + code
            yield Problem(row["task_id"], code, row["entry_point"], inputs(row), float(row["atol"]))


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Plain:
    """Plain Python with the same limits, as a subprocess."""

    def __init__(self, timeout_s: int, memory_mb: int) -> None:
        self.timeout_s, self.memory = timeout_s, memory_mb << 20

    def run(self, text: str) -> tuple[bool, float, str]:
        """Whether it ended well, the seconds of its own work, and what it printed."""

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
            resource.setrlimit(resource.RLIMIT_CPU, (self.timeout_s, self.timeout_s))

        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(text)
            file.flush()
            before = _children_s()
            done = subprocess.run(
                [sys.executable, "-S", file.name],
                env={"PYTHONHASHSEED": "0"},  # as the judge has it: sets have an order
                capture_output=True,
                text=True,
                preexec_fn=limit,
            )
            return done.returncode == 0, _children_s() - before, done.stdout


def forms(problem: Problem, plain: Plain) -> dict[str, dict[str, Any]]:
    """The tests of a problem in each form that it can be written in."""
    text = f"{problem.code}\nfrom math import inf, nan\nINPUTS = {problem.inputs!r}\n"
    ended, _, printed = plain.run(text + EXPECTED.format(entry=problem.entry))
    expected = json.loads(printed) if ended else None
    literal = expected is not None and all(map(_is_literal, [*expected, repr(problem.inputs)]))
    found: dict[str, dict[str, Any]] = {}
    if expected and literal and sum(map(len, expected)) <= MOST_LITERAL:
        # Without `entry`: the tests name the function, as those of MBPP do.
        found["asserts"] = {
            "tests": [
                f"assert {problem.entry}({', '.join(map(repr, given))}) == {value}"
                for given, value in zip(problem.inputs, expected, strict=True)
            ]
        }
    loop = check_text(problem.code, problem.entry, problem.inputs, problem.atol)
    found["loop"] = {"tests": loop, "entry": problem.entry}
    return found


def _is_literal(text: str) -> bool:
    try:
        return repr(ast.literal_eval(text)) == text
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def as_script(problem: Problem, tests: dict[str, Any]) -> str:
    text = tests["tests"] if isinstance(tests["tests"], str) else "\n".join(tests["tests"])
    if "entry" not in tests:
        return f"{problem.code}\n{text}\n"
    return f"{problem.code}\ncandidate_ = {problem.entry}\n{text}\ncheck(candidate_)\n"


async def _metered(judge: Judge, code: str, tests: dict[str, Any]) -> tuple[Verdict, float]:
    """The verdict, and the processor time of all the executions behind it and of the ruling."""
    ruling, forks = pool.execution, 0.0

    def counted(exit: Exit | None, *rest: Any) -> Any:
        nonlocal forks
        forks += exit.cpu_s if exit else 0.0
        return ruling(exit, *rest)

    pool.execution, start = counted, time.process_time()  # type: ignore[assignment]
    try:
        verdict = await judge.tests(code, **tests)
    finally:
        pool.execution = ruling
    return verdict, forks + time.process_time() - start


async def compare(problem: Problem, judge: Judge, plain: Plain, rounds: int) -> list[Result]:
    results = []
    for form, tests in forms(problem, plain).items():
        best = Result(problem.id, form, 0.0, float("inf"), Verdict("void"))
        for _ in range(rounds):
            ended, seconds, _ = plain.run(as_script(problem, tests))
            verdict, used = await _metered(judge, problem.code, tests)
            if ended:
                best.plain_s = min(best.plain_s or seconds, seconds)
            best.judge_s = min(best.judge_s, used)
            best.verdict = verdict
            if not verdict.passed or best.plain_s < SHORT_S:
                break
        results.append(best)
    return results


def report(suite: str, results: list[Result]) -> None:
    for form in ("asserts", "loop"):
        rows = [r for r in results if r.form == form]
        plain = [r for r in rows if r.plain_s]
        passed = [r for r in plain if r.verdict.passed]
        long = [r for r in passed if r.plain_s >= SHORT_S]
        print(f"{suite}, {form}: of {len(rows)} problems {len(plain)} pass in plain Python,")
        print(f"  {len(passed)} of these in the judge", end="")
        print(f"; {sum(r.verdict.passed for r in rows if not r.plain_s)} of the others")
        for r in plain:
            if not r.verdict.passed:
                print(f"  {r.id}: {r.verdict.status} {r.verdict.kind}: {r.verdict.detail:.150}")
        if passed:
            judged, alone = sum(r.judge_s for r in passed), sum(r.plain_s for r in passed)
            print(f"  time of all: {judged:.2f} s, plain {alone:.2f} s: {judged / alone:.2f} x")
        if long:
            ratios = sorted(r.ratio for r in long)
            print(
                f"  {len(long)} that take {SHORT_S:g} s or more in plain Python: "
                f"median {statistics.median(ratios):.2f} x, largest {ratios[-1]:.2f} x"
            )
            for r in sorted(long, key=lambda r: -r.ratio)[:5]:
                print(f"    {r.id}: {r.judge_s:.2f} s, plain {r.plain_s:.2f} s: {r.ratio:.2f} x")


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--data", default=os.environ.get("SPARRING_DATA"), help="the folder")
    parser.add_argument("--suite", choices=SUITES, action="append")
    parser.add_argument("--only", action="append", default=[], help="task ids")
    parser.add_argument("--timeout-s", type=int, default=60)
    parser.add_argument("--memory-mb", type=int, default=1024)
    parser.add_argument("--verbose", action="store_true", help="a line for each problem")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not options.data or not all((Path(options.data) / n).is_file() for n in SUITES.values()):
        parser.error(f"name the folder of {' and '.join(SUITES.values())} with --data")
    plain = Plain(options.timeout_s, options.memory_mb)
    async with Judge(timeout_s=options.timeout_s, memory_mb=options.memory_mb) as judge:
        for suite in options.suite or SUITES:
            results = []
            for problem in problems(Path(options.data), suite):
                if not options.only or problem.id in options.only:
                    rows = await compare(problem, judge, plain, options.rounds)
                    results += rows
                    if options.verbose:
                        print("\n".join(map(str, rows)), flush=True)
            report(suite, results)


if __name__ == "__main__":
    asyncio.run(main())

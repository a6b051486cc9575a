"""Executions a second: a fresh ghc per program, a fresh runghc, and the warm GHCi, in one run.

    python benchmarks/haskell.py [--json] [--pairs 24] [--rounds 3]

An execution is one program, compiled and run on one input. Every contestant gets the shipped
programs, each with a rewrite of it, on as many workers as there are processors; the warm GHCi has
its jail and compiles its own harness before the clock starts, as it does once in a training run.
Contestants take turns, so that what else the machine does falls on all of them; the median of the
rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from sparring.pipelines import equivalence
from sparring.pipelines.equivalence.judge.haskell import HaskellChecker
from sparring.pipelines.equivalence.judge.haskell_jail import probe
from sparring.pipelines.equivalence.rewrites_haskell import rewrites

CORES = len(os.sched_getaffinity(0))
SHIPPED = equivalence.plugin.folder("data") / "equivalence_haskell.jsonl"
INPUTS = {"Integer": "7", "[Integer]": "[3, 1, 2]", "String": '"some words"', "Bool": "True"}


class Job(NamedTuple):
    p: str
    q: str
    function: str
    input: str


def jobs(count: int) -> list[Job]:
    """Shipped programs of plain types, each with the first rewrite that keeps its meaning."""
    found = []
    for line in SHIPPED.read_text().splitlines():
        row = json.loads(line)
        code, name = row["code"], row["function"]
        types = code.split(f"{name} :: ", 1)[1].split("\n", 1)[0].split(" -> ")
        kept = [r.code for r in rewrites(code, name) if r.keeps]
        if kept and "data " not in code and all(t in INPUTS for t in types[:-1]):
            found.append(Job(code, kept[0], name, " ".join(INPUTS[t] for t in types[:-1])))
    return [found[n % len(found)] for n in range(count)]


def rate_sparring(given: list[Job]) -> float:
    async def go() -> float:
        async with HaskellChecker(workers=CORES) as checker:
            await asyncio.gather(*[checker.diverges(*job) for job in given[: 2 * CORES]])
            start = time.perf_counter()
            verdicts = await asyncio.gather(*[checker.diverges(*job) for job in given])
            seconds = time.perf_counter() - start
        wrong = [v for v in verdicts if v.kind != "same"]
        if wrong:
            raise SystemExit(f"sparring: {wrong[0]}")
        return 2 * len(given) / seconds

    return asyncio.run(go())


def fresh(code: str, job: Job, compiled: bool) -> str:
    """One program, with a main of its own, by a GHC that is started for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "Main.hs"
        path.write_text(
            f"module Main where\n{code}\nmain :: IO ()\nmain = print ({job.function} {job.input})\n"
        )
        if compiled:
            subprocess.run(["ghc", "-v0", "-O0", "Main.hs"], cwd=folder, check=True)
        words = ["./Main"] if compiled else ["runghc", "Main.hs"]
        done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True)
        return done.stdout


def rate_fresh(given: list[Job], compiled: bool) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(CORES) as pool:
        for p, q in pool.map(lambda j: [fresh(c, j, compiled) for c in (j.p, j.q)], given):
            if p != q:
                raise SystemExit(f"a rewrite that keeps the meaning: {p!r}, {q!r}")
    return 2 * len(given) / (time.perf_counter() - start)


def measure(pairs: int, rounds: int) -> dict[str, float]:
    given = jobs(pairs)
    contestants: dict[str, Callable[[], float]] = {
        "sparring": lambda: rate_sparring(given),
        "runghc": lambda: rate_fresh(given, False),
        "ghc": lambda: rate_fresh(given, True),
    }
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            found[name].append(contestant())
    return {name: statistics.median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=24)
    options = parser.parse_args()
    if not probe().ok:
        raise SystemExit(f"{probe().explanation}: {probe().install}")
    rates = measure(options.pairs, options.rounds)
    ratios = {name: rates["sparring"] / rate for name, rate in rates.items() if name != "sparring"}
    if options.json:
        rounded = {name: round(rate, 2) for name, rate in rates.items()}
        ratio = {name: round(value, 2) for name, value in ratios.items()}
        print(json.dumps({"executions_per_second": rounded, "ratio": ratio, "cores": CORES}))
        return
    print(f"{'':10} {'executions/s':>12} {'sparring is':>14}   ({CORES} cores)")
    for name, rate in rates.items():
        times = f"{ratios[name]:6.1f} × as fast" if name in ratios else ""
        print(f"{name:10} {rate:12.1f} {times:>16}")


if __name__ == "__main__":
    main()

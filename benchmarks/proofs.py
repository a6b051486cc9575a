"""Proofs by Liquid Haskell, one after the other and as many at once as there are cores, in one run:
how much the pool is worth.

    python benchmarks/proofs.py [--proofs 12] [--rounds 2]
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import time
from statistics import fmean, median

from sparring.pipelines.equivalence.judge.haskell import HaskellChecker, pair
from sparring.pipelines.equivalence.judge.liquid import draft
from sparring.pipelines.equivalence.judge.liquid_tool import LiquidHaskell, workers

P = "f :: [Integer] -> Integer\nf [] = 0\nf (x:xs) = x + f xs\n"
Q = """f :: [Integer] -> Integer
f xs = go 0 xs
go :: Integer -> [Integer] -> Integer
go acc [] = acc
go acc (x:xs) = go (acc + x) xs
"""
PROOF = """{-@ goLemma :: acc:Integer -> xs:[Integer] -> { go acc xs == acc + fP xs } @-}
goLemma :: Integer -> [Integer] -> Proof
goLemma _ [] = trivial
goLemma acc (x:xs) = goLemma (acc + x) xs
lemma xs = goLemma 0 xs
"""


async def measure(tool: LiquidHaskell, text: str, proofs: int) -> float:
    """Seconds for some proofs of one text."""
    started = time.perf_counter()
    verdicts = await asyncio.gather(*(tool.prove(text) for _ in range(proofs)))
    wall = time.perf_counter() - started
    wrong = [v for v in verdicts if not v.passed]
    if wrong:
        raise SystemExit(f"not proved: {wrong[0].detail}")
    return wall


async def processor_seconds(text: str) -> float:
    """Of GHC and z3 for one proof, the median of five: the same on a busy machine, nearly."""
    tool, used = LiquidHaskell(sandbox="unsafe", at_once=1), []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        await measure(tool, text, 1)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(used)


async def main(proofs: int, rounds: int) -> None:
    async with HaskellChecker() as checker:
        wrong = await checker.self_check()
    if wrong:
        raise SystemExit(wrong)
    both = pair(P, Q, "f")
    text = draft(both.p, both.q, "f", both.signature, PROOF).text
    used = await processor_seconds(text)
    print(
        f"one proof takes {used:.2f} s of a processor outside the jail: at most "
        f"{workers() / used:.2f} proofs/s on {workers()} cores that do nothing else"
    )
    ratios = []
    for number in range(1, rounds + 1):
        alone = await measure(LiquidHaskell(at_once=1), text, proofs)
        pooled = await measure(LiquidHaskell(), text, proofs)
        ratios.append(alone / pooled)
        print(
            f"round {number}: one at a time {proofs / alone:.2f} proofs/s, {workers()} at once "
            f"{proofs / pooled:.2f} proofs/s: {ratios[-1]:.2f} times as many"
        )
    print(f"on average {fmean(ratios):.2f} times as many")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proofs", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    asyncio.run(main(**vars(parser.parse_args())))

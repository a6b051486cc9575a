"""Rewrites of Haskell by rule: each does to the meaning what it says, as the checker sees it."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import defaultdict

import pytest

from sparring.core.types import Verdict
from sparring.pipelines import equivalence
from sparring.pipelines.equivalence import rules_haskell
from sparring.pipelines.equivalence.judge import liquid
from sparring.pipelines.equivalence.judge.haskell import HaskellChecker, pair
from sparring.pipelines.equivalence.judge.haskell_jail import Haskell, probe
from sparring.pipelines.equivalence.judge.haskell_source import Refused, parse
from sparring.pipelines.equivalence.proofs_haskell import proofs
from sparring.pipelines.equivalence.rewrites import Rewrite
from sparring.pipelines.equivalence.rewrites_haskell import WHOLE, choose, rewrites

SHIPPED = equivalence.plugin.folder("data") / "equivalence_haskell.jsonl"
PROGRAMS = [json.loads(line) for line in SHIPPED.read_text().splitlines()]
RULES = [*rules_haskell.KEEP, *rules_haskell.BREAK, *WHOLE]
needs_ghc = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")


def made(function: str) -> list[Rewrite]:
    row = next(r for r in PROGRAMS if r["function"] == function)
    return rewrites(row["code"], function)


def of_rule(function: str, rule: str) -> list[str]:
    return [r.code.split("\n", 1)[1].strip() for r in made(function) if r.rule == rule]


@pytest.mark.parametrize(
    ("function", "rule", "code"),
    [
        ("double", "exchange plus and minus", "double x = x - x"),
        ("sumOfSquares", "swap the terms of a sum", "sumOfSquares x y = y * y + x * x"),
        ("absolute", "mirror a comparison", "absolute n = if 0 > n then negate n else n"),
        (
            "absolute",
            "negate a comparison twice",
            "absolute n = if not (n >= 0) then negate n else n",
        ),
        ("absolute", "flip a conditional", "absolute n = if not (n < 0) then n else negate n"),
        ("absolute", "exchange the branches", "absolute n = if n < 0 then n else negate n"),
        ("isEven", "round towards zero", "isEven n = n `rem` 2 == 0"),
        ("isEven", "write a literal as a sum", "isEven n = n `mod` (1 + 1) == 0"),
        ("total", "rename a variable", "total [] = 0\ntotal (a1:xs) = a1 + total xs"),
        ("evens", "spell a function out", "evens xs = filter (\\k -> k `mod` 2 == 0) xs"),
        ("xor", "exchange and and or", "xor a b = (a && b) && not (a && b)"),
        ("shout", "change a text", 'shout :: String -> String\nshout s = map toUpper s ++ "?"'),
    ],
)
def test_what_a_rule_makes(function: str, rule: str, code: str) -> None:
    assert code in of_rule(function, rule)


def test_patterns_are_left_alone() -> None:
    for rewrite in made("total"):
        assert "total [] = " in rewrite.code or "totalAux [] = " in rewrite.code, rewrite


def test_floating_point_is_left_alone_by_rules_that_hold_for_whole_numbers_only() -> None:
    code = "f :: Double -> Double -> Bool\nf x y = abs x < y\n"
    rules = {r.rule for r in rewrites(code, "f") if r.keeps}
    assert "mirror a comparison" in rules
    assert not rules & {"negate a comparison twice", "spell a function out"}


def test_layout_survives() -> None:
    code = "f :: Integer -> Integer\nf x = x + case x of 0 -> 1\n                    _ -> x * 2\n"
    assert all(parse(r.code) for r in rewrites(code, "f"))
    grown = [r.code for r in rewrites(code, "f") if r.rule == "rename a variable"]
    assert "f value" in grown[0] or "f a1" in grown[0]


def test_the_same_seed_chooses_the_same() -> None:
    row = PROGRAMS[6]
    first, second = (choose(row["code"], row["function"], True, random.Random(3)) for _ in "ab")
    assert first == second and all(r.keeps for r in first)
    assert len({r.rule.split("+")[0] for r in first}) == len(first)


FULL = os.environ.get("SPARRING_FULL") == "1"


def sampled() -> list[tuple[dict[str, str], Rewrite]]:
    """Some rewrites of each rule, of as many programs: two of those that break something, since a
    break need not show in every program."""
    by_rule = defaultdict(list)
    for row in PROGRAMS:
        for rewrite in rewrites(row["code"], row["function"]):
            by_rule[rewrite.rule].append((row, rewrite))
    assert set(by_rule) == set(RULES)
    rng = random.Random(5)
    chosen = []
    for rule in RULES:
        most = 3 if FULL else 1 if by_rule[rule][0][1].keeps else 2
        chosen += rng.sample(by_rule[rule], min(most, len(by_rule[rule])))
    return chosen


@needs_ghc
def test_every_rule_against_the_checker() -> None:
    chosen = sampled()

    async def go() -> list[Verdict]:
        async with HaskellChecker() as checker:
            asked = [checker.attack(r["code"], w.code, r["function"]) for r, w in chosen]
            return list(await asyncio.gather(*asked))

    told: dict[str, list[str]] = defaultdict(list)
    for (row, rewrite), verdict in zip(chosen, asyncio.run(go()), strict=True):
        told[rewrite.rule].append(verdict.kind)
        if rewrite.keeps:
            assert verdict.kind == "not refuted", (row["id"], rewrite, verdict)
        else:
            assert verdict.kind in ("refuted", "no outcome", "not refuted"), (rewrite, verdict)
    for rule in [*rules_haskell.BREAK, WHOLE[2]]:
        if rule != "round towards zero":  # seldom shows: most programs ask only whether it is 0
            assert "refuted" in told[rule], (rule, told[rule])


@needs_ghc
def test_rounding_towards_zero_shows_below_zero() -> None:
    [changed] = [r.code for r in made("collatz") if r.rule == "round towards zero"]

    async def go() -> Verdict:
        async with HaskellChecker(workers=1) as checker:
            row = next(r for r in PROGRAMS if r["function"] == "average")
            changed = [r.code for r in made("average") if r.rule == "round towards zero"]
            return await checker.attack(row["code"], changed[0], "average")

    assert "quot" in changed
    assert asyncio.run(go()).kind == "refuted"


@needs_ghc
def test_scripted_proofs_keep_to_the_rules_where_the_programs_do() -> None:
    drafts = []
    by = 1 if FULL else 3
    for row in PROGRAMS[::by]:
        kept = [r for r in rewrites(row["code"], row["function"]) if r.rule == WHOLE[1]]
        both = pair(row["code"], kept[0].code, row["function"])
        given = proofs(row["code"], kept[0].code, row["function"])
        assert len(set(given)) == len(given)
        try:
            liquid.program_draft(both.p, row["function"], both.signature)
        except Refused:
            continue
        signature = both.signature
        drafts.append([liquid.draft(both.p, both.q, row["function"], signature, g) for g in given])

    async def go() -> list[str]:
        async with Haskell(1, seconds=60) as ghc:
            return (await ghc.parse([one.text for tries in drafts for one in tries])).report[1:]

    trees = iter(asyncio.run(go()))
    fine = [[_keeps(one, next(trees)) for one in tries] for tries in drafts]
    assert sum(any(tries) for tries in fine) >= 40 // by, fine


def _keeps(draft: liquid.Draft, tree: str) -> bool:
    try:
        return bool(draft.checked(tree))
    except Refused:
        return False


def test_a_proof_follows_the_functions_own_equations() -> None:
    p = """g :: Integer -> [Integer] -> Integer
g n [] = 0
g n (x:xs)
  | n > 0 = g (n - 1) xs
  | otherwise = if x > n then case xs of
                    [] -> 1
                    (y:ys) -> g n ys
                else 2 + g n xs
"""
    q = p.replace("g ", "gAux ") + "g :: Integer -> [Integer] -> Integer\ng x1 x2 = gAux x1 x2\n"
    first, second, *_ = proofs(p, q, "g")
    assert first.startswith(
        "{-@ same :: x1:Integer -> x2:[ Integer ] -> { gP x1 x2 == gAux x1 x2 } @-}\n"
        "same :: Integer -> [ Integer ] -> Proof\nsame n [ ] = trivial\n"
    )
    assert first.endswith("lemma x1 x2 = same x1 x2\n")
    assert "  | n > 0 = trivial ? lemma ( n - 1 ) xs\n" in second
    assert "( y : ys ) -> trivial ? lemma n ys" in second
    assert second.rstrip().endswith("else trivial ? lemma n xs")

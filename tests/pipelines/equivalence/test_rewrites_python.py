"""Every rule of the scripted Alice does to a program's meaning what it says it does."""

from __future__ import annotations

import ast
import asyncio
import os
import random
from collections import defaultdict
from functools import cache

import pytest

from sparring.core.types import Verdict
from sparring.judge.sandbox import probe
from sparring.pipelines.equivalence.judge.python import PythonChecker, accept_pair
from sparring.pipelines.equivalence.reshaping_python import WHOLE
from sparring.pipelines.equivalence.rewrites import Rewrite
from sparring.pipelines.equivalence.rewrites_python import choose, rewrites
from sparring.pipelines.equivalence.rules_python import BREAK, KEEP
from sparring.tasks import load_tasks

PROGRAMS = [task.data for task in load_tasks("shipped:equivalence_python", None)]
RULES = {**dict.fromkeys(KEEP, True), **dict.fromkeys(BREAK, False)}
# Steps of the search for a difference, all of which pairs that have none take; seconds of a call.
# SPARRING_FULL=1 takes as many as a run does.
FULL = os.environ.get("SPARRING_FULL") == "1"
WORK, TIMEOUT_S = (20_000_000, 2.0) if FULL else (50_000, 0.5)
RULES |= {name: keeps for name, (keeps, _) in WHOLE.items()}


@cache
def by_rule() -> dict[str, list[tuple[str, str, Rewrite]]]:
    found: dict[str, list[tuple[str, str, Rewrite]]] = defaultdict(list)
    for row in PROGRAMS:
        for rewrite in rewrites(row["code"], row["function"]):
            found[rewrite.rule].append((row["code"], row["function"], rewrite))
    return found


def test_there_are_programs_enough_of_one_function_each() -> None:
    assert len(PROGRAMS) >= 100
    assert len({row["id"] for row in PROGRAMS}) == len(PROGRAMS)
    assert {row["split"] for row in PROGRAMS} == {"train", "test"}


def test_every_rule_fits_somewhere_and_says_what_it_means_to_do() -> None:
    found = by_rule()
    assert set(found) == set(RULES)
    for rule, cases in found.items():
        for code, function, rewrite in cases[:5]:
            assert rewrite.keeps is RULES[rule]
            assert ast.unparse(ast.parse(code)) != rewrite.code.strip()
            accept_pair(code, rewrite.code, function)  # still pure, and of the same type


def test_choices_hang_on_the_seed_and_give_no_rule_more_than_one_place() -> None:
    code, function = PROGRAMS[10]["code"], PROGRAMS[10]["function"]
    first = choose(code, function, False, random.Random(1))
    assert first == choose(code, function, False, random.Random(1))
    assert first != choose(code, function, False, random.Random(2))
    rules = [rewrite.rule.split("+")[0] for rewrite in first]
    assert len(rules) == len(set(rules)) > 2
    assert not any(rewrite.keeps for rewrite in first)


@pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
def test_rules_keep_or_break_meaning_as_the_checker_sees_it() -> None:
    found, rng = by_rule(), random.Random(0)
    cases = []
    for rule in found:
        most = 1 if RULES[rule] and not FULL else 2  # a break need not show in every program
        cases += rng.sample(found[rule], min(most, len(found[rule])))

    async def go() -> list[Verdict]:
        options = {"inputs": 20, "work": WORK, "timeout_s": TIMEOUT_S}
        async with PythonChecker(crosshair_paths=0, **options) as checker:  # type: ignore[arg-type]
            return await asyncio.gather(
                *(checker.attack(code, r.code, function) for code, function, r in cases)
            )

    refuted: dict[str, int] = defaultdict(int)
    for (_, function, rewrite), verdict in zip(cases, asyncio.run(go()), strict=True):
        refuted[rewrite.rule] += verdict.kind == "refuted"
        if rewrite.keeps:
            assert verdict.kind == "not refuted", f"{function}, {rewrite}: {verdict}"
    for rule, keeps in RULES.items():
        assert keeps or refuted[rule] > 0, f"{rule} broke nothing"

"""The corpus: nothing wrong passes, nothing right fails. One jail for all of it, as in use."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import Counter

import pytest
from attacks import ATTACKS
from legitimate import CASES, PROGRAMS

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox import Execution, probe

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
pytestmark = jail


@pytest.fixture(scope="module")
def attacked() -> list[Verdict]:
    async def all_of_them() -> list[Verdict]:
        async with Judge() as judge:
            return await asyncio.gather(
                *[
                    judge.tests(
                        a.code, a.tests, setup=a.setup, entry=a.entry, timeout_s=a.timeout_s
                    )
                    for a in ATTACKS
                ]
            )

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def served() -> tuple[list[Verdict], list[Execution]]:
    async def all_of_them() -> tuple[list[Verdict], list[Execution]]:
        async with Judge(timeout_s=10) as judge:
            verdicts = await asyncio.gather(
                *[judge.tests(c.code, c.tests, setup=c.setup, entry=c.entry) for c in CASES]
            )
            runs = await asyncio.gather(*[judge.run(p.code, stdin=p.stdin) for p in PROGRAMS])
            return verdicts, runs

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("number", range(len(ATTACKS)), ids=lambda n: ATTACKS[n].name)
def test_attack_fails(number: int, attacked: list[Verdict]) -> None:
    attack, verdict = ATTACKS[number], attacked[number]
    assert verdict.status == "fail", verdict
    assert not attack.kinds or verdict.kind in attack.kinds, verdict


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: CASES[n].name)
def test_right_program_passes(number: int, served: tuple[list[Verdict], list[Execution]]) -> None:
    case = CASES[number]
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed")
    assert served[0][number].passed, served[0][number]


@pytest.mark.parametrize("number", range(len(PROGRAMS)), ids=lambda n: PROGRAMS[n].name)
def test_whole_program_prints(number: int, served: tuple[list[Verdict], list[Execution]]) -> None:
    program, run = PROGRAMS[number], served[1][number]
    assert (run.status, run.stdout) == ("ok", program.stdout), run


def test_corpus_is_as_large_as_promised(attacked: list[Verdict]) -> None:
    counts = Counter(a.category for a in ATTACKS)
    assert set(counts) == {"forgery", "resources", "host", "cross-execution", "parsers"}
    assert sum(counts.values()) >= 100 and min(counts.values()) >= 20
    assert len(CASES) + len(PROGRAMS) >= 60
    print(f"\nattacks: {dict(counts)}; legitimate: {len(CASES) + len(PROGRAMS)}")


def test_names_are_unique() -> None:
    assert len({(a.category, a.name) for a in ATTACKS}) == len(ATTACKS)
    assert len({c.name for c in CASES}) == len(CASES)

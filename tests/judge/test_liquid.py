"""Proofs of equivalence: what the whitelist lets through to Liquid Haskell, and what its answer is
taken to mean. None of it needs the tool; one test runs it where it is installed."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter

import liquid_cases
import pytest
from proofs import CHEATS, HONEST, OPERATOR_NAMED, PROOFS, WRONG, Proof

from sparring.judge import liquid
from sparring.judge.haskell import HaskellChecker, pair
from sparring.judge.haskell_source import Refused
from sparring.sandbox.haskell import probe
from sparring.types import Verdict

SAFE = "\x1b[92m\n**** LIQUID: SAFE (2 constraints checked) ****\x1b[0m\n"
needs_ghc = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")


def written(proof: Proof) -> str:
    both = pair(proof.p, proof.q, "f")
    return liquid.module(both.p, both.q, "f", both.signature, proof.proof)


class Says:
    """A prover of one opinion, which keeps what it was shown."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.shown: list[str] = []

    async def prove(self, text: str) -> Verdict:
        self.shown.append(text)
        return self.verdict


PROVED = Verdict("pass", "proved", "SAFE")


@pytest.mark.parametrize("proof", PROOFS, ids=[p.name for p in PROOFS])
def test_the_whitelist(proof: Proof) -> None:
    if proof.tool in ("", "ghc"):
        assert "lemma ::" in written(proof)
    else:
        with pytest.raises(Refused) as refusal:
            written(proof)
        assert proof.tool in str(refusal.value)


def test_there_are_enough_of_each() -> None:
    assert len(HONEST) >= 15 and len(WRONG) >= 10 and len(CHEATS) >= 40
    assert len({p.name for p in PROOFS}) == len(PROOFS)


@needs_ghc
def test_what_the_whitelist_lets_through_ghc_alone_compiles_or_refuses() -> None:
    async def go() -> dict[str, Verdict]:
        prover = Says(Verdict("fail", "unproved", "not today"))
        async with HaskellChecker(prover=prover) as checker:
            return {
                p.name: await checker.equivalent(p.p, p.q, "f", p.proof)
                for p in PROOFS
                if p.tool in ("", "ghc")
            }

    verdicts = asyncio.run(go())
    for proof in PROOFS:
        if proof.name in verdicts:
            kind = "compile" if proof.tool == "ghc" else "unproved"
            assert verdicts[proof.name].kind == kind, (proof.name, verdicts[proof.name])


def test_the_harness_owns_the_module() -> None:
    text = written(HONEST[0])
    assert text.splitlines()[:3] == [
        '{-@ LIQUID "--reflection" @-}',
        '{-@ LIQUID "--ple" @-}',
        '{-@ LIQUID "--ple-with-undecided-guards" @-}',
    ]
    assert "{-@ lemma :: x1:Integer -> { fP x1 == fQ x1 } @-}\nlemma :: Integer -> Proof\n" in text
    assert text.count("reflect") == 3 and text.count("import") == 1


def test_a_renamed_function_keeps_its_layout() -> None:
    p = "f :: Integer -> Integer\nf x = case x of 0 -> 1\n                _ -> f 0\n"
    both = pair(p, TAKEN, "f")
    text = liquid.module(both.p, both.q, "f", both.signature, "lemma _ = trivial")
    assert "fP\n  x = case x of 0 -> 1\n                _ -> fP" in text


def test_an_operator_cannot_be_renamed() -> None:
    both = pair(OPERATOR_NAMED, OPERATOR_NAMED, "+++")
    with pytest.raises(Refused, match="operator"):
        liquid.module(both.p, both.q, "+++", both.signature, "lemma _ = trivial")


TAKEN = "f :: Integer -> Integer\nf x = 1\n"


@pytest.mark.parametrize(
    ("code", "output", "status"),
    [
        (0, SAFE, "pass"),
        (1, SAFE, "fail"),
        (3, SAFE, "fail"),
        (124, SAFE, "fail"),
        (0, "", "fail"),
        (0, "**** LIQUID: SAFE (0 constraints checked) ****\n", "fail"),
        (0, "**** LIQUID: UNSAFE ****\n", "fail"),
        (0, SAFE + "**** LIQUID: UNSAFE ****\n", "fail"),
        (0, '  | "**** LIQUID: SAFE (2 constraints checked) ****"\n', "fail"),
        (0, "warning: **** LIQUID: SAFE (2 constraints checked) ****\n", "fail"),
        (0, "**** LIQUID: SAFE (2 constraints checked) **** or so\n", "fail"),
        (0, "**** LIQUID: SAFE (many constraints checked) ****\n", "fail"),
    ],
)
def test_safe_is_exit_zero_and_an_anchored_banner(code: int, output: str, status: str) -> None:
    assert liquid.ruling(code, output).status == status


@needs_ghc
def test_a_found_difference_overrules_the_proof() -> None:
    async def go() -> tuple[Verdict, Verdict, Verdict]:
        lie, truth = CHEATS[0], HONEST[0]
        async with HaskellChecker(prover=Says(PROVED)) as checker:
            refuted = await checker.equivalent(lie.p, lie.q, "f", "lemma _ = trivial")
            proved = await checker.equivalent(truth.p, truth.q, "f", truth.proof)
        void = Verdict("void", "liquid", "not here")
        async with HaskellChecker(prover=Says(void)) as checker:
            return refuted, proved, await checker.equivalent(truth.p, truth.q, "f", truth.proof)

    refuted, proved, missing = asyncio.run(go())
    assert refuted.kind == "soundness incident" and "SAFE" in refuted.detail
    assert proved.passed and proved.kind == "proved"
    assert missing.status == "void" and missing.kind == "liquid"


@needs_ghc
def test_without_liquid_haskell_a_proof_is_void_and_says_how_to_get_it() -> None:
    if shutil.which("z3"):
        pytest.skip("z3 is installed: the tool may be there")

    async def go() -> Verdict:
        async with HaskellChecker() as checker:
            return await checker.equivalent(HONEST[0].p, HONEST[0].q, "f", HONEST[0].proof)

    verdict = asyncio.run(go())
    assert verdict.status == "void" and "docs/haskell.md" in verdict.detail


def test_the_recorded_cases_are_handled_as_their_names_say() -> None:
    cases = liquid_cases.read_cases()
    if cases is None:
        pytest.skip("no cases.jsonl: set SPARRING_LIQUID_CASES to its folder; our own run above")
    counts: Counter[str] = Counter()
    accepted = set()
    for case in cases:
        verdict = judged(cases, case)
        counts[f"{case['name'].split('_')[0]} {verdict.status}"] += 1
        if verdict.passed:
            accepted.add(case["name"])
    print(f"\n{len(cases)} cases: {dict(sorted(counts.items()))}")
    ok = {case["name"] for case in cases if case["name"].startswith("ok_")}
    # Their lemmas say something else than p x == q x, or are about functions of functions.
    assert ok - accepted == {"ok_higher_order", "ok_natrec_metric"}
    assert not [name for name in accepted if name.startswith(("bad_", "cheat_"))]
    true_ones = {"sem_integer_succ", "sem_strictness", "sem_div_pos_true", "sem_mod_pos_true"}
    assert {name for name in accepted if name.startswith("sem_")} == true_ones


def judged(cases: list[dict[str, object]], case: dict[str, object]) -> Verdict:
    try:
        claim = liquid_cases.claim(str(case["source"]))
        both = pair(claim.p, claim.q, claim.function)
        text = liquid.module(both.p, both.q, claim.function, both.signature, claim.proof)
    except Refused as refusal:
        return Verdict("fail", refusal.kind, str(refusal))
    return asyncio.run(liquid_cases.Recorded(cases, case).prove(text))


def test_the_real_tool() -> None:
    async def go() -> list[Verdict] | str:
        tool = liquid.LiquidHaskell()
        missing = await tool.missing()
        if missing:
            return missing
        return [await tool.prove(written(p)) for p in [*HONEST, *WRONG] if p.tool == ""]

    found = asyncio.run(go())
    if isinstance(found, str):
        pytest.skip(found[:200])
    shown = [p for p in [*HONEST, *WRONG] if p.tool == ""]
    for proof, verdict in zip(shown, found, strict=True):
        assert verdict.passed == (proof in HONEST), (proof.name, verdict)

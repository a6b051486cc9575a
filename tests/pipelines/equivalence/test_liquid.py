"""Proofs of equivalence: what the rules let through to Liquid Haskell, and what its answer is
taken to mean. Where the tool is missing its answers are on record; where `SPARRING_LIQUID` names
it, it is asked, and it must work."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from functools import lru_cache

import liquid_cases
import pytest
from liquid_answers import Recorded, Written, compile_all, key, read_answers, write_all
from liquid_attacks import ATTACKS, CHANGED
from liquid_honest import HONEST as WAYS
from proofs import CHEATS, HONEST, OPERATOR_NAMED, PROOFS, WRONG, Proof

from sparring.core.types import Verdict
from sparring.pipelines.equivalence.judge import liquid, liquid_tool
from sparring.pipelines.equivalence.judge.haskell import HaskellChecker, pair
from sparring.pipelines.equivalence.judge.haskell_jail import probe
from sparring.pipelines.equivalence.judge.haskell_source import Refused

SAFE = "\x1b[92m\n**** LIQUID: SAFE (2 constraints checked) ****\x1b[0m\n"
needs_ghc = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
# Of what the rules let through, the tool is the judge; these it says no to.
WRONG_BY_TOOL = {"false", "no induction"}


@lru_cache(maxsize=1)
def written() -> dict[str, Written]:
    """Every proof of this folder, by its name, as far as it comes; GHC is started once for all."""
    shown = [*PROOFS, *WAYS, *ATTACKS, *CHANGED]
    made = asyncio.run(write_all(shown))
    return {f"{proof.tool} {proof.name}": one for proof, one in zip(shown, made, strict=True)}


def of(proof: Proof) -> Written:
    return written()[f"{proof.tool} {proof.name}"]


def answer(proof: Proof) -> str:
    """What the tool says, or said, of a proof that the rules let through."""
    draft = of(proof).draft
    assert draft is not None, (proof.name, of(proof).refusal)
    known = read_answers().get(key(draft.text))
    assert known is not None, f"{proof.name}: not on record; run liquid_answers.py with the tool"
    return known


class Says:
    """A prover of one opinion, which keeps what it was shown."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.shown: list[str] = []

    async def prove(self, text: str) -> Verdict:
        self.shown.append(text)
        return self.verdict


PROVED = Verdict("pass", "proved", "SAFE")


@needs_ghc
@pytest.mark.parametrize("proof", PROOFS, ids=[p.name for p in PROOFS])
def test_the_whitelist(proof: Proof) -> None:
    refusal = of(proof).refusal
    if proof.tool == "ghc":
        assert refusal in ("", "GHC cannot parse the module")
    elif proof.tool == "":
        assert refusal == ""
    else:
        assert proof.tool in refusal


def test_there_are_enough_of_each() -> None:
    assert len(HONEST) >= 15 and len(WRONG) >= 10 and len(CHEATS) >= 40
    assert len(WAYS) >= 50 and len(ATTACKS) >= 300 and len(CHANGED) >= 60
    for group in (PROOFS, WAYS, ATTACKS, CHANGED):
        assert len({p.name for p in group}) == len(group)


@needs_ghc
def test_honest_proofs_are_accepted() -> None:
    denied = [p.name for p in WAYS if not of(p).draft or answer(p) != "SAFE"]
    assert len(denied) <= len(WAYS) // 20, denied  # 95 % of them
    denied = [p.name for p in HONEST if answer(p) != "SAFE"]
    assert not denied


@needs_ghc
def test_no_attack_is_proved() -> None:
    """Each is refused by the rules, or the tool says no, or GHC alone does."""
    through = [p for p in ATTACKS if of(p).draft]
    believed = [p for p in through if answer(p) == "SAFE"]
    refused = asyncio.run(compile_all(believed))
    print(f"\n{len(ATTACKS)} attacks: {len(through)} let through, {len(believed)} called SAFE")
    assert not [p.name for p, why in zip(believed, refused, strict=True) if not why]


@needs_ghc
def test_proofs_of_changed_programs_are_refuted_or_unproved() -> None:
    """Honest proofs of pairs that were changed: what is called SAFE must still be true."""
    believed = [p for p in CHANGED if of(p).draft and answer(p) == "SAFE"]

    async def go() -> dict[str, Verdict]:
        async with HaskellChecker(prover=Recorded()) as checker:
            return {p.name: await checker.attack(p.p, p.q, p.function) for p in believed}

    verdicts = asyncio.run(go())
    assert len(believed) < len(CHANGED) // 4
    assert not {name: v for name, v in verdicts.items() if v.kind == "refuted"}


@needs_ghc
def test_what_the_whitelist_lets_through_ghc_alone_compiles_or_refuses() -> None:
    shown = [p for p in PROOFS if of(p).draft and p.tool in ("", "ghc")]
    for proof, why in zip(shown, asyncio.run(compile_all(shown)), strict=True):
        assert bool(why) == (proof.tool == "ghc"), (proof.name, why)


def draft(proof: Proof) -> liquid.Draft:
    both = pair(proof.p, proof.q, "f")
    return liquid.draft(both.p, both.q, "f", both.signature, proof.proof)


def test_the_harness_owns_the_module() -> None:
    text = draft(HONEST[0]).text
    assert text.splitlines()[:3] == [
        '{-@ LIQUID "--reflection" @-}',
        '{-@ LIQUID "--ple" @-}',
        '{-@ LIQUID "--ple-with-undecided-guards" @-}',
    ]
    stated = "{-@ my_lemma :: my_x1:Integer -> { ((my_fP my_x1) == (my_fQ my_x1)) } @-}"
    assert f"{stated}\nmy_lemma :: Integer -> Proof\n" in text
    assert text.count("reflect") == 3 and text.count("import") == 1


def test_names_of_the_proof_mean_nothing_to_the_tool() -> None:
    q = "f :: Integer -> Integer\nf x = len [x]\nlen :: [Integer] -> Integer\nlen _ = 0\n"
    made = draft(Proof("", TAKEN, q, "lemma x = trivial ? len [x]", ""))
    assert "{-@ reflect my_len @-}" in made.text and " len" not in made.text
    assert made.spelling.plain("Equivalence.my_len is wrong, and so is my_x") == (
        "len is wrong, and so is x"
    )


def test_a_renamed_function_keeps_its_layout() -> None:
    p = "f :: Integer -> Integer\nf x = case x of 0 -> 1\n                _ -> f 0\n"
    text = draft(Proof("", p, TAKEN, "lemma _ = trivial", "")).text
    lines = [line for line in text.splitlines() if "->" in line and "::" not in line]
    assert [line.index(first) for line, first in zip(lines, "0_", strict=True)] == [80, 80]


def test_an_operator_is_no_function_to_judge_but_a_helper_by_another_name() -> None:
    both = pair(OPERATOR_NAMED, OPERATOR_NAMED, "+++")
    with pytest.raises(Refused, match="operator"):
        liquid.draft(both.p, both.q, "+++", both.signature, "lemma _ = trivial")
    text = draft(next(p for p in HONEST if p.name == "operator")).text
    assert "`op_0`" in text and "+++" not in text


def test_strings_are_lists_to_the_logic() -> None:
    p = 'f :: Integer -> String\nf x = "a\\n\'\\"\\1234b"\n'
    text = draft(Proof("", p, p, "lemma _ = trivial", "")).text
    assert "['a','\\n','\\'','\"','\\1234','b']" in text


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
    assert liquid_tool.ruling(code, output).status == status


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


NEEDLES = {
    "a square": ("if x * x == 152415787532388367501905199875019052100 then 1 else 0", "Integer"),
    "a cube": ("if x * x * x == 1860867 then 1 else 0", "Integer"),
    "a line": ("if 7 * x + 5 == 86419751 then 1 else 0", "Integer"),
    "an inverse": ("if x * 3 == 1 then 1 else 0", "Int"),
    "another inverse": ("if x * 7 == 12345 then 1 else 0", "Int"),
    "the most": ("if x > 9223372036854775806 then 1 else 0", "Int"),
    "the least": ("if x - 1 > x then 1 else 0", "Int"),
    "a sum of constants": ("if x == 123456 + 654321 then 1 else 0", "Integer"),
}  # fmt: skip


@needs_ghc
def test_a_proved_pair_is_attacked_with_inputs_made_for_it() -> None:
    async def go() -> dict[str, str]:
        found = {}
        async with HaskellChecker(prover=Says(PROVED)) as checker:
            for name, (body, type_) in NEEDLES.items():
                p = f"f :: {type_} -> {type_}\nf x = {body}\n"
                q = f"f :: {type_} -> {type_}\nf x = 0\n"
                thorough = await checker._attack(pair(p, q, "f"), thorough=True)
                found[name] = thorough.kind
        return found

    assert asyncio.run(go()) == dict.fromkeys(NEEDLES, "refuted")


@needs_ghc
def test_without_liquid_haskell_a_proof_is_void_and_says_how_to_get_it() -> None:
    if shutil.which("z3"):
        pytest.skip("z3 is installed: the tool may be there")

    async def go() -> Verdict:
        async with HaskellChecker() as checker:
            return await checker.equivalent(HONEST[0].p, HONEST[0].q, "f", HONEST[0].proof)

    verdict = asyncio.run(go())
    assert verdict.status == "void" and "docs/haskell.md" in verdict.detail


@needs_ghc
def test_the_recorded_cases_are_handled_as_their_names_say() -> None:
    cases = liquid_cases.proofs()
    if not cases:
        pytest.skip("no cases.jsonl: set SPARRING_LIQUID_CASES to its folder; our own run above")
    made = asyncio.run(write_all(cases))
    answers = read_answers()
    counts: Counter[str] = Counter()
    accepted = set()
    for case, one in zip(cases, made, strict=True):
        safe = one.draft is not None and answers[key(one.draft.text)] == "SAFE"
        counts[f"{case.name.split('_')[0]} {'proved' if safe else 'not'}"] += 1
        if safe:
            accepted.add(case.name)
    print(f"\n{len(cases)} cases: {dict(sorted(counts.items()))}")
    ok = {case.name for case in cases if case.name.startswith("ok_")}
    # Their lemmas say something else than p x == q x, or are about functions of functions.
    assert ok - accepted <= {"ok_higher_order", "ok_natrec_metric"}
    # That module forgot to reflect a function of a true equation; the harness reflects them all.
    wrong = accepted - {"bad_unreflected"}
    assert not [name for name in wrong if name.startswith(("bad_", "cheat_"))]
    true_ones = {"sem_integer_succ", "sem_strictness", "sem_div_pos_true", "sem_mod_pos_true"}
    assert {name for name in accepted if name.startswith("sem_")} <= true_ones | {"sem_char_show"}


def test_the_real_tool() -> None:
    """Through the path that games use. Asked for by name, the tool must be there."""
    truths = [HONEST[0], HONEST[4], HONEST[5], *WAYS[:6]]
    lies = [p for p in WRONG if p.name in WRONG_BY_TOOL]

    async def go() -> tuple[str, list[Verdict]]:
        async with HaskellChecker() as checker:
            wrong = await checker.self_check()
            if wrong:
                return wrong, []
            asked = (checker.equivalent(p.p, p.q, "f", p.proof) for p in (*truths, *lies))
            return "", list(await asyncio.gather(*asked))

    wrong, found = asyncio.run(go())
    if wrong and liquid_tool.COMMAND in os.environ:
        pytest.fail(f"{liquid_tool.COMMAND} is set, and {wrong}")
    if wrong:
        pytest.skip(f"{wrong[:200]}; its recorded answers are used above")
    kinds = ["proved"] * len(truths) + ["unproved"] * len(lies)
    assert [v.kind for v in found] == kinds, found

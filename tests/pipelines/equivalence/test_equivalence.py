"""The game of equivalence, with voices that are written down and a checker that is real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.game import opened
from sparring.core.scripted import ScriptedEngine
from sparring.core.types import Episode, Request, Task, Verdict
from sparring.judge.sandbox import probe
from sparring.pipelines.equivalence import prompts as words
from sparring.pipelines.equivalence.judge.purity import MODULES
from sparring.pipelines.equivalence.programs import unchanged
from sparring.pipelines.equivalence.teacher import rejections, round_stats
from sparring.run.games import load_game

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
P = "def f(n: int) -> int:\n    return n * 2\n"
SAME = "```python\ndef f(n: int) -> int:\n    return n + n\n```"
OTHER = "```python\ndef f(n: int) -> int:\n    return n * n\n```"
TASK = Task("t", data={"code": P, "function": "f"})
OPTIONS: dict[str, Any] = {
    "crosshair_paths": 0,
    "allow_unrefuted": True,
    "inputs": 10,
    "samples": 4,
}


def play(
    alice: list[str] | None,
    bob: Callable[[Request], str] = lambda request: "yes",
    task: Task = TASK,
    seed: int = 0,
    before: Callable[[Any], None] | None = None,
    seating: dict[str, str] | None = None,
    **options: Any,
) -> Episode:
    game = load_game("equivalence", **{**OPTIONS, **options})
    said = iter(alice or [])
    scripts = {"alice": lambda request: next(said), "bob": bob}
    seating = seating or {"alice": "alice" if alice is not None else "scripted", "bob": "bob"}
    job = Job("1", "equivalence", game, task, seed, seating)

    async def go() -> list[Episode]:
        async with opened([game], "bubblewrap"):
            if before:
                before(game)
            return await collect([job], ScriptedEngine(scripts).act)

    return asyncio.run(go())[0]


@jail
@pytest.mark.parametrize("right", [9, 8, 7])  # 10 × (1 − 0.9) is less than 1, and no bin of 1
def test_difficulty_of_ten_samples_is_a_whole_number(right: int) -> None:
    answers = iter(["yes"] * right + ["no"] * (10 - right))
    episode = play([SAME], lambda request: next(answers), share=1.0, samples=10)
    assert episode.facts["difficulty"] == 10 - right


@jail
def test_an_equivalence_is_judged_in_both_orders_and_pays_by_difficulty() -> None:
    heard: list[str] = []

    def bob(request: Request) -> str:
        heard.append(request.messages[-1]["content"])
        return ["yes", "Yes.", "no", "I think yes"][len(heard) - 1]

    episode = play([SAME], bob, share=1.0)
    facts = episode.facts
    assert (facts["end"], facts["branch"], facts["evidence"]) == ("accepted", "seq", "not refuted")
    assert (facts["successes"], facts["unparseable"], facts["difficulty"]) == (2, 1, 5.0)
    assert episode.rewards == {"alice": 0.5, "bob": 0.5}
    first = [text.index("n * 2") < text.index("n + n") for text in heard]
    assert sorted(first) == [False, False, True, True]
    assert all(turn.seat == "bob" for turn in episode.turns[1:])
    assert (
        f"Target difficulty, from 0 (everyone sees it) to 10 (nobody): {facts['target']:g}"
        in (facts["alice_prompt"])
    )


@jail
def test_an_inequivalence_needs_an_input_that_shows_it() -> None:
    episode = play([OTHER + "\nINPUT: [3]"], lambda request: "no", share=0.0)
    assert (episode.facts["branch"], episode.facts["evidence"]) == ("sinq", "differ")
    assert episode.facts["difficulty"] == 0 and episode.facts["input"] == "[3]"


@jail
def test_refusals_are_told_and_kept_and_three_tries_are_all() -> None:
    heard: list[str] = []

    def before(game: Any) -> None:
        assert game.tries == 3

    replies = ["no block at all", OTHER + "\nINPUT: [2]", SAME + "\nINPUT: [1]"]
    episode = play(replies, share=0.0, before=before)
    assert episode.facts["end"] == "rejected" and episode.rewards == {"alice": -1, "bob": 0}
    kinds = [refused["kind"] for refused in episode.facts["rejected"]]
    assert kinds == ["form", "same", "same"]
    heard = [turn.prompt for turn in episode.turns]
    assert "no closed ```python block" in heard[1] and "on [2] both: 4" in heard[2]
    mended = play([OTHER + "\nINPUT: [2]", OTHER + "\nINPUT: [5]"], share=0.0)
    assert mended.facts["end"] == "accepted" and mended.facts["tries"] == 2
    assert len(mended.facts["rejected"]) == 1


@jail
def test_p_itself_is_no_rewrite_of_p() -> None:
    same = P.replace("return ", "return (").rstrip() + ")  # not the same, whoever looks closely\n"
    said = [P, same, P.replace(":\n", ':\n    """Otherwise than P."""\n', 1)]
    episode = play([words.written("python", q) for q in said], share=1.0)
    refused = episode.facts["rejected"]
    assert [row["kind"] for row in refused] == ["unchanged"] * 3
    assert [row["q"].strip() for row in refused] == [q.strip() for q in said]


def test_spaces_that_make_another_program_make_another_q() -> None:
    p = "def f(n: int) -> int:\n    m = 0\n    for i in range(n):\n        m += i\n    return m\n"
    assert unchanged(p, p.replace("m += i", "m  +=  i  # as before"), "python")
    assert not unchanged(p, p.replace("    return", "        return"), "python")
    texts = [f"def f(s: str) -> str:\n    return s + 'a{gap}b'\n" for gap in (" ", "  ")]
    assert not unchanged(*texts, "python")
    texts = [f'f :: String -> String\nf s = s ++ "a{gap}b"\n' for gap in (" ", "  ")]
    assert not unchanged(*texts, "haskell")


def test_haskell_is_the_same_whatever_its_comments_say() -> None:
    p = "f :: Int -> Int\nf n = n + 1\n"
    assert unchanged(p, "f :: Int->Int -- no {- P\nf n = n {- . -} +1", "haskell")
    assert unchanged(p, "{-# LANGUAGE LambdaCase #-}\n" + p, "haskell")
    assert not unchanged(p, p.replace("n + 1", "1 + n"), "haskell")
    assert not unchanged(p, p + "{- without an end", "haskell")


@jail
def test_what_is_not_refuted_counts_only_where_that_is_allowed() -> None:
    episode = play([SAME] * 3, share=1.0, allow_unrefuted=False)
    assert episode.facts["end"] == "rejected"
    assert {r["kind"] for r in episode.facts["rejected"]} == {"not refuted"}


@jail
@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"code": "def f(n):\n    return n"}, "type"),
        ({"code": "def f(n: int) -> int:\n    print(n)\n    return n"}, "not pure"),
        ({"code": "def f(:"}, "type"),
    ],
)
def test_programs_that_cannot_be_used_void_their_game_by_name(
    data: dict[str, str], why: str
) -> None:
    episode = play([SAME], task=Task("bad", data=data))
    assert episode.void is not None and why in episode.void and "task bad" in episode.void


@jail
def test_a_broken_checker_voids_and_an_unsteady_q_is_only_refused() -> None:
    def broken(game: Any) -> None:
        async def equivalent(*given: Any) -> Verdict:
            return Verdict("void", "jail", "it broke")

        game.judge.equivalent = equivalent

    assert "it broke" in str(play([SAME], share=1.0, before=broken).void)

    def unsteady(game: Any) -> None:
        async def equivalent(*given: Any) -> Verdict:
            return Verdict("void", "not deterministic", "two runs differ")

        game.judge.equivalent = equivalent

    episode = play([SAME] * 3, share=1.0, before=unsteady)
    assert episode.void is None and episode.facts["end"] == "rejected"


@jail
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_scripted_alice_is_always_right(share: float) -> None:
    episode = play(None, share=share, task=Task("s", data={"code": P, "function": "f"}))
    assert episode.facts["end"] == "accepted" and episode.facts["rule"]
    assert (episode.facts["input"] is None) == (share == 1.0)


@jail
def test_programs_can_hold_both_seats_as_a_warm_start_of_alice_has_them() -> None:
    seating = {"alice": "scripted", "bob": "scripted"}
    episode = play(None, seating=seating, samples=8, share=1.0, work=0)
    assert episode.facts["end"] == "accepted" and episode.facts["unparseable"] == 0
    assert {a["answer"] for a in episode.facts["answers"]} == {True, False}


HASKELL = Task("h", data={"code": "f :: Int -> Int\nf x = x + 1\n", "function": "f"})


class FakeHaskell:
    """Stands in for GHC and Liquid Haskell; `ruling` says what becomes of a proof."""

    def __init__(self, ruling: Callable[[str], Verdict], provable: bool = True) -> None:
        self.ruling, self.fine = ruling, provable

    async def compiles(self, p: str, function: str) -> Verdict:
        return Verdict("pass", "compiles")

    async def provable(self, p: str, function: str) -> Verdict:
        return Verdict("pass" if self.fine else "fail", "provable")

    async def diverges(self, p: str, q: str, function: str, input: str) -> Verdict:
        return Verdict("pass", "differ")

    async def equivalent(self, p: str, q: str, function: str, proof: str) -> Verdict:
        return self.ruling(proof.strip())

    async def __aexit__(self, *error: object) -> None:
        pass


def play_haskell(
    alice: list[str] | None,
    ruling: Callable[[str], Verdict],
    provable: bool = True,
    seating: dict[str, str] | None = None,
) -> Episode:
    def before(game: Any) -> None:
        game.judge = FakeHaskell(ruling, provable)

    return play(alice, task=HASKELL, share=1.0, language="haskell", before=before, seating=seating)


@jail
def test_a_proof_that_an_input_contradicts_is_an_incident_and_trains_nobody() -> None:
    code, proof = "```haskell\nf :: Int -> Int\nf x = 1 + x\n```", "```haskell\nlemma _ = ()\n```"
    told = Verdict("fail", "soundness incident", "SAFE, and yet f 3: P gives 4, Q gives 5")
    episode = play_haskell([code, proof], lambda _: told)
    assert episode.void is not None and episode.void.startswith("soundness incident: SAFE")
    [row] = rejections([episode])
    assert row["kind"] == "soundness incident"
    assert round_stats([episode], [], [])["incidents"] == 1


@jail
@pytest.mark.parametrize("alice", ["scripted", "perfect"])
def test_a_scripted_alice_does_not_repeat_a_proof_that_failed(alice: str) -> None:
    asked: list[str] = []

    def ruling(proof: str) -> Verdict:
        asked.append(proof)
        return Verdict("fail", "unproved", "no")

    episode = play_haskell(None, ruling, seating={"alice": alice, "bob": "bob"})
    assert episode.facts["end"] == "rejected"
    by_q: dict[str, list[str]] = {}
    for row in episode.facts["rejected"]:
        if row.get("proof"):
            by_q.setdefault(row["q"], []).append(row["proof"])
    assert asked and all(len(set(tried)) == len(tried) for tried in by_q.values())


@jail
def test_a_program_that_cannot_be_proved_about_is_not_played() -> None:
    code = "```haskell\nf :: Int -> Int\nf x = x\n```\nINPUT: 3"
    episode = play_haskell([code], lambda _: Verdict("fail", "proof"), provable=False)
    assert episode.void is not None and "cannot be proved about" in episode.void


def test_both_branches_are_drawn_from_what_can_be_proved_about() -> None:
    """Else a program that cannot be proved about would always be inequivalent."""
    game = load_game("equivalence", language="haskell")
    tasks = [Task(str(n), data={"code": ""}) for n in range(10)]
    assert all(game.suited(tasks, seed) == tasks for seed in range(20))
    game.provable = frozenset({"3", "7"})
    drawn = {game.branch(seed)[0]: game.suited(tasks, seed) for seed in range(20)}
    assert [t.id for t in drawn["seq"]] == ["3", "7"] and drawn["sinq"] == drawn["seq"]


@jail
def test_haskell_asks_for_a_proof_and_feeds_the_prover_back() -> None:
    asked: list[str] = []

    def ruling(proof: str) -> Verdict:
        asked.append(proof)
        good = proof == "lemma x = ()"
        return Verdict("pass", "proved") if good else Verdict("fail", "unsafe", "line 3")

    code = "```haskell\nf :: Int -> Int\nf x = 1 + x\n```"
    proofs = ["```haskell\nlemma x = undefined\n```", "none", "```haskell\nlemma x = ()\n```"]
    episode = play_haskell([code, *proofs], ruling)
    assert episode.facts["evidence"] == "proved" and episode.facts["proof"].startswith("lemma")
    assert [r["kind"] for r in episode.facts["rejected"]] == ["unsafe", "form"]
    assert asked == ["lemma x = undefined", "lemma x = ()"]
    assert "fP" in episode.turns[1].prompt and "line 3" in episode.turns[2].prompt


def test_answers_are_read_strictly() -> None:
    assert [words.read_answer(t, "short") for t in ("yes", " No.\n", "YES")] == [True, False, True]
    for text in ("", "yes!", "yes, they are", "ANSWER: yes", "I say no", "maybe"):
        assert words.read_answer(text, "short") is None
    assert words.read_answer("Hm.\nANSWER: no", "reason") is False
    for text in ("ANSWER: no\nor so", "ANSWER: No", "answer: no", "no", "ANSWER: maybe"):
        assert words.read_answer(text, "reason") is None
    for style in ("short", "reason", "terse"):
        for truth in (True, False):
            assert words.read_answer(words.bob_output(truth, style), style) is truth


def test_proposals_are_read_strictly() -> None:
    made = words.written("python", P, "[1]")
    found = words.read_proposal(made, "python", words.SINQ)
    assert (found.q.strip(), found.input, found.wrong) == (P.strip(), "[1]", "")
    assert words.read_proposal(made.split("\nINPUT")[0], "python", words.SINQ).wrong
    assert words.read_proposal(P, "python", words.SEQ).wrong
    assert words.read_proposal("```python\nx = 1", "python", words.SEQ).wrong


def test_options_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="python"):
        load_game("equivalence", language="pyton")
    with pytest.raises(ValueError, match=r"samples: .* greater than or equal to 1"):
        load_game("equivalence", samples=0)
    assert load_game("equivalence", language="haskell").problems == "equivalence_haskell"


def test_a_missing_tool_is_named_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "sparring.pipelines.equivalence.judge.inputs.util.find_spec", lambda name: None
    )
    with pytest.raises(ConfigError, match=r"hypothesis.*pip install"):
        load_game("equivalence").check(TASK)
    load_game("equivalence", language="haskell").check(TASK)


def test_alice_is_told_of_every_module_that_she_may_use() -> None:
    prompt = words.alice_prompt("python", "seq", "def f(x: int) -> int:\n    return x\n", "f", 2)
    told = (
        prompt.partition("no module but ")[2].partition(".")[0].replace(" and ", ", ").split(", ")
    )
    assert sorted(told) == sorted(MODULES.keys() - {"__future__"})

"""Terse Alices and Bobs, who see and write only what a function returns."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lives import train
from test_equivalence import jail, play

from sparring.core.types import Episode, Request, Task
from sparring.pipelines.equivalence import prompts as words
from sparring.pipelines.equivalence.exam import load_pairs
from sparring.pipelines.equivalence.game import _sayable, script
from sparring.pipelines.equivalence.teacher import alice_records, bob_records
from sparring.run.rundir import read_episodes, read_lines
from sparring.tasks import load_tasks

HEAD = "def f(x: int) -> int:"
P = f"{HEAD}\n    return x * 2\n"
TASK = Task("t", data={"code": P, "function": "f"})
TERSE: dict[str, Any] = {
    "style": "terse",
    "targets": (8,),
    "task": TASK,
    "tries": 1,
    "inputs": 0,
    "work": 1000,
}


@jail
def test_alice_writes_what_q_returns_and_bob_sees_what_both_return() -> None:
    heard: list[tuple[str, ...]] = []

    def bob(request: Request) -> str:
        heard.append(tuple(message["content"] for message in request.messages))
        return "y"

    episode = play(["x + x"], bob, share=1.0, samples=2, **TERSE)
    assert episode.facts["q"] == f"{HEAD}\n    return x + x\n"
    assert episode.facts["alice_prompt"] == "x * 2\n=8\n" and episode.facts["difficulty"] == 0
    [record] = alice_records(episode, "terse")
    assert (record["user_prompt"], record["output"]) == ("x * 2\n=0\n", "x + x")
    refused = play(["x + x;3"], share=1.0, **TERSE).facts["rejected"]
    assert [row["kind"] for row in refused] == ["form"]
    assert sorted(heard) == [("x * 2\nx + x\n",), ("x + x\nx * 2\n",)]


@jail
def test_what_tells_them_apart_follows_and_is_tried() -> None:
    told = play(["x * x;3"], lambda request: "y", share=0.0, **TERSE)
    assert (told.facts["end"], told.facts["input"]) == ("accepted", "[3]")
    assert told.facts["difficulty"] == 10
    for said, kind in (("x * x;2", "same"), ("x * x", "form"), ("x *;2", "syntax")):
        refused = play([said], share=0.0, **TERSE).facts["rejected"]
        assert [row["kind"] for row in refused] == [kind]
    [record] = alice_records(told, "terse")
    assert (record["user_prompt"], record["output"]) == ("x * 2\n!10\n", "x * x;3")
    assert record["system_prompt"] == ""
    asked = [(r["user_prompt"], r["output"]) for r in bob_records(told, "terse")]
    assert asked == [("x * 2\nx * x\n", "n"), ("x * x\nx * 2\n", "n")]


@jail
def test_the_perfect_bob_says_what_the_checker_found() -> None:
    seating = {"alice": "perfect", "bob": "perfect"}
    for share, style in ((0.0, "terse"), (1.0, "terse"), (1.0, "short"), (1.0, "reason")):
        facts = play(None, seating=seating, share=share, **TERSE | {"style": style}).facts
        assert (facts["end"], facts["successes"], facts["difficulty"]) == ("accepted", 4, 0)


@jail
@pytest.mark.parametrize("style", ["terse", "short", "reason"])
def test_a_bob_who_draws_his_answer_gives_one_that_is_read(style: str) -> None:
    seating = {"alice": "perfect", "bob": "random"}
    facts = play(None, seating=seating, share=1.0, **TERSE | {"style": style}).facts
    assert facts["end"] == "accepted" and facts["unparseable"] == 0


def test_a_program_of_several_lines_is_shown_and_asked_for_in_whole() -> None:
    p = "def f(x: int) -> int:\n    y = x\n    return y\n"
    assert words.terse_line(p, "terse") is None and words.terse_line(P, "short") is None
    assert words.bob_prompt("python", "terse", p, P) == f"{p}{P}"
    assert "Answer with the whole of Q" in words.alice_prompt("python", "seq", p, "f", 2, "terse")
    # Without the types, what differs in them would look the same.
    other = P.replace("x: int", "x: float")
    assert words.bob_prompt("python", "terse", P, other) == P + other


def test_what_a_program_says_for_alice_is_read_as_it_was_written() -> None:
    line = (HEAD, "x * 2")
    rewrites = [q for _, q in script("python", P, "f", False, random.Random(0))]
    sayable = [q for q in rewrites if _sayable(q, line, set())]
    # One rule writes a special case in front, in two lines more.
    assert 5 > len(rewrites) - len(sayable) > 0 and not _sayable(P, line, {P.strip()})
    for q in sayable:
        said = words.written("python", q, "[-3]", line)
        found = words.read_proposal(said, "python", words.SINQ, line)
        assert said.endswith(";-3") and (found.q, found.input, found.wrong) == (q, "[-3]", "")


@jail
def test_nano_imitates_both_seats_and_plays_its_rounds(tmp_path: Path) -> None:
    life = train("equivalence-nano", tmp_path / "run", "iterations=1", "collect.episodes=3")
    assert life.code == 0, life.err
    first, last = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert first["imitation/lessons"] == 4 + 2 * 2  # games of Alice; of Bob, asked twice in each
    assert (last["equivalence/games"], last["equivalence/void"]) == (3, 0)
    shown = {turn.text for episode in games(tmp_path, "bob") for turn in episode.turns[1:]}
    assert shown <= {"y", "n"} and len(games(tmp_path, "alice")) == 4
    for episode in games(tmp_path, "alice"):
        told = episode.facts["input"]
        assert (told is None) is (episode.facts["branch"] == "seq")
        assert episode.turns[0].text.partition(";")[2] == (told or "[]")[1:-1]


def games(path: Path, seat: str) -> list[Episode]:
    return read_episodes(path / "run" / "imitation" / f"{seat}.jsonl.gz")


def value(program: str, x: int) -> object:
    """What a shipped line gives, by plain Python, with its type."""
    space: dict[str, object] = {}
    exec(program, space)
    try:
        result = space["f"](x)  # type: ignore[operator]
    except ZeroDivisionError:
        return ZeroDivisionError
    return type(result), result


def test_the_shipped_lines_are_single_and_their_pairs_are_what_they_say() -> None:
    rows = {split: load_tasks("shipped:equivalence_lines", split) for split in ("train", "test")}
    lines = {split: {row.data["code"] for row in of} for split, of in rows.items()}
    assert not lines["train"] & lines["test"]
    assert all(words.terse_line(p, "terse") for split in lines.values() for p in split)
    pairs = load_pairs("shipped:pairs_lines", "python")
    assert sum(pair.equivalent for pair in pairs) == len(pairs) / 2 > 100
    for pair in pairs:
        assert pair.p in lines["test"]
        same = all(value(pair.p, x) == value(pair.q, x) for x in range(-60, 60))
        assert same is pair.equivalent, pair


def test_both_branches_weigh_the_same_in_the_difficulty_that_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from test_evidence import load

    pairs = load("pairs", monkeypatch)
    felt = (("seq", 2.0), ("seq", 4.0), ("sinq", 9.0), ("sinq", 9.0), ("sinq", 9.0))
    episodes = [
        SimpleNamespace(facts={"end": "accepted", "branch": branch, "difficulty": difficulty})
        for branch, difficulty in felt
    ]
    episodes.append(SimpleNamespace(facts={"end": "rejected", "branch": "seq"}))
    # 3 and 9; the spread of 2 and 4 is √2, so that 1.96 × √2 / √2 reaches 1.96, half of it for both
    assert pairs.show(*pairs.both(pairs.by_branch(episodes))) == "6.00 ± 0.98"

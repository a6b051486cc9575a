"""Eleven arms on one question: how they are asked, scored and rewarded."""

from __future__ import annotations

import asyncio

import pytest

from sparring.core.collect import Job, play
from sparring.core.types import Request, Task, Turn
from sparring.judge import math
from sparring.pipelines.coherent_math.game import (
    ARMS,
    TEMPERATURES,
    Arm,
    CoherentMath,
    reasoning_of,
)
from sparring.pipelines.coherent_math.questions import ASK
from sparring.run.games import load_game

TASK = Task("t", "coherent_math", {"question": "What is 2 + 2?", "answer": "2 + 2 = 4\n#### 4"})


def asked(game: CoherentMath, say) -> tuple[object, list[Request]]:
    requests: list[Request] = []

    async def speak(request: Request) -> Turn:
        requests.append(request)
        text = say(request.seat)
        return Turn(request.seat, request.policy, "", text, token_ids=[1] * len(text.split()))

    job = Job("j", "coherent_math", game, TASK, 0, dict.fromkeys(game.seats, "main"))
    return asyncio.run(play(job, speak)), requests


def test_the_arms_are_eight_of_variance_and_three_probes():
    assert len(ARMS) == 11 and tuple(ARMS) == CoherentMath.seats
    for style in ("wolfram", "maudlin"):
        four = [ARMS[f"{style}_{i}"] for i in range(4)]
        assert tuple(arm.temperature for arm in four) == TEMPERATURES == (0.2, 0.3, 0.4, 0.5)
        assert len({arm.prompt for arm in four}) == 1
    assert ARMS["wolfram_standard"].prompt == ASK
    assert "restate" in ARMS["wolfram_rephrase"].prompt and "trap" in ARMS["maudlin_cf1"].prompt


def test_each_arm_is_asked_its_own_way():
    _, requests = asked(CoherentMath(), lambda seat: "#### 4")
    assert [r.seat for r in requests] == list(ARMS)
    assert [r.sampling.temperature for r in requests] == [arm.temperature for arm in ARMS.values()]
    prompts = {r.messages[0]["content"] for r in requests}
    assert len(prompts) == 5 and all(p.startswith("What is 2 + 2?") for p in prompts)
    _, terse = asked(CoherentMath(style="terse"), lambda seat: "#### 4")
    assert terse[0].messages[0]["content"] == "W What is 2 + 2?"


def test_the_right_and_coherent_earn_more():
    def say(seat: str) -> str:
        if seat == "maudlin_cf1":
            return "who knows"
        return "2 + 2 makes 5\n#### 5" if seat.startswith("wolfram_0") else "2 + 2 makes 4\n#### 4"

    episode, _ = asked(CoherentMath(), say)
    assert episode.void is None and len(episode.verdicts) == 11
    by_arm = {t["arm"]: t for t in episode.facts["trajectories"]}
    right, wrong, silent = (by_arm[a] for a in ("wolfram_1", "wolfram_0", "maudlin_cf1"))
    assert right["correct"] and not wrong["correct"] and not silent["correct"]
    assert right["s_end"] == pytest.approx(8 / 10) and wrong["s_end"] == 0
    assert right["s_cf"] == pytest.approx(8 / 10) and silent["s_cf"] == 0
    assert right["reward"] > wrong["reward"] > 0
    assert right["reward"] == pytest.approx(1 + 0.5 * right["s_wm"] - 0.1 * 7 / 256, abs=1e-5)
    assert right["reasoning"] == "2 + 2 makes 4" and right["answer"] == "4"
    scores = episode.facts["scores"]
    assert scores["s_end"] == pytest.approx(36 / 55, abs=1e-6)
    assert scores["stability"] == 1.0 and scores["correct"] == pytest.approx(9 / 11)
    assert episode.rewards["wolfram_1"] == right["reward"]


def test_arms_agree_by_answers_that_are_read_and_right_ones_whatever_their_form():
    """Right arms share their answer, and a hedge is none: it was equal to the same hedge."""
    told = {"wolfram_0": "#### 2^2", "wolfram_1": "#### 400%", "wolfram_2": "#### 5 or 6"}
    told["wolfram_3"] = told["wolfram_2"]
    episode, _ = asked(CoherentMath(arms=[*told]), told.__getitem__)
    arms = {t["arm"]: t for t in episode.facts["trajectories"]}
    assert [t["correct"] for t in arms.values()] == [True, True, False, False]
    assert [t["s_end"] for t in arms.values()] == pytest.approx([1 / 3, 1 / 3, 0, 0], abs=1e-5)
    assert [t["s_cf"] for t in arms.values()] == pytest.approx([1 / 3, 1 / 3, 0, 0], abs=1e-5)


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("#### Step 1: add\n2 + 2 = 4\n#### 2. Halve\n4 / 2 = 2\n#### 2", "2 + 2 = 4\n\n4 / 2 = 2"),
        ("2 + 2 = 4 #### 4", "2 + 2 = 4"),
        ("#### 4\n#### 4\n#### 4", ""),
        ("It is \\boxed{4}", "It is \\boxed{4}"),
    ],
)
def test_reasoning_is_what_stands_before_the_answer(text: str, reasoning: str):
    assert reasoning_of(text) == reasoning


def test_a_broken_grader_voids_the_game(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(math.util, "find_spec", lambda name: None)
    episode, _ = asked(CoherentMath(), lambda seat: "\\boxed{\\sqrt{16}}")
    assert episode.void is not None and "math-verify" in episode.void


def test_an_arm_more_is_an_entry_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ARMS, "wolfram_4", Arm(ARMS["wolfram_0"].prompt, 0.6))
    game = CoherentMath()
    assert len(game.arms) == 12


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"arms": ["wolfram_0"]}, "two arms or more"),
        ({"arms": ["wolfram_0", "wolfram_9"]}, "no arm 'wolfram_9'"),
        ({"length_scale": 0}, "length_scale"),
    ],
)
def test_wrong_options_are_named(options: dict, said: str):
    with pytest.raises(ValueError, match=said):
        load_game("coherent_math", **options)

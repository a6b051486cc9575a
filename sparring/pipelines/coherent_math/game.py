"""Coherent mathematics: eleven arms of one policy on one question, rewarded for being right first
and for holding together second."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from sparring.core.answers import check_style
from sparring.core.errors import nearest
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Task, Turn, Verdict, VoidGame
from sparring.judge.math import Answer, final_answer, grade
from sparring.pipelines.coherent_math.questions import ASK, MARK, WordProblem, word_problem
from sparring.run.games import Count, Share
from sparring.tasks import choose_task, load_tasks

_HEADING = re.compile(rf"{MARK}.*")
_END = f"End with a line of {MARK} and the number."
WOLFRAM = (
    "{question}\n\nWork this out as a computation: name the quantities, then calculate, one step "
    f"to a line. {_END}"
)
MAUDLIN = (
    "{question}\n\nReason this through in plain words: what is given, what is asked, and why each "
    f"step follows from the last. {_END}"
)
REPHRASE = (
    f"{{question}}\n\nFirst restate this in your own words, then solve it step by step. {_END}"
)
COUNTERFACTUAL = (
    "{question}\n\nThere may be a trap in this. Say first what could mislead, and test what the "
    "answer would be if one of the numbers were another. Then solve it as it is given, step by "
    f"step. {_END}"
)
_LETTERS = {WOLFRAM: "W", MAUDLIN: "M", ASK: "A", REPHRASE: "R", COUNTERFACTUAL: "C"}
TEMPERATURES = (0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to ask: its prompt, and how freely the reply is drawn."""

    prompt: str
    temperature: float


# To add an arm, add an entry.
ARMS: dict[str, Arm] = {
    **{f"wolfram_{i}": Arm(WOLFRAM, t) for i, t in enumerate(TEMPERATURES)},
    **{f"maudlin_{i}": Arm(MAUDLIN, t) for i, t in enumerate(TEMPERATURES)},
    "wolfram_standard": Arm(ASK, 0.2),
    "wolfram_rephrase": Arm(REPHRASE, 0.2),
    "maudlin_cf1": Arm(COUNTERFACTUAL, 0.2),
}


@dataclass
class CoherentMath(Game):
    seats: ClassVar[tuple[str, ...]] = tuple(ARMS)
    problems: ClassVar[str] = "word_problems"
    cooperative: ClassVar[bool] = True

    style: str = "reason"  # terse asks the bare question, with a letter for the way of asking
    alpha: float = 1.0  # for a right answer
    beta: float = 0.5  # for coherence
    length_penalty: float = 0.1  # for `length_scale` tokens
    length_scale: Count = 256
    stability: Share = 0.0  # share of s_path that the closeness of A and A′ has
    arms: list[str] = field(default_factory=lambda: list(ARMS))  # those that are asked

    def __post_init__(self) -> None:
        check_style(self.style)
        for arm in self.arms:
            if arm not in ARMS:
                raise ValueError(f"coherent_math has no arm {arm!r}; {nearest(arm, ARMS)}")
        if len(set(self.arms)) < 2:
            raise ValueError("coherent_math needs two arms or more: coherence is between them")
        if self.stability and _canonical(self.arms) is None:
            raise ValueError("stability needs the arms wolfram_standard and wolfram_rephrase")

    def check(self, task: Task) -> None:
        word_problem(task)

    def task(self, seed: int) -> Task:
        return choose_task(_shipped(), seed, 0)

    async def play(self, task: Task, table: Table) -> Outcome:
        problem = word_problem(task)
        turns = await asyncio.gather(*[self._ask(arm, problem, table) for arm in self.arms])
        verdicts = await table.judge(_grade_all(turns, problem))
        broken = [v for v in verdicts if v.status == "void"]
        if broken:
            raise VoidGame(broken[0].detail)
        trajectories = self.trajectories(turns, verdicts)
        return Outcome(
            {t["arm"]: t["reward"] for t in trajectories["trajectories"]}, facts=trajectories
        )

    async def _ask(self, arm: str, problem: WordProblem, table: Table) -> Turn:
        how = ARMS[arm]
        terse = f"{_LETTERS[how.prompt]} {{question}}"
        prompt = (terse if self.style == "terse" else how.prompt).format(question=problem.question)
        return await table[arm].act(prompt, temperature=how.temperature)

    def trajectories(self, turns: list[Turn], verdicts: list[Verdict]) -> dict[str, Any]:
        """The question's scores, and each arm's reply with its scores."""
        from sparring.pipelines.coherent_math.coherence import (  # numpy, which play alone needs
            coherence,
            rewards,
        )

        answers = [final_answer(turn.text) for turn in turns]
        reasoning = [reasoning_of(turn.text) for turn in turns]
        # A server need not tell its tokens; its words are then the next best.
        lengths = [len(turn.token_ids) or len(turn.text.split()) for turn in turns]
        correct = [verdict.passed for verdict in verdicts]
        keys = [_key(*one) for one in zip(answers, verdicts, strict=True)]
        scores = coherence(keys, reasoning, lengths, _canonical(self.arms), self.stability)
        earned = rewards(
            correct,
            scores.s_wm.arms_A,
            lengths,
            alpha=self.alpha,
            beta=self.beta,
            length_penalty=self.length_penalty,
            length_scale=self.length_scale,
        )
        named = {"s_end": scores.s_end, "s_path": scores.s_path, "s_cf": scores.s_cf}
        named["s_wm"] = scores.s_wm
        return {
            "scores": {
                **{name: round(score.question, 6) for name, score in named.items()},
                "stability": scores.stability,
                "correct": sum(correct) / len(correct),
            },
            "trajectories": [
                {
                    "arm": arm,
                    "full_text": turns[i].text,
                    "answer": answers[i].text,
                    "reasoning": reasoning[i],
                    "num_tokens": lengths[i],
                    "finish": turns[i].finish,
                    "correct": correct[i],
                    "reward": round(float(earned[i]), 6),
                    **{name: round(float(s.arms_A[i]), 6) for name, s in named.items()},
                }
                for i, arm in enumerate(self.arms)
            ],
        }


def reasoning_of(text: str) -> str:
    """What stands before the answer's own line, without steps' headings, which look like it."""
    before, mark, _ = text.rpartition(MARK)
    return _HEADING.sub("", before if mark else text).strip()


def _key(answer: Answer, verdict: Verdict) -> str | None:
    """What an arm agrees with others by: 2^3 and 8 are one answer where both are right, and what
    cannot be read is none."""
    if verdict.passed:
        return "right"
    return None if verdict.kind == "unreadable" else answer.key


def _canonical(arms: list[str]) -> tuple[int, int] | None:
    pair = ("wolfram_standard", "wolfram_rephrase")
    if not set(pair) <= set(arms):
        return None
    return arms.index(pair[0]), arms.index(pair[1])


async def _grade_all(turns: list[Turn], problem: WordProblem) -> list[Verdict]:
    return [grade(turn.text, problem.answer) for turn in turns]


@cache
def _shipped() -> tuple[Task, ...]:
    return tuple(load_tasks("shipped:word_problems", "train"))

"""Programs that a policy is asked for, and the rulings on them: what MBPP and HumanEval share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.types import Turn, Verdict
from sparring.evaluation import benchmark
from sparring.evaluation.benchmark import Attempt, Rule
from sparring.evaluation.significance import mean_pass_at_k, wilson
from sparring.judge.python.judge import Judge
from sparring.models.chat import RAW
from sparring.tasks.code import Problem

Program = Callable[[str], str]  # of a reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(benchmark.Question):
    """A problem as a policy is asked it, and how its reply becomes a program."""

    problem: Problem
    program: Program

    @classmethod
    def chat(cls, problem: Problem, text: str, program: Program) -> Question:
        return cls(
            problem.id, [{"role": "user", "content": text}], problem=problem, program=program
        )

    @classmethod
    def raw(cls, problem: Problem, text: str, program: Program, stop: tuple[str, ...]) -> Question:
        """A text that is to be gone on with, until one of the stops."""
        asked = [{"role": RAW, "content": text}]
        return cls(problem.id, asked, stop, problem=problem, program=program)


def rule_by(judge: Judge, questions: Sequence[Question]) -> Rule:
    """The judge's ruling on the program that a reply to one of the questions is taken for."""

    async def ruled(number: int, turn: Turn) -> tuple[str, Verdict]:
        question = questions[number]
        code = question.program(cut(turn.text, question.stop))
        return code, await rule(judge, question.problem, code)

    return ruled


async def attempt_references(problems: Sequence[Problem], judge: Judge) -> list[list[Attempt]]:
    """The reference solutions, judged as if a policy had written them."""
    verdicts = await asyncio.gather(*[rule(judge, problem, problem.code) for problem in problems])
    return [
        [Attempt(problem.code, verdict, problem.code)]
        for problem, verdict in zip(problems, verdicts, strict=True)
    ]


async def rule(judge: Judge, problem: Problem, code: str) -> Verdict:
    return await judge.tests(code, problem.tests, setup=problem.setup, entry=problem.entry)


def cut(text: str, stops: Sequence[str]) -> str:
    """What stands before the first of the stops."""
    return text[: min((text.find(stop) for stop in stops if stop in text), default=len(text))]


def need_tests(problems: Sequence[Problem], source: str) -> None:
    for problem in problems:
        if not problem.tests:
            raise ConfigError(f"problem {problem.id} of {source} has no tests to be judged by")


def attempt_stats(attempts: Sequence[Sequence[Attempt]], ks: Sequence[int]) -> dict[str, Any]:
    """The numbers of an evaluation. A problem is passed when one of its samples passes; the pass
    rate is pass@1, the share of all samples that pass."""
    counts = [(len(each), sum(a.verdict.passed for a in each)) for each in attempts]
    verdicts = [a.verdict for each in attempts for a in each]
    passed = sum(c > 0 for _, c in counts)
    right, total = sum(c for _, c in counts), len(verdicts)
    # Samples of one problem are not independent; the interval is that of as many problems.
    low, high = wilson(round(right / total * len(counts)), len(counts))
    return {
        "problems": len(counts),
        "problems_passed": passed,
        "pass_rate": right / total,
        "interval_95": [round(low, 4), round(high, 4)],
        "samples": total // len(counts),
        **{f"pass@{k}": mean_pass_at_k(counts, k) for k in ks},
        "void": sum(v.status == "void" for v in verdicts),
        "verdicts": dict(Counter(v.kind or v.status for v in verdicts).most_common()),
    }


def details(
    problems: Sequence[Problem], attempts: Sequence[Sequence[Attempt]]
) -> list[dict[str, Any]]:
    """Every attempt with its program and verdict, for a person to look at."""
    return [
        {
            "id": problem.id,
            "passed": any(a.verdict.passed for a in each),
            "attempts": [
                {
                    "code": a.code,
                    "verdict": a.verdict.status,
                    "kind": a.verdict.kind,
                    "detail": a.verdict.detail[:500],
                    "finish": a.finish,
                }
                for a in each
            ],
        }
        for problem, each in zip(problems, attempts, strict=True)
    ]

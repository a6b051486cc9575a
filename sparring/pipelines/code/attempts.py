"""Asks a policy for programs, lets the judge rule, and counts: what MBPP and HumanEval share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.table import Speak
from sparring.core.types import Message, Request, Sampling, Verdict, VoidGame, derive
from sparring.evaluation.benchmark import batch_size
from sparring.evaluation.passk import mean_pass_at_k, wilson
from sparring.judge.python.judge import Judge
from sparring.run.lines import in_batches
from sparring.tasks.code import Problem


@dataclass(frozen=True, slots=True)
class Question:
    """A problem as a policy is asked it, and how its reply becomes a program."""

    problem: Problem
    messages: list[Message]
    program: Callable[[str], str]
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply and its verdict."""

    text: str
    code: str
    verdict: Verdict
    finish: str = ""


async def attempt_all(
    questions: Sequence[Question],
    speak: Speak,
    policy: str,
    judge: Judge,
    *,
    samples: int = 1,
    sampling: Sampling | None = None,
    seed: int = 0,
) -> list[list[Attempt]]:
    """All attempts at all questions, asked for at once: the engine batches, the judge queues."""
    base = sampling or Sampling(temperature=0.0, max_tokens=512)

    async def attempt(number: int, sample: int) -> Attempt:
        question = questions[number]
        how = Sampling(base.temperature, base.top_p, base.top_k, base.max_tokens, question.stop)
        request = Request(
            seat="author",
            policy=policy,
            messages=question.messages,
            sampling=how,
            seed=derive(seed, "benchmark", question.problem.id, sample),
            order=(number, sample),
        )
        try:
            turn = await speak(request)
        except VoidGame as reason:
            return Attempt("", "", Verdict("void", "prompt", str(reason)))
        code = question.program(cut(turn.text, question.stop))
        return Attempt(turn.text, code, await rule(judge, question.problem, code), turn.finish)

    numbers = range(len(questions))
    flat = await asyncio.gather(*[attempt(i, j) for i in numbers for j in range(samples)])
    return [list(flat[i * samples : (i + 1) * samples]) for i in numbers]


async def attempt_in_batches(
    questions: Sequence[Question],
    engine: Any,
    policy: str,
    judge: Judge,
    *,
    samples: int,
    sampling: Sampling,
    seed: int,
    lines: Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> list[list[Attempt]]:
    """As `attempt_all`, a batch of questions after the other, with a line of a file for each."""

    async def ask(numbers: range) -> list[dict[str, Any]]:
        part = [questions[i] for i in numbers]
        attempts = await attempt_all(
            part, engine.act, policy, judge, samples=samples, sampling=sampling, seed=seed
        )
        return [
            {"id": q.problem.id, "attempts": [asdict(a) for a in each]}
            for q, each in zip(part, attempts, strict=True)
        ]

    def report(records: list[dict[str, Any]]) -> None:
        if progress is not None:
            verdicts = [a["verdict"]["status"] for r in records for a in r["attempts"]]
            rate = verdicts.count("pass") / len(verdicts)
            progress({"iteration": len(records), "pass_rate": rate})

    ids = [question.problem.id for question in questions]
    batch = max(1, batch_size(engine) // samples)
    async with judge:
        records = await in_batches(lines, ids, ask, batch=batch, what="problem", progress=report)
    return [
        [Attempt(**{**a, "verdict": Verdict(**a["verdict"])}) for a in record["attempts"]]
        for record in records
    ]


async def attempt_references(problems: Sequence[Problem], judge: Judge) -> list[list[Attempt]]:
    """The reference solutions, judged as if a policy had written them."""
    verdicts = await asyncio.gather(*[rule(judge, problem, problem.code) for problem in problems])
    return [
        [Attempt(problem.code, problem.code, verdict)]
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

"""What every benchmark is asked with, and how: all questions at once or a batch at a time, each as
often as wanted. A plug-in registers a function of `Asked` under `benchmarks`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sparring.core.table import Speak
from sparring.core.types import Message, Request, Sampling, Turn, Verdict, VoidGame, derive
from sparring.run.lines import in_batches

REFERENCE = "reference"  # a policy that answers with the benchmark's own solutions


@dataclass(frozen=True, slots=True)
class Asked:
    """One evaluation as it was asked for. Whoever evaluates it prints the result and returns an
    exit code: 0 done, 1 some attempts are void, 2 nothing could be evaluated."""

    benchmark: str
    policy: str
    data: str | None = None
    k: str = "1"
    samples: int | None = None
    problems: int | None = None
    chat: bool = False
    temperature: float | None = None
    max_tokens: int = 512
    seed: int = 0
    sandbox: str = "bubblewrap"
    details: Path | None = None
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """What a policy is asked, and where its reply ends."""

    id: str
    messages: list[Message]
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One reply and its verdict."""

    text: str
    verdict: Verdict
    code: str = ""  # the program that the reply was taken for, if it is one
    tokens: int = 0
    finish: str = ""


Rule = Callable[[int, Turn], Awaitable[tuple[str, Verdict]]]  # a question's number and the reply


async def attempt_all(
    questions: Sequence[Question],
    speak: Speak,
    policy: str,
    rule: Rule,
    *,
    sampling: Sampling,
    samples: int = 1,
    seed: int = 0,
    label: str = "benchmark",
) -> list[list[Attempt]]:
    """All attempts at all questions, asked for at once: the engine batches, the judge queues."""

    async def attempt(number: int, sample: int) -> Attempt:
        question = questions[number]
        request = Request(
            seat="solver",
            policy=policy,
            messages=question.messages,
            sampling=replace(sampling, stop=question.stop),
            seed=derive(seed, label, question.id, sample),
            order=(number, sample),
        )
        try:
            turn = await speak(request)
        except VoidGame as reason:
            return Attempt("", Verdict("void", "prompt", str(reason)))
        code, verdict = await rule(number, turn)
        return Attempt(turn.text, verdict, code, len(turn.token_ids), turn.finish)

    numbers = range(len(questions))
    flat = await asyncio.gather(*[attempt(i, j) for i in numbers for j in range(samples)])
    return [list(flat[i * samples : (i + 1) * samples]) for i in numbers]


async def attempt_in_batches(
    questions: Sequence[Question],
    engine: Any,
    policy: str,
    rule: Rule,
    *,
    samples: int,
    lines: Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
    **how: Any,
) -> list[list[Attempt]]:
    """As `attempt_all`, a batch of questions after the other, with a line of a file for each."""

    async def ask(numbers: range) -> list[dict[str, Any]]:
        def ruled(number: int, turn: Turn) -> Awaitable[tuple[str, Verdict]]:
            return rule(numbers[number], turn)

        part = [questions[i] for i in numbers]
        made = await attempt_all(part, engine.act, policy, ruled, samples=samples, **how)
        return [
            {"id": question.id, "attempts": [asdict(attempt) for attempt in attempts]}
            for question, attempts in zip(part, made, strict=True)
        ]

    def report(records: list[dict[str, Any]]) -> None:
        if progress is not None:
            verdicts = [a["verdict"]["status"] for r in records for a in r["attempts"]]
            rate = verdicts.count("pass") / len(verdicts)
            progress({"iteration": len(records), "pass_rate": rate})

    ids = [question.id for question in questions]
    batch = max(1, batch_size(engine) // samples)
    records = await in_batches(lines, ids, ask, batch=batch, what="question", progress=report)
    return [
        [Attempt(**{**a, "verdict": Verdict(**a["verdict"])}) for a in record["attempts"]]
        for record in records
    ]


def batch_size(engine: Any) -> int:
    """Requests that are made at once, and lost at most by a kill: fewer where they take longer."""
    policies = getattr(engine, "policies", None)
    return 64 if policies is not None and policies.device.type == "cpu" else 512

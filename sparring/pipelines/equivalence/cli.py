"""`sparring judge equivalence FILE.jsonl`: claims about pairs of programs, checked one by one."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TextIO

from sparring.cli.judge import Line, read_lines
from sparring.core.nearest import nearest
from sparring.core.types import Verdict
from sparring.judge.sandbox.bwrap import SandboxMissing
from sparring.pipelines.equivalence.judge.checkers import (
    INCIDENT,
    LANGUAGES,
    NOT_REFUTED,
    Checker,
    make_checker,
)

CLAIMS = ("equivalent", "inequivalent")
FORM = "{id, language, p, q, function, claim, proof?, input?}"
AT_ONCE = 4  # claims of one file that are under way together

Make = Callable[[str], Checker]


def judge_equivalence(
    file: Path,
    as_json: bool = False,
    *,
    sandbox: str = "bwrap",
    timeout_s: float = 2.0,
    inputs: int = 100,
    crosshair_s: float = 5.0,
    strict: bool = False,
    out: TextIO | None = None,
    make: Make | None = None,
) -> int:
    """Check every line, print verdicts in the file's order. 0: all ruled on; 1: some void;
    2: nothing could be judged at all."""
    out = out or sys.stdout
    if not file.is_file():
        print(f"{file}: no such file; expected JSONL of {FORM}", file=sys.stderr)
        return 2

    def checker(language: str) -> Checker:
        return make_checker(
            language, sandbox, timeout_s=timeout_s, inputs=inputs, crosshair_s=crosshair_s
        )

    def show(line: Line, verdict: Verdict, seconds: float) -> None:
        print(told(line, verdict, seconds, as_json), file=out, flush=True)

    try:
        counts = asyncio.run(_judge_all(file, make or checker, show, strict))
    except SandboxMissing as error:
        print(f"cannot judge: {error}", file=sys.stderr)
        return 2
    total = sum(counts[status] for status in ("pass", "fail", "void"))
    summary = ", ".join(f"{counts[status]} {status}" for status in ("pass", "fail", "void"))
    print(f"{total} judged: {summary}", file=sys.stderr)
    if counts[INCIDENT]:
        print(f"soundness incidents: {counts[INCIDENT]}", file=sys.stderr)
    return 1 if counts["void"] else 0


async def _judge_all(
    file: Path, make: Make, show: Callable[[Line, Verdict, float], None], strict: bool
) -> dict[str, int]:
    counts = {"pass": 0, "fail": 0, "void": 0, INCIDENT: 0}
    checkers: dict[str, Checker] = {}
    waiting: list[tuple[Line, asyncio.Task[tuple[Verdict, float]]]] = []
    room = asyncio.Semaphore(AT_ONCE)
    starting = asyncio.Lock()

    async with AsyncExitStack() as stack:

        async def rule(line: Line) -> tuple[Verdict, float]:
            if line.wrong:
                return Verdict("void", "input", f"line {line.number}: {line.wrong}"), 0.0
            async with room:
                language = line.fields.get("language", "python")
                async with starting:  # a language is opened when a line of it comes
                    if language not in checkers:
                        checkers[language] = await stack.enter_async_context(make(language))
                started = time.perf_counter()
                verdict = await check(checkers[language], line.fields, strict)
                return verdict, time.perf_counter() - started

        async def next_out() -> None:
            line, task = waiting.pop(0)
            verdict, seconds = await task
            counts[verdict.status] += 1
            counts[INCIDENT] += verdict.kind == INCIDENT
            show(line, verdict, seconds)

        for line in read_lines(file, wrong):
            waiting.append((line, asyncio.ensure_future(rule(line))))
            while len(waiting) > 4 * AT_ONCE:
                await next_out()
        while waiting:
            await next_out()
    return counts


async def check(checker: Checker, fields: dict[str, Any], strict: bool = False) -> Verdict:
    """One claim. A pass means that it holds; by which evidence is the verdict's kind."""
    p, q, function = fields["p"], fields["q"], fields["function"]
    if fields["claim"] == "equivalent":
        verdict = await checker.equivalent(p, q, function, fields.get("proof") or "")
        if strict and verdict.passed and verdict.kind == NOT_REFUTED:
            return Verdict("fail", NOT_REFUTED, verdict.detail)
        return verdict
    if fields.get("input") is None:
        return Verdict("fail", "input", "an inequivalence needs an input that shows it")
    return await checker.diverges(p, q, function, fields["input"])


def wrong(data: dict[str, Any]) -> str:
    """What is wrong with a line, or nothing."""
    language = data.get("language", "python")
    if language not in LANGUAGES:
        return f"no language {language!r}; {nearest(str(language), LANGUAGES)}"
    for key in ("p", "q", "function", "claim"):
        if not isinstance(data.get(key), str):
            return f"no text under {key!r}; {FORM} was expected"
    if data["claim"] not in CLAIMS:
        return f"no claim {data['claim']!r}; {nearest(data['claim'], CLAIMS)}"
    if data.get("proof") is not None and not isinstance(data["proof"], str):
        return f"proof is not text but {type(data['proof']).__name__}"
    return ""


def told(line: Line, verdict: Verdict, seconds: float, as_json: bool) -> str:
    if as_json:
        row = {
            "id": line.id,
            "verdict": verdict.status,
            "evidence": verdict.kind,
            "detail": verdict.detail,
            "seconds": round(seconds, 3),
        }
        return json.dumps(row)
    why = ": ".join(part for part in (verdict.kind, verdict.detail) if part)
    return f"{line.id}\t{verdict.status}\t{seconds:.2f} s\t{' '.join(why.split())}".rstrip()

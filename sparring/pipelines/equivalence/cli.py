"""`sparring judge equivalence FILE.jsonl`: claims about pairs of programs, checked one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from sparring.cli.judge import Line, Rule, judge_file
from sparring.core.errors import nearest
from sparring.core.types import Verdict
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
    sandbox: str = "bubblewrap",
    strict: bool = False,
    out: TextIO | None = None,
    make: Make | None = None,
    **options: Any,
) -> int:
    """Check every line, print verdicts in the file's order; see `judge_file`. `options` are the
    Python checker's: timeout_s, inputs, work, crosshair_paths."""

    def checker(language: str) -> Checker:
        return make_checker(language, sandbox, **options)

    return judge_file(
        file, lambda: _rules(make or checker, strict), form=FORM, as_json=as_json, out=out,
        wrong=wrong, reason="evidence", counted=(INCIDENT,),
    )  # fmt: skip


@asynccontextmanager
async def _rules(make: Make, strict: bool) -> AsyncIterator[Rule]:
    """A language's checker is started when the first line of it comes."""
    checkers: dict[str, Checker] = {}
    room, starting = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
    async with AsyncExitStack() as stack:

        async def rule(line: Line) -> Verdict:
            async with room:
                language = line.fields.get("language", "python")
                async with starting:
                    if language not in checkers:
                        checkers[language] = await stack.enter_async_context(make(language))
                started = time.perf_counter()
                verdict = await check(checkers[language], line.fields, strict)
                return replace(verdict, seconds=time.perf_counter() - started)

        yield rule


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

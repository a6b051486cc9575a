"""`sparring judge python FILE.jsonl`: the judge on its own, for people who need nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox.bwrap import SandboxMissing

MOST_LINE = 64 << 20
AHEAD = 64  # lines that are read and not yet ruled on


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the file: a problem with a program, or what is wrong with it."""

    number: int
    id: Any
    fields: dict[str, Any]
    wrong: str = ""


Rule = Callable[[Line], Awaitable[Verdict]]


def judge_python(
    file: Path,
    as_json: bool = False,
    *,
    workers: int | None = None,
    timeout_s: float = 5.0,
    memory_mb: int = 1024,
    sandbox: str = "bubblewrap",
    out: TextIO | None = None,
) -> int:
    """Judge every line, print verdicts in the file's order; see `judge_file`."""

    @asynccontextmanager
    async def rules() -> AsyncIterator[Rule]:
        judge = Judge(workers, timeout_s=timeout_s, memory_mb=memory_mb, sandbox=sandbox)
        async with judge:
            yield partial(_rule, judge)

    return judge_file(file, rules, form="{id, code, tests}", as_json=as_json, out=out)


def judge_file(
    file: Path,
    rules: Callable[[], AbstractAsyncContextManager[Rule]],
    *,
    form: str,
    as_json: bool = False,
    out: TextIO | None = None,
    wrong: Callable[[dict[str, Any]], str] | None = None,
    reason: str = "kind",
    counted: Sequence[str] = (),
) -> int:
    """Rule on every line of a file, print verdicts in its order. 0: all ruled on; 1: some void;
    2: nothing could be judged at all. `reason` is what a verdict's kind is called in JSON;
    `counted` are kinds whose number is printed at the end."""
    if not file.is_file():
        print(f"{file}: no such file; expected JSONL of {form}", file=sys.stderr)
        return 2

    def show(line: Line, verdict: Verdict) -> None:
        text = _as_json(line, verdict, reason) if as_json else _as_text(line, verdict)
        print(text, file=out or sys.stdout, flush=True)

    counts: Counter[str] = Counter()
    left = False
    try:
        asyncio.run(_judge_all(read_lines(file, wrong), rules, show, counts))
    except SandboxMissing as error:
        print(f"cannot judge: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        left = True
    by_status = {status: counts[status] for status in ("pass", "fail", "void")}
    summary = ", ".join(f"{n} {status}" for status, n in by_status.items())
    rest = "; left by Ctrl-C, the lines after these are not judged" if left else ""
    print(f"{sum(by_status.values())} judged: {summary}{rest}", file=sys.stderr)
    for kind in counted:
        if counts[f"kind {kind}"]:
            print(f"{kind}s: {counts[f'kind {kind}']}", file=sys.stderr)
    return 130 if left else 1 if counts["void"] else 0


async def _judge_all(
    lines: Iterator[Line],
    rules: Callable[[], AbstractAsyncContextManager[Rule]],
    show: Callable[[Line, Verdict], None],
    counts: Counter[str],
) -> None:
    """Read ahead only so far, so that a file of any size will do."""
    waiting: list[tuple[Line, asyncio.Future[Verdict]]] = []

    async def next_out() -> None:
        line, future = waiting.pop(0)
        verdict = await future
        counts.update((verdict.status, f"kind {verdict.kind}"))
        show(line, verdict)

    async def ruled(rule: Rule, line: Line) -> Verdict:
        if line.wrong:
            return Verdict("void", "input", f"line {line.number}: {line.wrong}")
        return await rule(line)

    async with rules() as rule:
        for line in lines:
            waiting.append((line, asyncio.ensure_future(ruled(rule, line))))
            while waiting and (len(waiting) > AHEAD or waiting[0][1].done()):
                await next_out()
            await asyncio.sleep(0)
        while waiting:
            await next_out()


async def _rule(judge: Judge, line: Line) -> Verdict:
    fields = line.fields
    verdict = await judge.tests(
        fields["code"],
        fields.get("tests") or (),
        setup=fields.get("setup") or "",
        entry=fields.get("entry"),
        timeout_s=fields.get("timeout_s"),
    )
    blame = verdict.kind in ("tests", "input") or not isinstance(fields["code"], str)
    if blame or (verdict.kind == "syntax" and "the most is" in verdict.detail):
        detail = f"line {line.number}: {verdict.detail}"
        return Verdict(verdict.status, verdict.kind, detail, verdict.seconds)
    return verdict


def read_lines(file: Path, wrong: Callable[[dict[str, Any]], str] | None = None) -> Iterator[Line]:
    """Every line that is not blank, good or bad: none is lost, and a bad one stops nothing."""
    with file.open("rb") as stream:
        number = 0
        while raw := stream.readline(MOST_LINE):
            number += 1
            if not raw.endswith(b"\n") and len(raw) == MOST_LINE:
                while (rest := stream.readline(MOST_LINE)) and not rest.endswith(b"\n"):
                    continue
                yield Line(number, number, {}, f"longer than {MOST_LINE} bytes")
            elif raw.strip():
                yield _line(number, raw, wrong or _wrong)


def _line(number: int, raw: bytes, wrong: Callable[[dict[str, Any]], str]) -> Line:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return Line(number, number, {}, f"not JSON: {error!s:.200}")
    if not isinstance(data, dict):
        return Line(number, number, {}, f"an object was expected, not {type(data).__name__}")
    name = data.get("id", number)
    return Line(number, name, data, wrong(data))


def _wrong(data: dict[str, Any]) -> str:
    if "code" not in data:
        return "no code"
    timeout_s = data.get("timeout_s")
    if timeout_s is not None and not (type(timeout_s) in (int, float) and 0 < timeout_s <= 3600):
        return f"timeout_s is {timeout_s!r}, and should be seconds from 0 to 3600"
    if data.get("setup") is not None and not isinstance(data["setup"], str):
        return f"setup is not text but {type(data['setup']).__name__}"
    entry = data.get("entry")
    names = entry if isinstance(entry, list) else [entry]
    if entry is not None and not all(isinstance(n, str) and n.isidentifier() for n in names):
        return f"entry is {entry!r:.100}, and should be the name of a function, or a list of names"
    tests = data.get("tests")
    if tests is not None and not isinstance(tests, str | list):
        return f"tests is neither text nor a list of texts but {type(tests).__name__}"
    return ""


def _as_json(line: Line, verdict: Verdict, reason: str) -> str:
    row = {
        "id": line.id,
        "verdict": verdict.status,
        reason: verdict.kind,
        "detail": verdict.detail,
        "seconds": round(verdict.seconds, 6),
    }
    return json.dumps(row)


def _as_text(line: Line, verdict: Verdict) -> str:
    why = ": ".join(part for part in (verdict.kind, verdict.detail) if part)
    return f"{line.id}\t{verdict.status}\t{verdict.seconds:.3f} s\t{' '.join(why.split())}".rstrip()

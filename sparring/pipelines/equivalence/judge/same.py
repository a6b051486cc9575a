"""The one definition of "the same": what a call of a function comes to, and when two calls come to
the same. Every checker of Python programs compares by it."""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sparring.core.types import Verdict
from sparring.judge.python.judge import Execution, Judge
from sparring.pipelines.equivalence.judge.instrument import instrumented

NOT_REACHED = "not reached"  # there was no time left for this input
SAFETY_S = 120.0  # of a process that is bounded by counts: only a machine that is stuck takes it


class NoOutcomes(Exception):
    """The jail broke, or the program did as a whole; the verdict says which."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.detail)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call came to. `form` holds a value with its type, or an exception's class, and the
    arguments as the call left them; it is made inside the jail, and equal forms are the same.

    kind: value | raises | not data | none (time-out, memory, too deep a recursion: no outcome)
    """

    kind: str
    form: str
    text: str

    @property
    def counts(self) -> bool:
        return self.kind in ("value", "raises")


def same(a: Outcome, b: Outcome) -> bool:
    """Both must have come to something; what has no outcome is the same as nothing."""
    return a.counts and b.counts and (a.kind, a.form) == (b.kind, b.form)


def differ(a: Outcome, b: Outcome) -> bool:
    return a.counts and b.counts and (a.kind, a.form) != (b.kind, b.form)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a function is called: with which hashes, whether each call begins with a fresh module,
    how many steps one call and all of them have, and after how many calls without an outcome the
    rest is left. `seconds`, of a processor, end a call that counts no steps."""

    hash_seed: int = 0
    fresh: bool = True
    steps: int = 2_000_000
    seconds: float = 1.0
    total_steps: int = 20_000_000
    patience: int = 1000


async def outcomes(
    judge: Judge, source: str, function: str, inputs: Sequence[Sequence[Any]], plan: Plan
) -> list[Outcome]:
    """What each input comes to, in order."""
    request = {
        "source": instrumented(source),
        "function": function,
        "inputs": [[number, repr(list(values))] for number, values in enumerate(inputs)],
        **asdict(plan),
    }
    names = ("form_inside", "outcomes_inside")
    done = await run_inside(judge, names, request, hash_seed=plan.hash_seed)
    by_number = _read(done.stdout, len(inputs))
    if done.status == "fail" and not by_number and done.kind == "exception":
        raise NoOutcomes(Verdict("fail", "exception", _last_line(done), done.seconds))
    lost = Outcome("none", NOT_REACHED, "")
    return [by_number.get(number, lost) for number in range(len(inputs))]


async def run_inside(
    judge: Judge, names: Sequence[str], request: dict[str, Any], **how: Any
) -> Execution:
    """Modules of ours as one program in the jail; NoOutcomes where jail or machine failed."""
    done = await judge.run(inside(*names), stdin=json.dumps(request), timeout_s=SAFETY_S, **how)
    if done.status == "void":
        raise NoOutcomes(Verdict("void", done.kind, done.detail, done.seconds))
    if done.kind == "time-out":  # its counts would have ended it long before
        raise NoOutcomes(Verdict("void", "overloaded", done.detail, done.seconds))
    return done


def _last_line(done: Execution) -> str:
    """What a module that does not even load says of it."""
    lines = done.stderr.strip().splitlines()
    return lines[-1][:300] if lines else done.detail


@lru_cache(maxsize=8)
def inside(*names: str) -> str:
    """Modules of ours as one program that imports nothing of Sparring."""
    return "\n".join(_alone(Path(__file__).with_name(f"{name}.py").read_text()) for name in names)


def _alone(text: str) -> str:
    """A module's text without its imports of ours."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparring."):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return "\n".join(lines)


def _read(stdout: str, count: int) -> dict[int, Outcome]:
    """The outcomes that were printed; a torn last line is none."""
    by_number: dict[int, Outcome] = {}
    for line in stdout.split("\n")[:-1]:
        try:
            number, kind, form, text = json.loads(line)
        except (ValueError, RecursionError, TypeError):
            continue
        if isinstance(number, int) and 0 <= number < count:
            by_number[number] = Outcome(str(kind), str(form), str(text))
    return by_number

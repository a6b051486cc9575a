"""The one definition of "the same": what a call of a function comes to, and when two calls come to
the same. Every checker of Python programs compares by it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sparring.judge.python_tests import Execution, Judge
from sparring.types import Verdict

NOT_REACHED = "not reached"  # there was no time left for this input
_INSIDE = Path(__file__).with_name("outcomes_inside.py")


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
    shown: str

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
    how much time one call (of a processor) and all of them have, and after how many calls without
    an outcome the rest is left."""

    hash_seed: int = 0
    fresh: bool = True
    seconds: float = 1.0
    total_s: float = 5.0
    patience: int = 1000


async def outcomes(
    judge: Judge, source: str, function: str, inputs: Sequence[Sequence[Any]], plan: Plan
) -> list[Outcome]:
    """What each input comes to, in order."""
    request = {
        "source": source,
        "function": function,
        "inputs": [[number, repr(list(values))] for number, values in enumerate(inputs)],
        "fresh": plan.fresh,
        "seconds": plan.seconds,
        "patience": plan.patience,
    }
    done = await judge.run(
        _program(), stdin=json.dumps(request), hash_seed=plan.hash_seed, timeout_s=plan.total_s
    )
    if done.status == "void":
        raise NoOutcomes(Verdict("void", done.kind, done.detail, done.seconds))
    found = _read(done.stdout, len(inputs))
    if done.status == "fail" and not found and done.kind == "exception":
        raise NoOutcomes(Verdict("fail", "exception", _last_line(done), done.seconds))
    lost = Outcome("none", NOT_REACHED, "")
    return [found.get(number, lost) for number in range(len(inputs))]


def _last_line(done: Execution) -> str:
    """What a module that does not even load says of it."""
    lines = done.stderr.strip().splitlines()
    return lines[-1][:300] if lines else done.detail


@lru_cache(maxsize=1)
def _program() -> str:
    return _INSIDE.read_text()


def _read(stdout: str, count: int) -> dict[int, Outcome]:
    """The outcomes that were printed; a torn last line is none."""
    found: dict[int, Outcome] = {}
    for line in stdout.split("\n")[:-1]:
        try:
            number, kind, form, shown = json.loads(line)
        except (ValueError, RecursionError, TypeError):
            continue
        if isinstance(number, int) and 0 <= number < count:
            found[number] = Outcome(str(kind), str(form), str(shown))
    return found

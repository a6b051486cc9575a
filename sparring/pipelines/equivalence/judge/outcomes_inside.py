"""Runs inside the jail, as a whole program: calls a function on inputs and prints each outcome in
the one form in which outcomes are compared. The text of form_inside.py goes before it."""

import hashlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from sparring.pipelines.equivalence.judge.form_inside import (
    OPERATORS,
    NotData,
    Timer,
    TimeUp,
    form,
    in_child,
    load,
    read,
)

STEPS_PER_S = 2_000_000  # what time in C counts for: steps are not counted there
MOST_TEXT = 4000  # characters of an outcome; a longer one is known by its digest


class Steps:
    """The counter that an instrumented program calls; it has no outcome when its steps are spent,
    whatever a `finally` makes of that."""

    def __init__(self) -> None:
        self.left = 0

    def reached(self, position: int) -> bool:
        self.left -= 1
        if self.left < 0:
            raise TimeUp
        return True

    def value(self, position: int, value: Any) -> Any:
        self.reached(position)
        return value

    def compared(self, position: int, a: Any, name: str, b: Any) -> Any:
        self.left -= 1
        return OPERATORS[name](a, b)

    def names(self) -> dict[str, Any]:
        return {
            "__reached__": self.reached,
            "__value__": self.value,
            "__compared__": self.compared,
        }


def as_text(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "…"


def packed(outcome_form: Any) -> str:
    text = json.dumps(outcome_form)
    if len(text) <= MOST_TEXT:
        return text
    return f"{len(text)}:{hashlib.sha256(text.encode()).hexdigest()}"


def call(function: Callable[..., Any], arguments: list[Any]) -> list[Any]:
    """[kind, form, text]: a value, an exception's class, or why there is no outcome."""
    before = form(arguments)
    try:
        value = function(*arguments)
    except (MemoryError, RecursionError) as error:
        return ["none", type(error).__name__, ""]
    except Exception as error:
        kind = type(error)
        where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        result: list[Any] = ["raises", f"{where}{kind.__qualname__}", f"raises {kind.__qualname__}"]
    else:
        result = ["value", form(value), as_text(value)]
    after = form(arguments)
    changed = "" if after == before else f", leaving its arguments as {as_text(arguments)}"
    return [result[0], packed([result[1], after]), f"{result[2]}{changed}"]


def outcome(function: Callable[..., Any], arguments: list[Any], seconds: float) -> list[Any]:
    timer = Timer(seconds)
    try:
        with timer:
            result = call(function, arguments)
        return ["none", "time-out", ""] if timer.fired else result
    except TimeUp:
        return ["none", "time-out", ""]
    except NotData as error:
        return ["not data", str(error), ""]
    except (MemoryError, RecursionError) as error:
        return ["none", type(error).__name__, ""]


def loaded(request: dict[str, Any], steps: Steps) -> Callable[..., Any] | None:
    """The function, or None where its module does not end: `X = 10 ** 10 ** 9` takes for ever."""
    timer = Timer(request["seconds"])
    try:
        with timer:
            function: Callable[..., Any] = load(
                request["source"], request["function"], steps.names()
            )
        return None if timer.fired else function
    except TimeUp:
        return None


def work(request: dict[str, Any], first: int, patience: int, progress: int) -> None:
    """Call on every input from `first` on, writing to `progress` how far it has come."""
    function, steps, total = None, Steps(), request["total_steps"]
    for index, (name, text) in enumerate(request["inputs"][first:], first):
        os.write(progress, struct.pack("ii", index, patience))
        steps.left, began = request["steps"], time.process_time()
        if function is None or request["fresh"]:
            function = loaded(request, steps)
        steps.left = request["steps"]
        if function is None:
            result = ["none", "time-out", ""]
        else:
            result = outcome(function, read(text), request["seconds"])
        if steps.left < 0:
            result = ["none", "too many steps", ""]
        sys.stdout.write(json.dumps([name, *result]) + "\n")
        sys.stdout.flush()
        patience -= result[0] == "none"
        seconds = time.process_time() - began
        total -= max(
            request["steps"] - steps.left, int(seconds * STEPS_PER_S) if seconds > 0.02 else 0
        )
        if patience <= 0 or total <= 0:
            break


def main() -> None:
    """An input that takes the child along has no outcome, and the next child goes on after it."""
    request = json.loads(sys.stdin.read())
    first, patience = 0, request["patience"]
    while first < len(request["inputs"]) and patience > 0:
        status, progress = in_child(partial(work, request, first, patience))
        if os.WIFEXITED(status) and (os.WEXITSTATUS(status) == 0 or not progress):
            sys.exit(os.WEXITSTATUS(status))
        first, patience = struct.unpack("ii", progress[-8:])
        print(json.dumps([request["inputs"][first][0], "none", "time-out or death", ""]))
        first, patience = first + 1, patience - 1


if __name__ == "__main__":
    main()

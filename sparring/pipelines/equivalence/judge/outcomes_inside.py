"""Runs inside the jail, as a whole program: calls a function on inputs and prints each outcome in
the one form in which outcomes are compared. The text of form_inside.py goes before it."""

import hashlib
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from sparring.pipelines.equivalence.judge.form_inside import (
    OPERATORS,
    NotData,
    TimeUp,
    form,
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

    def reached(self, place: int) -> bool:
        self.left -= 1
        if self.left < 0:
            raise TimeUp
        return True

    def value(self, place: int, value: Any) -> Any:
        self.reached(place)
        return value

    def compared(self, place: int, a: Any, name: str, b: Any) -> Any:
        self.left -= 1
        return OPERATORS[name](a, b)

    def names(self) -> dict[str, Any]:
        return {
            "__reached__": self.reached,
            "__value__": self.value,
            "__compared__": self.compared,
        }


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "…"


def packed(found: Any) -> str:
    text = json.dumps(found)
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
        result = ["value", form(value), shown(value)]
    after = form(arguments)
    changed = "" if after == before else f", leaving its arguments as {shown(arguments)}"
    return [result[0], packed([result[1], after]), f"{result[2]}{changed}"]


def outcome(function: Callable[..., Any], arguments: list[Any], seconds: float) -> list[Any]:
    fired = []

    def up(*_: Any) -> None:
        fired.append(True)
        raise TimeUp

    signal.signal(signal.SIGVTALRM, up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    # What never comes back to the interpreter, such as sum(range(2 ** 63)), hears no signal: it
    # is killed by one.
    signal.setitimer(signal.ITIMER_PROF, 2 * seconds)
    try:
        try:
            found = call(function, arguments)
            # A `finally` that returns would make an outcome of the end of its time.
            return ["none", "time-out", ""] if fired else found
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)
    except TimeUp:
        return ["none", "time-out", ""]
    except NotData as error:
        return ["not data", str(error), ""]
    except (MemoryError, RecursionError) as error:
        return ["none", type(error).__name__, ""]


def work(request: dict[str, Any], first: int, patience: int, told: int) -> None:
    """Call on every input from `first` on, saying through `told` how far it has come."""
    function, steps, total = None, Steps(), request["total_steps"]
    for place, (name, text) in enumerate(request["inputs"][first:], first):
        if function is None or request["fresh"]:
            function = load(request["source"], request["function"], steps.names())
        arguments = read(text)
        os.write(told, struct.pack("ii", place, patience))
        steps.left, began = request["steps"], time.process_time()
        found = outcome(function, arguments, request["seconds"])
        if steps.left < 0:
            found = ["none", "too many steps", ""]
        sys.stdout.write(json.dumps([name, *found]) + "\n")
        sys.stdout.flush()
        patience -= found[0] == "none"
        seconds = time.process_time() - began
        total -= max(
            request["steps"] - steps.left, int(seconds * STEPS_PER_S) if seconds > 0.02 else 0
        )
        if patience <= 0 or total <= 0:
            break


def main() -> None:
    """Work in a child, since the first process of a jail dies of no signal of its own; an input
    that takes the child along has no outcome, and the next child goes on after it."""
    request = json.loads(sys.stdin.read())
    first, patience = 0, request["patience"]
    while first < len(request["inputs"]) and patience > 0:
        heard, told = os.pipe()
        child = os.fork()
        if child == 0:
            work(request, first, patience, told)
            os._exit(0)
        os.close(told)
        said = b""
        while part := os.read(heard, 65536):
            said += part
        os.close(heard)
        status = os.waitpid(child, 0)[1]
        if os.WIFEXITED(status) and (os.WEXITSTATUS(status) == 0 or not said):
            sys.exit(os.WEXITSTATUS(status))
        first, patience = struct.unpack("ii", said[-8:])
        print(json.dumps([request["inputs"][first][0], "none", "time-out or death", ""]))
        first, patience = first + 1, patience - 1


if __name__ == "__main__":
    main()

"""Runs inside the jail, as a whole program: calls a function on inputs and prints each outcome in
the one form in which outcomes are compared. It imports nothing of Sparring."""

import collections
import decimal
import fractions
import hashlib
import json
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

MOST_TEXT = 4000  # characters of an outcome; a longer one is known by its digest
DEPTH = 100


class NotData(Exception):
    """A value that is no plain data, such as a function or a generator."""


class TimeUp(BaseException):
    """No outcome: the call had its time."""


def number(value: float) -> str:
    if value != value:
        return "nan"
    return value.hex()


def form(value: Any, depth: int = 0) -> list[Any]:
    """A value with its type, as nested lists of text: equal forms, and only they, are the same."""
    if depth > DEPTH:
        raise NotData("nested too deeply")
    kind = type(value)
    name = kind.__name__
    if value is None or kind in (bool, str, bytes, bytearray, decimal.Decimal, fractions.Fraction):
        return [name, repr(value)]
    if kind is int:
        return [name, hex(value)]
    if kind is float:
        return [name, number(value)]
    if kind is complex:
        return [name, number(value.real), number(value.imag)]
    if kind is range:
        return [name, hex(value.start), hex(value.stop), hex(value.step)]
    if kind in (list, tuple):
        return [name, *[form(item, depth + 1) for item in value]]
    if kind is collections.deque:
        return [name, repr(value.maxlen), *[form(item, depth + 1) for item in value]]
    if kind in (set, frozenset):
        return [name, *sorted((form(item, depth + 1) for item in value), key=json.dumps)]
    if kind in (dict, collections.OrderedDict, collections.Counter, collections.defaultdict):
        pairs = [[form(k, depth + 1), form(v, depth + 1)] for k, v in value.items()]
        return [name, *pairs]
    raise NotData(name)


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


def load(source: str, function: str) -> Any:
    names: dict[str, Any] = {"__name__": "solution"}
    exec(compile(source, "solution.py", "exec", dont_inherit=True), names)
    return names[function]


def work(request: dict[str, Any], first: int, patience: int, told: int) -> None:
    """Call on every input from `first` on, saying through `told` how far it has come."""
    plain = {"nan": float("nan"), "inf": float("inf"), "set": set, "frozenset": frozenset}
    function = None
    for place, (name, text) in enumerate(request["inputs"][first:], first):
        if function is None or request["fresh"]:
            function = load(request["source"], request["function"])
        arguments = eval(text, {"__builtins__": {}, **plain})
        os.write(told, struct.pack("ii", place, patience))
        found = outcome(function, arguments, request["seconds"])
        sys.stdout.write(json.dumps([name, *found]) + "\n")
        sys.stdout.flush()
        patience -= found[0] == "none"
        if patience <= 0:
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


main()

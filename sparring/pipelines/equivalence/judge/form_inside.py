"""Runs inside the jail, before what follows it there: the one form in which values are compared,
how programs are loaded, and how what does not end is ended. It imports nothing of Sparring."""

import collections
import decimal
import fractions
import json
import operator
import os
import signal
from collections.abc import Callable
from typing import Any

DEPTH = 100
OPERATORS: dict[str, Any] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge,
}  # fmt: skip


class NotData(Exception):
    """A value that is no plain data, such as a function or a generator."""


class TimeUp(BaseException):
    """No outcome: the call had its time."""


def number(value: float) -> str:
    if value != value:
        return "nan"
    return value.hex()


def form(value: Any, depth: int = 0) -> list[Any]:
    """A value with its type, as nested lists of text: equal forms, and only they, are the same.
    What is nested too deeply, or within itself, has none, as a recursion that goes too deep."""
    if depth > DEPTH:
        raise RecursionError("nested too deeply")
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


def read(text: str) -> Any:
    """A literal, as the host writes it; what it may name beside literals is in `plain`."""
    plain = {"nan": float("nan"), "inf": float("inf"), "set": set, "frozenset": frozenset}
    plain |= {"nanj": complex(0, float("nan")), "infj": complex(0, float("inf"))}
    return eval(text, {"__builtins__": {}, **plain})


def load(source: str, function: str, more: dict[str, Any] | None = None) -> Any:
    names: dict[str, Any] = {"__name__": "solution", **(more or {})}
    exec(compile(source, "solution.py", "exec", dont_inherit=True), names)
    return names[function]


class Timer:
    """Ends what runs in it after so many seconds of a processor: by TimeUp, or, since what never
    comes back to the interpreter, such as sum(range(2 ** 63)), hears no signal, by killing the
    process after twice as many. `fired` says so where a `finally` has swallowed TimeUp."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.fired = seconds, False

    def _up(self, *_: Any) -> None:
        self.fired = True
        raise TimeUp

    def __enter__(self) -> "Timer":
        signal.signal(signal.SIGVTALRM, self._up)
        signal.setitimer(signal.ITIMER_VIRTUAL, self.seconds)
        signal.setitimer(signal.ITIMER_PROF, 2 * self.seconds)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)


def in_child(work: Callable[[int], None]) -> tuple[int, bytes]:
    """Do some work in a child, since the first process of a jail dies of no signal of its own. The
    child's status, and the last that it wrote to the descriptor it was given."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        work(writer)
        os._exit(0)
    os.close(writer)
    last = b""
    while part := os.read(reader, 65536):
        last = (last + part)[-16:]
    os.close(reader)
    return os.waitpid(child, 0)[1], last

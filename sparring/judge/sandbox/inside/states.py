"""What tests set of the interpreter and of its generators of random numbers: one state for both
processes."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

from . import wire

GENERATORS = {"random": ("getstate", "setstate"), "numpy.random": ("get_state", "set_state")}
SEEDED = {
    "random": re.compile(r"(?<![\w.])random\.(?:seed|setstate)\b|from random import .*\bseed"),
    "numpy.random": re.compile(r"\b(?:np|numpy)\.random\.(?:seed|set_state)\b"),
}
LIMITS = {
    "setrecursionlimit": "getrecursionlimit",
    "set_int_max_str_digits": "get_int_max_str_digits",
}


def seeded(text: str) -> list[str]:
    return [name for name, pattern in SEEDED.items() if pattern.search(text)]


Words = tuple[int, ...]  # 624 of them, and how many are used up
BLOCKS = 1 << 8  # of words; who draws more for one answer draws for itself


class Generators:
    """Of some modules, by name: a number that either end draws is drawn for both."""

    def __init__(self, names: list[str], resolve: Any) -> None:
        self.names, self.resolve = names, resolve
        self.known: dict[str, Any] = {}

    def changes(self) -> dict[str, Any]:
        changed = {}
        for name in self.names:
            state = wire.encode(self._function(name, 0)())
            if state != self.known.get(name):
                self.known[name] = changed[name] = state
        return changed

    def apply(self, changed: dict[str, Any]) -> None:
        for name in self.names:
            if name in changed:
                self._function(name, 1)(wire.decode(changed[name], self.resolve))
                self.known[name] = changed[name]

    def follow(self, drawn: dict[str, Any]) -> None:
        """What the program drew is drawn here as well. What it set is its own: with a state of all
        zeros tests would only ask for what is easy."""
        for name in self.names:
            if name in drawn:
                own = self._function(name, 0)()
                (words, normal), theirs = _parts(name, own), wire.decode(drawn[name])
                after, other = _parts(name, theirs)
                moved = _drawn(words, after)
                normal = normal if other == normal else NO_NORMAL[name]
                whole = (3, moved) if name == "random" else (own[0], moved[:-1], moved[-1])
                self._function(name, 1)((*whole, *normal))
                self.known[name] = wire.encode(self._function(name, 0)())

    def _function(self, name: str, which: int) -> Any:
        return getattr(importlib.import_module(name), GENERATORS[name][which])


# The second of two numbers of a normal distribution, which are drawn at once.
NO_NORMAL: dict[str, tuple[Any, ...]] = {"random": (None,), "numpy.random": (0, 0.0)}


def _parts(name: str, state: Any) -> tuple[Words, tuple[Any, ...]]:
    """What a Mersenne twister draws from, and the rest."""
    if name == "random":
        return state[1], state[2:]
    words = state[1].flat if isinstance(state[1], wire.Array) else state[1].tolist()
    return (*words, state[2]), state[3:]


def _drawn(before: Words, after: Words) -> Words:
    """`after`, if it comes of `before` by drawing; else one more than before, so that tests that
    set the same state again are seen to."""
    twister, used, words = importlib.import_module("random").Random(), after[-1], before
    twister.setstate((3, before, None))
    for _ in range(BLOCKS):
        if words[:-1] == after[:-1] and type(used) is int and words[-1] <= used < len(words):
            return (*words[:-1], used)
        twister.getrandbits(32 * (len(words) - words[-1]))  # up to the first of the next words
        words = twister.getstate()[1]
    twister.setstate((3, before, None))
    twister.getrandbits(32)
    return twister.getstate()[1]


class Limits:
    """Of the interpreter, as the tests set them. Those that the program sets are its own."""

    def __init__(self, text: str) -> None:
        self.known = {name: _limit(name) for name in LIMITS if name in text}

    def changes(self) -> dict[str, int]:
        changed = {name: now for name in self.known if (now := _limit(name)) != self.known[name]}
        self.known |= changed
        return changed


def _limit(name: str) -> int:
    return int(getattr(sys, LIMITS[name])())

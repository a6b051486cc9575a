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

    def _function(self, name: str, which: int) -> Any:
        return getattr(importlib.import_module(name), GENERATORS[name][which])


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

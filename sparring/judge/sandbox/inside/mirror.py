"""Lists, dicts and sets that both ends of the link hold: what one end changes, the other sees."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

MAPPINGS = frozenset((dict, defaultdict, OrderedDict, Counter))
MUTABLE = frozenset((list, set, bytearray, deque)) | MAPPINGS
Change = list[Any]  # [number, encoded]


class Mirror:
    """Containers by number, each with the form it had when both ends last agreed on it."""

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self.encode = encode
        self.held: dict[int, list[Any]] = {}

    def hold(self, number: int, value: Any) -> Any:
        """The one object here for this number, with what it holds now."""
        if number in self.held:
            value = restore(self.held[number][0], value)
        self.keep(number, value)
        return value

    def keep(self, number: int, value: Any) -> None:
        self.held[number] = [value, self.encode(value)]

    def changes(self) -> list[Change]:
        changed = []
        for number, entry in self.held.items():
            now = self.encode(entry[0])
            if now != entry[1]:
                entry[1] = now
                changed.append([number, now])
        return changed

    def apply(self, changes: list[Change], decode: Callable[[Any], Any]) -> None:
        for number, form in changes:
            if number in self.held:
                self.hold(number, decode(form))

    def drop_unused(self) -> list[int]:
        """Lets go of what nobody else here holds any more: two names here, one in the call."""
        unused = [n for n, entry in self.held.items() if sys.getrefcount(entry[0]) <= 2]
        for number in unused:
            del self.held[number]
        return unused


def shared(value: Any) -> list[list[Any]]:
    """Where a list, dict or set stands within a value for the second time, and where first."""
    first: dict[int, list[int]] = {}
    twice: list[list[Any]] = []

    def walk(part: Any, path: list[int]) -> None:
        if type(part) in MUTABLE:
            if first.setdefault(id(part), path) is not path:
                twice.append([path, first[id(part)]])
                return
        elif type(part) is not tuple:
            return
        for n, inner in enumerate(part.values() if type(part) in MAPPINGS else part):
            walk(inner, [*path, n])

    walk(value, [])
    return twice


def share(value: Any, twice: list[list[Any]]) -> None:
    """Makes what came in copies one object again."""

    def at(path: list[int]) -> Any:
        part = value
        for n in path:
            part = list(part.values())[n] if type(part) in MAPPINGS else part[n]
        return part

    for path, first in twice:
        holder = at(path[:-1])
        if type(holder) in MAPPINGS:
            holder[list(holder)[path[-1]]] = at(first)
        elif type(holder) is list:
            holder[path[-1]] = at(first)


def restore(old: Any, new: Any) -> Any:
    """`old` made what `new` is, keeping identities within; `new` itself where that cannot be."""
    if type(old) is type(new) and type(old).__name__ == "ndarray" and old.shape == new.shape:
        old[...] = new
        return old
    if type(old) is not type(new) or type(old) not in MUTABLE:
        return new
    if type(old) is list:
        kept = [restore(o, n) for o, n in zip(old, new, strict=False)]
        old[:] = kept + new[len(old) :]
    elif type(old) in MAPPINGS:
        merged = {k: restore(dict.get(old, k), v) for k, v in new.items()}
        old.clear()
        dict.update(old, merged)
    elif type(old) is set:
        old.clear()
        old.update(new)
    else:
        old.clear()
        old.extend(new)
    return old

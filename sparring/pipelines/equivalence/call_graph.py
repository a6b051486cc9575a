"""The entry point among a program's functions where none is named: the one that others serve."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence


def root(
    calls: Mapping[str, Collection[str]], names: Sequence[str], hinted: Collection[str]
) -> str:
    """Of several functions the one that the others are there for: called by no other, then called
    by what only prints, then the one that needs most of the others, then the first."""
    reach = {name: reachable(calls, [name]) for name in calls}

    def rank(name: str) -> tuple[bool, bool, int]:
        callers = {n for n in names if name in reach[n] and n not in reach[name]}
        return bool(callers), name not in hinted, -len(reach[name])

    return min(names, key=rank)


def reachable(calls: Mapping[str, Collection[str]], start: Collection[str]) -> set[str]:
    """What these functions need, themselves included."""
    reached, waiting = set(), list(start)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += calls.get(name, ())
    return reached

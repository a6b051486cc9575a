"""Runs inside the jail, as a whole program: which inputs are searched, small domains whole. It goes
behind the text of search_inside.py."""

import itertools
import json
import math
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sparring.pipelines.equivalence.judge.form_inside import in_child, read
from sparring.pipelines.equivalence.judge.roots_inside import roots
from sparring.pipelines.equivalence.judge.search_inside import CALL, Key, Search, Values

SQUARE = 300  # all pairs of integers up to this, where there are two
MOST_CURVES = 4  # comparisons whose two sides are kept equal
MOST_DIFFERENT = 5
RESTARTS = 6


def outward(most: int) -> Iterator[int]:
    yield 0
    for n in range(1, most + 1):
        yield n
        yield -n


def whole_line(search: Search, work: int) -> str:
    """One integer, and booleans beside it: all up to 10,000, or as far as the work goes."""
    columns: list[list[Any]] = [_every(name) for name, _ in search.types]
    at = [name for name, _ in search.types].index("int")

    def inputs(n: int) -> list[Values]:
        return [list(v) for v in itertools.product(*columns[:at], [n], *columns[at + 1 :])]

    costs = search.cost(lambda size: [*inputs(size), *inputs(-size)])
    reached, low, whole = -1, -1, True
    for size, cost in costs:
        block = [v for n in outward(size) if abs(n) > low for v in inputs(n)]
        if search.done or search.work + cost * len(block) > work:
            break
        whole = search.compare_all(block, cost) == len(block) and whole
        reached, low = size if whole else reached, size
    return "" if reached < 1 or search.done else f"all integers from {-reached} to {reached}"


def _every(name: str) -> list[Any]:
    return [False, True] if name == "bool" else [None]


def plane(search: Search, work: int) -> str:
    """Two integers: all small pairs; then, up to 10,000 and as far as the work goes, where
    comparisons turn, pairs drawn at random, named and round numbers beside all others, lines."""
    costs = search.cost(lambda n: [[n, n], [-n, n], [n, -n], [n, 1], [1, n]])
    if not costs:
        return ""
    limit, start = costs[-1][0], search.work

    def dear(size: int) -> int:
        return next((cost for s, cost in costs if s >= size), costs[-1][1])

    square = min(SQUARE, limit)
    while square > 3 and dear(square) * (2 * square + 1) ** 2 > work / 4:
        square = square * 3 // 4
    pairs = ([x, y] for x in outward(square) for y in outward(square))
    whole = search.compare_all(pairs, dear(square)) == (2 * square + 1) ** 2
    for text in search.equations:
        points = roots(text, limit, list(outward(limit)))
        most = work // (4 * len(search.equations) * dear(limit))
        search.compare_all(itertools.islice(points, most), dear(limit))
    for key in sorted(search.best, key=lambda key: search.best[key][0])[:MOST_CURVES]:
        follow(search, key, limit, search.work + work // (4 * MOST_CURVES))
    random, width = search.rng.random, 2 * limit + 1
    count = work // (4 * dear(limit))
    drawn = ([int(random() * width) - limit, int(random() * width) - limit] for _ in range(count))
    search.compare_all(drawn, dear(limit))
    for line in _lines([n for n in search.constants["int"] if abs(n) <= 2 * limit]):
        if search.done or search.work - start + dear(limit) * 4 * limit > work:
            break
        search.compare_all((v for n in outward(limit) for v in line(n)), dear(limit))
    return f"all pairs of integers from {-square} to {square}" if whole and not search.done else ""


def follow(search: Search, key: Key, limit: int, last_work: int) -> None:
    """Along the curve on which the two sides of a comparison are equal, from where they were
    nearest: for each x the y that makes them so, starting from the y of the x before it."""
    x0, y0 = search.best[key][1]
    x0, y0 = max(-limit, min(limit, x0)), max(-limit, min(limit, y0))
    for y_start, xs in itertools.product((y0, -y0), (range(x0, limit + 1), range(x0, -limit, -1))):
        y = y_start
        for x in xs:
            if search.done or search.work > last_work:
                return
            y = _root(search, key, x, y, limit)


def _root(search: Search, key: Key, x: int, y: int, limit: int) -> int:
    """A y near this one at which the sides differ least: by secants, and where these go too far,
    by halving what lies between two signs."""

    def gap(y: int) -> float | None:
        search.observed([x, y])
        sides = search.near.get(key)
        return None if sides is None else sides[1] - sides[2]

    here = gap(y)
    for _ in range(6):
        beside = gap(y + 1) if here else None
        if not here or beside is None or beside == here:
            return y
        if not beside:
            return y + 1
        jump = max(-limit, min(limit, -here / (beside - here)))
        for target in {math.floor(y + jump), math.ceil(y + jump)} - {y, y + 1}:
            there = gap(target)
            if there is None:
                continue
            if not there:
                return target
            if abs(there) >= abs(here) and (there > 0) != (here > 0):
                target, there = _halved(gap, (y, here), (target, there))
            if abs(there) < abs(here):
                y, here = target, there
        if abs(jump) <= 1:
            return y
    return y


def _halved(
    gap: Callable[[int], float | None], low: tuple[int, float], high: tuple[int, float]
) -> tuple[int, float]:
    while abs(low[0] - high[0]) > 1:
        middle = (low[0] + high[0]) // 2
        there = gap(middle)
        if not there:
            return middle, 0.0
        if (there > 0) == (low[1] > 0):
            low = (middle, there)
        else:
            high = (middle, there)
    return min(low, high, key=lambda end: abs(end[1]))


def _lines(named: list[int]) -> list[Callable[[int], list[Values]]]:
    """Through the plane, those at named numbers first: parallels of the axes, diagonals, others."""
    offsets = list(dict.fromkeys([*named, *outward(6), 10, -10, 100, 1000, -100, -1000]))
    lines: list[Callable[[int], list[Values]]] = []
    for c in offsets:
        lines.append(lambda n, c=c: [[n, c], [c, n]])  # type: ignore[misc]
        lines.append(lambda n, c=c: [[n, n + c], [n, c - n]])  # type: ignore[misc]
    for c in (2, 3, 10, -2):
        lines.append(lambda n, c=c: [[n, n * c], [n * c, n]])  # type: ignore[misc]
    return [*lines, lambda n: [[n, n * n], [n * n, n]]]


def run_search(search: Search, request: dict[str, Any]) -> str:
    """What was tried whole, if anything was."""
    seeds = [read(text) for text in request["corpus"]]
    search.guided(seeds, request["inputs"], request["work"])
    names = [name for name, _ in search.types]
    integers, small = names.count("int"), set(names) <= {"int", "bool", "None"}
    if not search.done and small and integers == 1 and len(names) <= 4:
        return whole_line(search, request["wide_work"])
    if not search.done and names == ["int", "int"]:
        return plane(search, request["wide_work"])
    if not search.done and small and integers == 0 and len(names) <= 12:
        every = [list(v) for v in itertools.product(*map(_every, names))]
        whole = search.compare_all(every, CALL) == len(every)
        return "all inputs there are" if whole and not search.done else ""
    return ""


def report(search: Search, whole: str) -> dict[str, Any]:
    return {
        "different": [repr(v) for v in search.different[:MOST_DIFFERENT]],
        "lost": [repr(v) for v in search.lost[:MOST_DIFFERENT]],
        "tried": search.tried,
        "compared": search.compared,
        "whole": whole,
    }


def main() -> None:
    """Work in a child: an input that takes it along is left out, and all is done again."""
    request = json.loads(sys.stdin.read())
    skipped: set[int] = set()

    def work(progress: int) -> None:
        search = Search(request, skipped, progress)
        sys.stdout.write(json.dumps(report(search, run_search(search, request))) + "\n")
        sys.stdout.flush()

    for _ in range(RESTARTS):
        status, progress = in_child(work)
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))
        skipped.add(struct.unpack("q", progress[-8:])[0])
    print(json.dumps({"different": [], "lost": [], "tried": 0, "compared": 0, "whole": ""}))


if __name__ == "__main__":
    main()

"""The tables of the matching game: drawn hard, seen in parts, scored by the Hungarian method.
Everything is plain lists and numbers, so that a table is a line of JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sparring.core.types import derive

Grid = list[list[int]]
Cell = tuple[int, int]  # reviewer, paper
Matching = tuple[int, ...]  # the paper of each reviewer

UNKNOWN = 50  # what a cell counts that neither player sees
MOST = 99  # the largest value of a cell


def best_matching(grid: Any) -> Matching:
    """The matching of the largest sum, by the Hungarian method; of lists or of an array."""
    from scipy.optimize import linear_sum_assignment

    _, papers = linear_sum_assignment(grid, maximize=True)
    return tuple(int(paper) for paper in papers)


def value(grid: Sequence[Sequence[float]], matching: Matching) -> float:
    return sum(grid[reviewer][paper] for reviewer, paper in enumerate(matching))


def alone(table: Grid, seen: Grid) -> float:
    """What a player reaches who matches by the own cells and takes 50 for the others."""
    own = [
        [cell if known else UNKNOWN for cell, known in zip(row, mask, strict=True)]
        for row, mask in zip(table, seen, strict=True)
    ]
    return value(table, best_matching(own))


def by_chance(table: Grid) -> float:
    """The mean over all matchings: each cell is in one of n of them."""
    return sum(map(sum, table)) / len(table)


def draw_table(
    seed: int,
    seats: Sequence[str],
    *,
    size: int = 8,
    see: float = 0.4,
    hard: float = 1.25,
    draws: int = 10_000,
    scales: tuple[float, float] = (1.0, 10.0),
) -> dict[str, Any]:
    """A table that neither player can match well alone: drawn again until what each would reach
    is at most 1/hard of the pooled optimum, or, after `draws`, the nearest to it so far."""
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(derive(seed, "table")))
    rows = np.arange(size)
    kept: tuple[float, dict[str, Any]] | None = None
    count = 0
    while count < draws or kept is None:
        count += 1
        table = rng.integers(0, MOST + 1, (size, size))
        masks = rng.random((2, size, size)) < see
        table[~masks.any(axis=0)] = UNKNOWN
        best = table[rows, np.array(best_matching(table))].sum()
        if not masks.any() or best == 0:
            continue  # nothing to match by
        ratios: list[float] = []
        for mask in masks:
            own = np.array(best_matching(np.where(mask, table, UNKNOWN)))
            ratios.append(float(table[rows, own].sum() / best))
            if kept is not None and ratios[-1] >= kept[0]:
                break  # no better than what is there
        else:
            kept = max(ratios), _record(table, masks, int(best), ratios, seats)
        if kept is not None and kept[0] * hard <= 1:
            break
    worst, data = kept
    low, high = scales
    drawn = {seat: round(float(rng.uniform(low, high)), 2) for seat in seats}
    facts = {"seed": seed, "draws": count, "hard": worst * hard <= 1, "scales": drawn}
    return {**data, **facts}


def _record(
    table: Any, masks: Any, best: int, ratios: list[float], seats: Sequence[str]
) -> dict[str, Any]:
    return {
        "table": table.tolist(),
        "seen": {s: mask.astype(int).tolist() for s, mask in zip(seats, masks, strict=True)},
        "optimum": best,
        "alone": dict(zip(seats, ratios, strict=True)),
    }


def visible_cells(data: Mapping[str, Any], seat: str) -> dict[Cell, int]:
    """What a player sees: the own cells, times the own scale, truncated."""
    scale = data["scales"][seat]
    return {cell: math.floor(true * scale) for cell, true in own_cells(data, seat).items()}


def own_cells(data: Mapping[str, Any], seat: str) -> dict[Cell, int]:
    """The cells a player sees, by their true values."""
    table, seen = data["table"], data["seen"][seat]
    cells = [(r, c) for r in range(len(table)) for c in range(len(table)) if seen[r][c]]
    return {(r, c): table[r][c] for r, c in cells}


def unscaled(value: int, scale: float) -> int:
    """The whole number whose scaled value truncates to this: scales are at least 1, so there
    is exactly one."""
    return math.ceil(value / scale - 1e-9)


def pooled(size: int, *known: Mapping[Cell, float]) -> list[list[float]]:
    """The table as someone sees it who knows all of these cells."""
    grid = [[float(UNKNOWN)] * size for _ in range(size)]
    for cells in known:
        for (reviewer, paper), worth in cells.items():
            grid[reviewer][paper] = float(worth)
    return grid


def bounds(data: Mapping[str, Any]) -> dict[str, float]:
    """What any policy can be held against, on one table, as shares of the pooled optimum."""
    best = data["optimum"]
    greedy = [alone(data["table"], seen) / best for seen in data["seen"].values()]
    return {
        "random": by_chance(data["table"]) / best,
        "greedy": sum(greedy) / len(greedy),
        "pooling": 1.0,
    }


def problem_with(data: Mapping[str, Any], seats: Sequence[str]) -> str:
    """Why this is no table to play on, or nothing."""
    table, seen, scales = (data.get(key) for key in ("table", "seen", "scales"))
    if not isinstance(table, list) or len(table) < 2:
        return "a matching needs a table of two reviewers and two papers or more"
    if any(not isinstance(row, list) or len(row) != len(table) for row in table):
        return "its table is not square"
    if not isinstance(seen, Mapping) or set(seen) != set(seats):
        return f"it does not say which cells {' and '.join(seats)} see"
    if not isinstance(scales, Mapping) or any(scales.get(seat, 0) < 1 for seat in seats):
        return "it does not give every player a scale of 1 or more"
    if not any(cell for mask in seen.values() for row in mask for cell in row):
        return "both players' tables are empty: there is nothing to match by"
    if value(table, best_matching(table)) != data.get("optimum") or not data["optimum"]:
        return "its optimum is not that of its table"
    return ""

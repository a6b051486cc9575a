"""The part of a report on a matching: what a policy reaches at each size of table, between what
chance reaches and what pooling would, and how much information its players shared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparring.core.formatting import esc
from sparring.view.part import ReportPart, figure
from sparring.view.results import UNTRAINED, mapping
from sparring.view.rundata import RunData

_HEADS = (  # title, what it means
    ("Table", "Reviewers and papers"),
    ("Random agreement", "The mean over all matchings"),
    ("Greedy on own view", "The best by what one player sees, 50 for the rest"),
    ("Perfect pooling", "The best by what both see"),
    ("Policy", ""),
    ("Score", "Of the optimum; 0 without an agreement"),
    ("Agreement", "Share of games"),
    ("Turns to it", "Of the games that agreed"),
    ("Lost turns", "Share of turns without a valid action"),
    ("Told", "Cells given a value, per game, of those that one player alone sees"),
    ("Correct", "By a player who sees that value"),
    ("New", "To a player who does not see the cell"),
    ("Used", "And part of the matching agreed on"),
)
_BOUNDS = ("bound_random", "bound_greedy", "bound_pooling")
_SHARES = ("score", "agreement", "agreed_turns", "error_rate")
_CELLS = ("cells_correct", "cells_new", "cells_used")


def section(run: RunData) -> ReportPart | None:
    """One card for each game of the evaluation that was measured by the size of its tables."""
    evaluation = run.evaluation
    before = mapping(evaluation.get(UNTRAINED))
    cards = []
    for game, results in evaluation.items():
        sizes = mapping(mapping(results).get("by_size")) if game != UNTRAINED else {}
        if not sizes:
            continue
        was = mapping(mapping(before.get(game)).get("by_size"))
        rows = "".join(_rows(size, mapping(sizes[size]), mapping(was.get(size))) for size in sizes)
        heads = "".join(
            f'<th title="{esc(why)}"{"" if title in ("Table", "Policy") else " class=num"}>'
            f"{esc(title)}</th>"
            for title, why in _HEADS
        )
        cards.append(
            '<div class="card"><h3>Matching, by the size of the table</h3><div class="scroll">'
            f'<table class="results"><thead><tr>{heads}</tr></thead>{rows}</table></div>'
            '<p class="caption">All bounds are shares of what perfect pooling reaches, over the '
            "same tables. Cells are means per game.</p></div>"
        )
    return ReportPart(results="".join(cards)) if cards else None


def _rows(size: str, after: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    played = [(name, m) for name, m in (("untrained", before), ("trained", after)) if "score" in m]
    span = max(1, len(played))
    whole = 'scope="rowgroup" style="white-space: nowrap"'
    lead = f'<th rowspan="{span}" {whole}>{esc(size)} × {esc(size)}</th>'
    lead += "".join(f'<td rowspan="{span}" class="num">{_cell(after, key)}</td>' for key in _BOUNDS)
    if not played:
        empty = '<td class="num">–</td>' * (len(_HEADS) - 5)
        return f"<tbody><tr>{lead}<td>none</td>{empty}</tr></tbody>"
    lines = []
    for name, measures in played:
        cells = "".join(f'<td class="num">{_cell(measures, key)}</td>' for key in _SHARES)
        mentioned = f"{_cell(measures, 'cells_mentioned')} of {_cell(measures, 'cells_private')}"
        cells += f'<td class="num">{mentioned}</td>'
        cells += "".join(f'<td class="num">{_cell(measures, key)}</td>' for key in _CELLS)
        kind = ' class="was"' if name == "untrained" else ""
        lines.append(f"<tr{kind}>{lead}<td>{name}</td>{cells}</tr>")
        lead = ""
    return f"<tbody>{''.join(lines)}</tbody>"


def _cell(measures: Mapping[str, Any], key: str) -> str:
    return figure(measures.get(key), key in ("agreement", "error_rate"))

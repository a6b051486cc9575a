"""What a plug-in adds to the report of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparring.core.formatting import esc, number
from sparring.view.rundata import is_number

_FIGURE = re.compile(r"[-−+]?[\d.,]+(e[-−+]?\d+)?( ?%| (s|min|h|d)| min \d+ s)?|–|")


class Section(NamedTuple):
    anchor: str
    title: str
    body: str  # HTML


@dataclass(frozen=True, slots=True)
class ReportPart:
    """`replaces` is for runs that do not go in iterations: their report has no curves or games."""

    sections: Sequence[Section] = ()
    results: str = ""  # HTML below the table of results
    tiles: str = ""  # HTML in place of the usual headline figures
    lead: str = ""  # a sentence in place of the usual one
    replaces: bool = False


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of results. Heads are text; cells are HTML, so what models wrote is to be escaped.
    The first cell heads its row; a column of figures stands to the right, and its head with it."""
    lines = [[cell.removeprefix("<th>").removesuffix("</th>") for cell in row] for row in rows]
    names = list(heads)
    kinds = [
        ' class="num"' if at and all(is_figure(line[at]) for line in lines if line[at:]) else ""
        for at in range(len(names))
    ]
    head = "".join(f"<th{kind}>{esc(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    body = "".join(
        f"<tr><th>{line[0]}</th>"
        + "".join(f"<td{kind}>{c}</td>" for kind, c in zip(kinds[1:], line[1:], strict=False))
        + "</tr>"
        for line in lines
    )
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def card(title: str, note: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table with a title and a sentence on what it shows."""
    return f'<div class="card"><h3>{esc(title)}</h3><p>{esc(note)}</p>{table(heads, rows)}</div>'


def figure(value: object, percent: bool = False) -> str:
    """A number for a cell; a dash where there is none."""
    return number(value, percent) if is_number(value) else "–"


def is_figure(cell: str) -> bool:
    """Whether a cell holds figures: "3", "4.5 %", "3 of 4", "−1 to 2", "2 s", a dash for none."""
    return all(_FIGURE.fullmatch(part) for part in re.split(r" of | to | / ", cell.strip()))

"""What a plug-in adds to the report of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparring.core.formatting import esc


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
    """A table of results. Heads are text; cells are HTML, so what models wrote is to be escaped;
    one that is a `<th>` already heads its row."""
    head = "".join(f"<th>{esc(name)}</th>" for name in heads)
    cells = ("".join(c if c.startswith("<th>") else f"<td>{c}</td>" for c in row) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f'<div class="scroll"><table class="results"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )

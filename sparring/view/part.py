"""What a plug-in adds to the report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


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

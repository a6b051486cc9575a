"""The part of a report on a warm start: what imitation brought, and what self-play added to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparring.core.formatting import esc
from sparring.view.markup import game_name, opponent_name
from sparring.view.metrics import measure
from sparring.view.part import ReportPart, card, figure
from sparring.view.results import UNTRAINED, not_lost, shares
from sparring.view.rundata import RunData, is_number

IMITATED = "after_imitation"
_HEADS = ("Measure", "Untrained", "After imitation", "After self-play", "Self-play added")


def section(run: RunData) -> ReportPart | None:
    """One card for each game of the closing evaluation whose policy began by imitation."""
    before, cards = run.evaluation.get(UNTRAINED, {}), []
    for game, results in run.evaluation.items():
        if not isinstance(results, Mapping) or IMITATED not in results:
            continue
        stages = [before.get(game, {}), results[IMITATED], results]
        title = f"{game_name(game)}: imitation, then self-play"
        cards.append(card(title, _ends(run), _HEADS, [_row(*one) for one in _measures(stages)]))
    return ReportPart(results="".join(cards)) if cards else None


def _measures(stages: list[Any]) -> Iterator[tuple[str, list[float | None], bool]]:
    """Title, values before, between and after, and whether they are shares."""
    last = stages[-1]
    for opponent, result in last.items():
        if shares(result):
            values = [
                not_lost(share) if (share := shares(one.get(opponent))) else None for one in stages
            ]
            yield f"Not lost against {opponent_name(opponent)}", values, True
    for key in last.get("exact", {}):
        title, _, percent = measure(key)
        values = [one.get("exact", {}).get(key) for one in stages]
        yield title, [v if is_number(v) else None for v in values], percent


def _row(title: str, values: list[float | None], percent: bool) -> list[str]:
    fitted, trained = values[1:]
    added = None if fitted is None or trained is None else trained - fitted
    return [esc(title), *(figure(value, percent) for value in (*values, added))]


def _ends(run: RunData) -> str:
    detail = next((e.get("detail", "") for e in run.events if e.get("event") == "imitated"), "")
    return f"Imitation ends, and the curves begin, at iteration 0. {detail}"

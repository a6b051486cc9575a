"""Charts as data: which curves stand on which chart, in which colours, and the few that come first.
`static/charts.js` draws them, in the report and in the view alike."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sparring.core.formatting import esc, number
from sparring.view.metrics import HEADS, Chart, charts, event_title, is_calm
from sparring.view.rundata import is_number, series

Points = list[tuple[int, float]]

MOST_POINTS = 500  # a longer curve is drawn in a report by the means of as many stretches
KEY_CHARTS = 6
_ENDINGS = {
    "won": "win",
    "drawn": "draw",
    "lost": "loss",
    "invalid move": "foul",
    "Pass": "win",
    "Fail": "loss",
    "Void": "void",
}


def layout(data: Mapping[str, Points]) -> list[dict[str, Any]]:
    """All charts by section, as JSON; a chart is `constant` where none of its curves ever moves."""
    return [
        {"title": section, "charts": [_spec(chart, data) for chart in group]}
        for section, group in charts(data).items()
    ]


def _spec(chart: Chart, data: Mapping[str, Points]) -> dict[str, Any]:
    spec = chart.spec
    values = [y for key, _ in chart.curves for _, y in data[key]]
    return {
        "title": spec.title,
        "tag": spec.tag,
        "explain": spec.explain,
        "percent": spec.percent and all(abs(y) <= 1 for y in values),
        "whole": spec.whole and all(0 <= y <= 1 for y in values),
        "constant": all(len({y for _, y in data[key]}) <= 1 for key, _ in chart.curves),
        "curves": [
            {"key": key, "label": label or spec.title, "colour": colour}
            for (key, label), colour in zip(chart.curves, _colours(chart), strict=True)
        ],
        "named": len(chart.curves) > 1 or bool(chart.curves[0][1]),
    }


def _colours(chart: Chart) -> list[str]:
    """Curves that mean the same thing everywhere look the same everywhere."""
    free = iter(f"curve-{n}" for n in range(len(chart.curves)))
    return [
        chart.colours.get(key) or _ENDINGS.get(label) or next(free) for key, label in chart.curves
    ]


def key_charts(sections: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Where the charts stand that say most: (section, chart), at most two of a kind."""
    ranked = []
    seen: dict[int, int] = {}
    for at, section in enumerate(sections):
        for number_, chart in enumerate(section["charts"]):
            rank = _rank(chart["curves"][0]["key"])
            seen[rank] = seen.get(rank, 0) + 1
            if not chart["constant"] and seen[rank] <= 2:
                ranked.append((rank, at, number_))
    return [(at, number_) for _, at, number_ in sorted(ranked)[:KEY_CHARTS]]


def _rank(key: str) -> int:
    last = key.rpartition("/")[2]
    tests = (
        key == "eval/score",
        last == "not_lost",
        key.startswith("eval/") and last in HEADS,
        key.startswith("reward/"),
        key == "rate/invalid",
        last in ("loss", "accuracy"),
        last == "entropy",
        key == "length/tokens",
        key.startswith("eval/"),
        key.startswith("learn/"),
    )
    return next((at for at, holds in enumerate(tests) if holds), len(tests))


def thin(points: Points, most: int = MOST_POINTS) -> Points:
    """The same curve by the means of at most `most` stretches."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [(part[len(part) // 2][0], sum(y for _, y in part) / len(part)) for part in parts]


def chart_cards(
    lines: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]] = (),
    step: str = "iteration",
) -> str:
    """Every curve of a log, by section, as the cards of a report; constants are one list."""
    data = series(lines)
    marks = chart_events(events)
    parts: list[str] = []
    constants: list[str] = []
    for section in layout(data):
        moving = [chart for chart in section["charts"] if not chart["constant"]]
        cards = "".join(_card(chart, data, marks, step) for chart in moving)
        if cards:
            parts.append(f'<h3>{esc(section["title"])}</h3><div class="grid">{cards}</div>')
        constants += [_constant(c, data) for c in section["charts"] if c["constant"]]
    if constants:
        parts.append(
            '<details class="card constants"><summary>What stayed the same '
            f"({len(constants)})</summary><dl>{''.join(constants)}</dl></details>"
        )
    return "".join(parts)


def chart_events(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Events that a chart can mark: those that happened at an iteration."""
    return [
        {
            "iteration": event["iteration"],
            "title": event_title(event),
            "detail": str(event.get("detail") or ""),
            "calm": is_calm(event),
        }
        for event in events
        if is_number(event.get("iteration"))
    ]


def _card(
    chart: Mapping[str, Any],
    data: Mapping[str, Points],
    events: Sequence[Mapping[str, Any]],
    step: str,
) -> str:
    curves = [(curve, thin(data[curve["key"]])) for curve in chart["curves"]]
    x = sorted({at for _, points in curves for at, _ in points})
    columns = [[dict(points).get(at) for at in x] for _, points in curves]
    rounded = [[None if y is None else float(f"{y:.5g}") for y in column] for column in columns]
    drawn = [{"label": curve["label"], "colour": curve["colour"]} for curve, _ in curves]
    spec = {"percent": chart["percent"], "whole": chart["whole"], "curves": drawn, "x": x}
    spec |= {"ys": rounded, "step": step, "events": events}
    tag = f'<p class="tag">{esc(chart["tag"])}</p>' if chart["tag"] else ""
    explain = f'<p class="explain">{esc(chart["explain"])}</p>' if chart["explain"] else ""
    latest = [points[-1][1] if points else math.nan for _, points in curves]
    now = "" if chart["named"] else f'<p class="now">{number(latest[0], chart["percent"])}</p>'
    keys = " ".join(curve["key"] for curve in chart["curves"])
    return (
        f'<figure class="card chart" data-metrics="{esc(keys)}"><figcaption><div>{tag}'
        f"<h4>{esc(chart['title'])}</h4></div>{now}</figcaption>{explain}"
        f'<div class="plot" data-chart="{esc(json.dumps(spec))}"></div>'
        f"{_legend(chart, latest) if chart['named'] else ''}</figure>"
    )


def _legend(chart: Mapping[str, Any], latest: Sequence[float]) -> str:
    items = "".join(
        f'<li><i class="{curve["colour"]}"></i>{esc(curve["label"])} '
        f"<b>{number(value, chart['percent'])}</b></li>"
        for curve, value in zip(chart["curves"], latest, strict=True)
    )
    return f'<ul class="legend">{items}</ul>'


def _constant(chart: Mapping[str, Any], data: Mapping[str, Points]) -> str:
    def value(key: str) -> str:
        return number(data[key][-1][1], chart["percent"]) if data[key] else "no number"

    title = ", ".join(part for part in (chart["tag"], chart["title"]) if part)
    values = ", ".join(
        (f"{curve['label']} " if chart["named"] else "") + value(curve["key"])
        for curve in chart["curves"]
    )
    keys = " ".join(curve["key"] for curve in chart["curves"])
    return f'<div data-metrics="{esc(keys)}"><dt>{esc(title)}</dt><dd>{esc(values)}</dd></div>'

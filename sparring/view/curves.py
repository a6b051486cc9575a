"""Curves as hand-made SVG: axes, light gridlines, marks for events, values on hover."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from sparring.core.formatting import esc, humanise, number
from sparring.view.metrics import Chart
from sparring.view.rundata import is_number

Points = list[tuple[int, float]]

WIDTH, HEIGHT = 420, 190
TOP, RIGHT, BOTTOM = 14, 14, 24
MOST_POINTS = 500  # a longer curve is drawn by the means of as many stretches
DOTS = 30  # a curve with no more points than this shows each of them
NOISY = 60  # one with more than this also gets a moving mean

# Curves that mean the same thing everywhere look the same everywhere.
COLOURS = {
    "won": "win",
    "drawn": "draw",
    "lost": "loss",
    "invalid move": "foul",
    "x": "seat-0",
    "o": "seat-1",
    "first": "seat-0",
    "second": "seat-1",
    "Pass": "win",
    "Fail": "loss",
    "Void": "void",
}
EVENTS = {
    "rollback": "Rolled back",
    "stopped": "Stopped",
    "damaged_checkpoint": "Damaged checkpoint",
    "resumed": "Resumed",
}


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high: steps of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(1, about)
    if raw <= 0 or not math.isfinite(raw):
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * s for s in (1, 2, 2.5, 5, 10) if power * s >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def tick_names(marks: list[float], percent: bool = False) -> list[str]:
    """The numbers of an axis, as few figures as tell them apart, all in one form."""
    size = max(abs(mark) for mark in marks)
    if percent or len(marks) < 2 or 1e-3 <= size < 1e7:
        figures = 100.0 if percent else 1.0
        scaled, tail = [mark * figures for mark in marks], " %" if percent else ""
    else:
        power = math.floor(math.log10(size)) if size else 0
        scaled, tail = [mark / 10.0**power for mark in marks], f"e{power}" if power else ""
    digits = next((d for d in range(6) if all(abs(s - round(s, d)) < 1e-6 for s in scaled)), 6)
    names = [f"{s:,.{digits}f}{tail}" if s else f"0{tail if percent else ''}" for s in scaled]
    return [name.replace("-", "−") for name in names]


def thin(points: Points, most: int = MOST_POINTS) -> Points:
    """The same curve by the means of at most `most` stretches."""
    if len(points) <= most:
        return points
    size = math.ceil(len(points) / most)
    found = []
    for at in range(0, len(points), size):
        part = points[at : at + size]
        found.append((part[len(part) // 2][0], sum(y for _, y in part) / len(part)))
    return found


def smooth(points: Points) -> Points:
    """A centred moving mean over about a fifteenth of the curve."""
    most = max(1, len(points) // 30)
    found = []
    for at, (x, _) in enumerate(points):
        half = min(most, at, len(points) - 1 - at)  # even at the ends, or those would bend
        part = [y for _, y in points[at - half : at + half + 1]]
        found.append((x, sum(part) / len(part)))
    return found


def y_range(values: Sequence[float], percent: bool, whole: bool) -> tuple[float, float]:
    """What the axis spans: a little more than the values, and all of 0 … 1 for a whole share."""
    if whole and all(0 <= v <= 1 for v in values):
        return 0.0, 1.0
    low, high = min(values), max(values)
    if low >= 0 and (percent or low <= 0.5 * high):
        low = 0.0
    if high == low:
        pad = abs(high) * 0.5 or (0.1 if percent else 1.0)
        return min(low, 0.0) - (pad if low < 0 else 0.0), max(high, 0.0) + pad
    pad = 0.06 * (high - low)
    high = min(1.0, high + pad) if percent and high <= 1 else high + pad
    return (low if low == 0 else low - pad), high


def chart_card(
    chart: Chart, data: dict[str, Points], events: list[dict[str, Any]], span: tuple[int, int]
) -> str:
    """One chart with its title, its latest value or legend, and its explanation."""
    place = chart.place
    percent = place.percent and all(abs(y) <= 1 for key, _ in chart.curves for _, y in data[key])
    keys = " ".join(key for key, _ in chart.curves)
    colours = _colours(chart)
    curves = [
        (label or place.title, colour, data[key])
        for (key, label), colour in zip(chart.curves, colours, strict=True)
    ]
    tag = f'<p class="tag">{esc(place.tag)}</p>' if place.tag else ""
    explain = f'<p class="explain">{esc(place.explain)}</p>' if place.explain else ""
    named = len(chart.curves) > 1 or bool(chart.curves[0][1])
    last = curves[0][2][-1][1] if curves[0][2] else math.nan
    now = "" if named else f'<p class="now">{number(last, percent)}</p>'
    return (
        f'<figure class="card chart" data-metrics="{esc(keys)}">'
        f'<figcaption title="{esc(keys)}"><div>{tag}<h4>{esc(place.title)}</h4></div>{now}'
        f"</figcaption>{explain}{_svg(curves, percent, place.whole, events, span)}"
        f"{_legend(curves, percent) if named else ''}</figure>"
    )


def _colours(chart: Chart) -> list[str]:
    free = iter(f"curve-{n}" for n in range(len(chart.curves)))
    return [COLOURS.get(label) or next(free) for _, label in chart.curves]


def _legend(curves: list[tuple[str, str, Points]], percent: bool) -> str:
    items = []
    for label, colour, points in curves:
        value = number(points[-1][1], percent) if points else "–"
        items.append(
            f'<li><i class="{colour}"></i>{esc(label)} <b>{value}</b></li>',
        )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _svg(
    curves: list[tuple[str, str, Points]],
    percent: bool,
    whole: bool,
    events: list[dict[str, Any]],
    span: tuple[int, int],
) -> str:
    values = [y for _, _, points in curves for _, y in points]
    if not values:
        return '<p class="empty">No number has been recorded here yet.</p>'
    low, high = y_range(values, percent, whole)
    marks = ticks(low, high)
    names = tick_names(marks, percent)
    left = 12 + 6.4 * max(map(len, names))
    first, last = span

    def at_x(x: float) -> float:
        inner = WIDTH - left - RIGHT
        share = 0.5 if first == last else (x - first) / (last - first)
        return round(left + inner * share, 1)

    def at_y(y: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - (y - low) / (high - low)), 1)

    parts = [_grid(marks, names, left, at_y), _x_axis(first, last, at_x)]
    parts += [_event(event, at_x(event["iteration"])) for event in _within(events, span)]
    shown = []
    for label, colour, points in curves:
        points = thin(points)
        parts.append(_curve(label, colour, points, percent, at_x, at_y))
        shown.append({"n": label, "c": colour, "x": [p[0] for p in points]})
        shown[-1]["y"] = [float(f"{p[1]:.5g}") for p in points]
    hover = {"percent": percent, "series": shown}
    frame = {"left": left, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM}
    hover |= frame | {"low": low, "high": high, "first": first, "last": last}
    return (
        f'<svg class="curves" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'data-hover="{esc(json.dumps(hover))}">{"".join(parts)}</svg>'
    )


def _grid(marks: list[float], names: list[str], left: float, at_y: Any) -> str:
    rows = []
    for tick, name in zip(marks, names, strict=True):
        y = at_y(tick)
        kind = "zero" if tick == 0 else "gridline"
        rows.append(f'<line class="{kind}" x1="{left}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        rows.append(f'<text class="tick end" x="{left - 6}" y="{y + 3.5}">{esc(name)}</text>')
    return "".join(rows)


def _x_axis(first: int, last: int, at_x: Any) -> str:
    marks = [t for t in ticks(first, last, 6) if t == int(t)] if last > first else [first]
    return "".join(
        f'<text class="tick mid" x="{at_x(tick)}" y="{HEIGHT - 6}">{int(tick):,}</text>'
        for tick in marks
    )


def _curve(label: str, colour: str, points: Points, percent: bool, at_x: Any, at_y: Any) -> str:
    def path(of: Points) -> str:
        return "M" + "L".join(f"{at_x(x)},{at_y(y)}" for x, y in of)

    if not points:
        return ""
    noisy = len(points) > NOISY
    parts = [f'<path class="line {colour}{" faint" if noisy else ""}" d="{path(points)}"/>']
    if noisy:
        parts.append(f'<path class="line {colour}" d="{path(smooth(points))}"/>')
    if len(points) <= DOTS:
        parts += [
            f'<circle class="dot {colour}" cx="{at_x(x)}" cy="{at_y(y)}" r="2.6">'
            f"<title>iteration {x}: {esc(label)} {number(y, percent)}</title></circle>"
            for x, y in points
        ]
    return "".join(parts)


def event_title(event: dict[str, Any]) -> str:
    kind = str(event.get("event", "event"))
    return EVENTS.get(kind) or humanise(kind)


def _within(events: list[dict[str, Any]], span: tuple[int, int]) -> list[dict[str, Any]]:
    placed = [event for event in events if is_number(event.get("iteration"))]
    return [event for event in placed if span[0] <= event["iteration"] <= span[1]]


def _event(event: dict[str, Any], x: float) -> str:
    kind = "calm" if event.get("event") == "resumed" else "alarm"
    said = f"iteration {event['iteration']}: {event_title(event)}"
    if event.get("detail"):
        said += f" – {event['detail']}"
    return (
        f'<g class="event {kind}"><title>{esc(said)}</title>'
        f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<path d="M{x - 4},{TOP - 8}h8l-4,7z"/></g>'
    )

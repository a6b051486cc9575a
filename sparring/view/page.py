"""Puts a run's report together and writes it: one file, no network."""

from __future__ import annotations

import base64
import hashlib
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from sparring.core.formatting import duration, esc, listing, number
from sparring.core.plugin import load_all
from sparring.run.rundir import write_whole
from sparring.view.curves import chart_cards
from sparring.view.ladder_page import ladder_intro
from sparring.view.markup import game_name
from sparring.view.metrics import event_title, is_calm
from sparring.view.part import ReportPart, Section
from sparring.view.replays import replays
from sparring.view.results import headlines, ladder_figure, results_table, tiles
from sparring.view.rundata import RunData, is_number, read_run, series

STATIC = Path(__file__).parent / "static"
LOGO = (
    '<svg class="logo" viewBox="0 0 44 24" aria-hidden="true"><path class="seat-0" '
    'd="M4,4l16,16m0,-16l-16,16"/><circle class="seat-1" cx="32" cy="12" r="8.5"/></svg>'
)


def write_report(run: Path) -> Path:
    """Write RUN/report.html and return its path. A reader never finds half of one."""
    path = Path(run) / "report.html"
    # A model may say half a surrogate pair, which no file can hold.
    write_whole(path, render(read_run(Path(run))).encode("utf-8", "replace"))
    return path


def render(run: RunData) -> str:
    parts = [part for make in load_all("report") if (part := make(run)) is not None]
    added = [section for part in parts for section in part.sections]
    config = Section("config", "Config", _config(run))
    if any(part.replaces for part in parts):
        return _page(run, _header(run, parts), [*added, config])
    sections = [
        Section("results", "Results", _results(run, parts)),
        *added,
        Section("curves", "Curves", _curves(run)),
        Section("ladder", "Ladder", _ladder(run)),
        Section("games", "Games", _games(run)),
        Section("events", "Events", _events(run)),
        config,
    ]
    return _page(run, _header(run, parts), sections)


def render_curves(run: RunData) -> str:
    """The curves alone, for a frame in another page."""
    head = f'<header class="hero"><h1>{esc(_title(run))}</h1></header>'
    return _document(_title(run), f"<main>{head}<section>{_curves(run)}</section></main>")


def _page(run: RunData, header: str, parts: Sequence[Section]) -> str:
    """Sections without a body are left out."""
    parts = [part for part in parts if part.body]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in parts)
    sections = "".join(
        f'<section id="{name}"><h2>{title}</h2>{body}</section>' for name, title, body in parts
    )
    body = (
        f'<nav class="top"><div><a class="brand" href="#top">{LOGO}Sparring</a>'
        f'<span class="links">{links}</span></div></nav>'
        f'<main id="top">{header}{sections}</main>{_footer(run)}'
    )
    return _document(title=f"{_title(run)} · Sparring", body=body)


def _document(title: str, body: str) -> str:
    style = "".join(_static(name) for name in ("vendor/uPlot.min.css", "style.css"))
    script = "\n".join(_static(f"{n}.js") for n in ("vendor/uPlot.iife.min", "charts", "replay"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Should any text ever escape its escaping: no other script runs, and nothing is fetched.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{esc(title)}</title><style>{style}</style></head>"
        f"<body>{body}<script>{script}</script></body></html>\n"
    )


def _static(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _title(run: RunData) -> str:
    return str(run.config.get("recipe") or run.name)


def _header(run: RunData, parts: Sequence[ReportPart]) -> str:
    done = _iterations(run)
    wanted = run.config.get("iterations")
    progress = f"{done:,} of {wanted:,}" if is_number(wanted) else f"{done:,}"
    games = run.config.get("games")
    names = [game_name(str(name)) for name in games] if isinstance(games, dict) else []
    facts = {
        "Policy": run.config.get("policy"),
        "Games": ", ".join(names),
        "Seed": run.config.get("seed"),
        "Iterations": progress if run.lines else "",
        "Games played": _total(run, "episodes"),
        "Wall-clock": _clock(run),
    }
    rows = "".join(
        f"<div><dt>{name}</dt><dd>{esc(value)}</dd></div>"
        for name, value in facts.items()
        if value not in (None, "")
    )
    fragment = "".join(part.tiles for part in parts)
    fragment = fragment or tiles(*headlines(run.evaluation, series(run.lines)))
    lead = next((part.lead for part in parts if part.lead), _sentence(run, names))
    return (
        f'<header class="hero"><p class="eyebrow">Training report</p><h1>{esc(_title(run))}</h1>'
        f'<p class="lead">{esc(lead)}</p>{_alarms(run)}{fragment}<dl class="facts">{rows}</dl>'
        "</header>"
    )


def _alarms(run: RunData) -> str:
    """Roll-backs and what else went wrong, before any figure is read."""
    entries = "".join(
        f'<li class="notice alarm"><b>{esc(event_title(event))}</b> '
        f"at iteration {esc(event.get('iteration', 0))}<p>{esc(event.get('detail') or '')}</p></li>"
        for event in run.events
        if not is_calm(event)
    )
    return f'<ul class="notices">{entries}</ul>' if entries else ""


def _iterations(run: RunData) -> int:
    """Those that were played; what was measured before the first is a line too."""
    return sum(line.get("iteration") != 0 or "episodes" in line for line in run.lines)


def _sentence(run: RunData, games: list[str]) -> str:
    """The run in one sentence."""
    if not _iterations(run):
        return "This run has not finished an iteration yet."
    who = str(run.config.get("policy") or "A policy")
    what = f" of {listing(games)}" if games else ""
    count, clock = _total(run, "episodes"), _clock(run)
    played = f"{count} games{what}" if count else f"games{what}"
    done = _iterations(run)
    once = "" if done == 1 else "s"
    spent = f", in {clock}" if clock else ""
    return f"{who} played {played} over {done:,} iteration{once}{spent}."


def _total(run: RunData, key: str) -> str:
    values = [line[key] for line in run.lines if is_number(line.get(key))]
    return number(sum(values)) if values else ""


def _clock(run: RunData) -> str:
    values = [line["time/total_s"] for line in run.lines if is_number(line.get("time/total_s"))]
    return duration(sum(values)) if values else ""


def _results(run: RunData, parts: Sequence[ReportPart]) -> str:
    table = results_table(run.evaluation) + "".join(part.results for part in parts)
    return f'<p class="intro">The policy as it was, and as it is now.</p>{table}' if table else ""


def _curves(run: RunData) -> str:
    cards = chart_cards(run.lines, run.events)
    if not cards:
        return ""
    intro = (
        "Point at a curve to read its values; drag to zoom, double-click to see all of it again."
    )
    marked = " Triangles mark events, which are listed below." if run.events else ""
    return f'<p class="intro">{intro}{marked}</p>{cards}'


def _ladder(run: RunData) -> str:
    if not run.ladder:
        return ""
    return (
        f'<p class="intro">{ladder_intro(run)}</p>'
        f'<div class="card scroll">{ladder_figure(run.ladder)}</div>'
    )


def _games(run: RunData) -> str:
    fragment = replays(run.stages)
    if not fragment:
        return ""
    return (
        '<p class="intro">A handful of games as they were played: what each player saw, and what '
        f"it said. Arrow keys step.</p>{fragment}"
    )


def _events(run: RunData) -> str:
    if not run.events:
        return ""
    rows = "".join(_event_row(event) for event in run.events)
    return f'<ol class="card events">{rows}</ol>'


def _event_row(event: dict[str, Any]) -> str:
    kind = "calm" if is_calm(event) else "alarm"
    at = event.get("iteration")
    when = f"iteration {number(at)}" if is_number(at) else ""
    detail = esc(event.get("detail") or "")
    title = esc(event_title(event))
    return f'<li class="{kind}"><b>{title}</b> <span>{when}</span><p>{detail}</p></li>'


def _config(run: RunData) -> str:
    if not run.config_text.strip():
        return ""
    return (
        '<details class="card"><summary>The resolved config, in full</summary>'
        f"<pre>{esc(run.config_text)}</pre></details>"
    )


def _footer(run: RunData) -> str:
    versions = [f"Python {platform.python_version()}"]
    for package in ("sparring", "torch", "transformers", "peft"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return (
        f"<footer><p>Run {esc(run.name)}. Report made with {esc(', '.join(versions))}.</p></footer>"
    )

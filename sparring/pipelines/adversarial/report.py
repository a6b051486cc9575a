"""The report's part on stages: what each came to, who beats whom across them, which tests broke
what. Empty for runs without stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sparring.core.formatting import duration, esc, number
from sparring.view.part import ReportPart, Section
from sparring.view.rundata import RunData, is_number, read_object

_COLUMNS = {
    "reward/adversarial_tests/generator": "Generator's reward",
    "reward/adversarial_tests/discriminator": "Discriminator's reward",
    "tests/validity": "Valid tests",
    "tests/pass_rate_baseline": "Baseline passed",
    "tests/pass_rate_adversarial": "Adversarial passed",
    "eval/adversarial_tests/held_out/pass_rate_baseline": "Held-out passed",
}
_TESTS = 12


def section(run: RunData) -> ReportPart | None:
    parts = [
        _stages(run.lines),
        _crossplay(read_object(run.path / "crossplay.json")),
        _bugs(read_object(run.path / "bugs.json")),
    ]
    body = "".join(part for part in parts if part)
    return ReportPart([Section("stages", "Stages", body)]) if body else None


def _stages(lines: Sequence[Mapping[str, Any]]) -> str:
    """One row per stage: means over its steps, and the time it took."""
    by_stage: dict[Any, list[Mapping[str, Any]]] = {}
    for line in lines:
        if is_number(line.get("schedule/stage")):
            by_stage.setdefault(line["schedule/stage"], []).append(line)
    if not by_stage:
        return ""
    rows = []
    untrained = next((line for line in lines if line["iteration"] == 0), None)
    if untrained:
        rows.append(_row("before", [untrained]))
    rows += [_row(f"{stage}", steps) for stage, steps in by_stage.items()]
    heads = "".join(f"<th>{head}</th>" for head in ("Stage", *_COLUMNS.values(), "Bugs", "Time"))
    return (
        "<h3>Stage by stage</h3><p class='intro'>Means over the steps of each stage; bugs are "
        "counted.</p><div class='card scroll'><table><thead><tr>"
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(name: str, steps: Sequence[Mapping[str, Any]]) -> str:
    cells = [name]
    for key in _COLUMNS:
        values = [step[key] for step in steps if is_number(step.get(key))]
        cells.append(f"{fmean(values):.3f}" if values else "–")
    bugs = [step["tests/bugs"] for step in steps if is_number(step.get("tests/bugs"))]
    spent = [step["time/total_s"] for step in steps if is_number(step.get("time/total_s"))]
    cells += [number(sum(bugs)) if bugs else "–", duration(sum(spent)) if spent else "–"]
    return "<tr>" + "".join(f"<td>{esc(cell)}</td>" for cell in cells) + "</tr>"


def _crossplay(found: Mapping[str, Any]) -> str:
    names, wins = found.get("names"), found.get("discriminator_wins")
    if not isinstance(names, list) or not isinstance(wins, list):
        return ""
    heads = "".join(f"<th>{esc(name)}</th>" for name in ["", *names])
    rows = "".join(
        f"<tr><th>{esc(name)}</th>" + "".join(f"<td>{w:.0%}</td>" for w in row) + "</tr>"
        for name, row in zip(names, wins, strict=False)
    )
    return (
        "<h3>Yesterday's players</h3><p class='intro'>How often a discriminator (row) breaks the "
        f"program of a generator (column), over {number(found.get('problems', 0))} problems. "
        f"{esc(_race(found.get('over_time') or []))}</p>"
        f"<div class='card scroll'><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
        "</table></div>"
    )


def _race(stages: Sequence[Mapping[str, float]]) -> str:
    """In words: does either side lose to players it has already met?"""
    if not stages:
        return ""
    ever = ("discriminator_against_todays", "discriminator_against_yesterdays")
    if not any(stage[key] for stage in stages for key in ever):
        return "No discriminator broke anything, so neither an arms race nor a cycle can be seen."
    kept = {
        who: all(
            stage[f"{who}_against_hardest"] >= stage[f"{who}_against_todays"] - 1e-9
            for stage in stages
        )
        for who in ("discriminator", "generator")
    }
    if all(kept.values()):
        return (
            "After every stage both sides do at least as well against each of yesterday's players "
            "as against today's: as in an arms race."
        )
    lost = " and ".join(f"the {who}" for who, held in kept.items() if not held)
    return (
        f"After some stage {lost} did worse against one of yesterday's players than against "
        "today's: something was forgotten, as in a cycle."
    )


def _bugs(found: Mapping[str, Any]) -> str:
    most = [row for row in found.get("most") or [] if isinstance(row, dict)]
    if not most:
        return ""
    rows = "".join(
        f"<tr><td>{esc(row.get('problem'))}</td><td><code>{esc(row.get('test'))}</code></td>"
        f"<td>{esc(row.get('broke'))} of {esc(row.get('ran'))}</td></tr>"
        for row in most[:_TESTS]
    )
    return (
        f"<h3>Tests that found bugs</h3><p class='intro'>{number(found.get('tests', 0))} tests "
        f"broke programs {number(found.get('bugs', 0))} times; these did most often.</p>"
        "<div class='card scroll'><table><thead><tr><th>Problem</th><th>Test</th>"
        f"<th>Programs broken</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )

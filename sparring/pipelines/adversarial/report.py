"""The report's part on stages: what each came to, who beats whom across them, which tests broke
what. Empty for runs without stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sparring.core.formatting import duration, esc, number
from sparring.view.part import ReportPart, Section, card
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
_KINDS = ("valid", "wrong", "duplicate", "unreadable", "not allowed")
MEASURES = {
    "validity": ("Valid tests", "Share of the tests that the reference passes.", True),
    "pass_rate_baseline": ("Baseline tests passed", "By the generator's programs.", True),
    "pass_rate_adversarial": ("Adversarial tests passed", "By the generator's programs.", True),
    "programs_right": ("Programs that pass every baseline test", "", True),
    "programs_broken": ("Programs broken by a test", "", True),
    "bugs": ("Bugs", "Valid tests that the program fails.", False),
    "hidden_bugs": ("Hidden bugs", "In programs that pass every baseline test.", False),
    "written": ("Tests written", "", False),
    **{f"tests/kind/{kind}": (f"Tests that are {kind}", "", False) for kind in _KINDS},
}


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
        rows.append(_cells("before", [untrained]))
    rows += [_cells(f"{stage}", steps) for stage, steps in by_stage.items()]
    note = "Means over the steps of each stage; bugs are counted."
    return card("Stage by stage", note, ("Stage", *_COLUMNS.values(), "Bugs", "Time"), rows)


def _cells(name: str, steps: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [name]
    for key in _COLUMNS:
        values = [step[key] for step in steps if is_number(step.get(key))]
        cells.append(f"{fmean(values):.3f}" if values else "–")
    bugs = [step["tests/bugs"] for step in steps if is_number(step.get("tests/bugs"))]
    spent = [step["time/total_s"] for step in steps if is_number(step.get("time/total_s"))]
    cells += [number(sum(bugs)) if bugs else "–", duration(sum(spent)) if spent else "–"]
    return [esc(cell) for cell in cells]


def _crossplay(result: Mapping[str, Any]) -> str:
    names, wins = result.get("names"), result.get("discriminator_wins")
    if not isinstance(names, list) or not isinstance(wins, list):
        return ""
    rows = [
        [f"<th>{esc(name)}</th>", *(f"{w:.0%}" for w in row)]
        for name, row in zip(names, wins, strict=False)
    ]
    problems = result.get("problems", 0)
    games = result.get("games", problems)
    again = f"{number(games)} games on " if games != problems else ""
    note = (
        "How often a discriminator (row) breaks the program of a generator (column), over "
        f"{again}{number(problems)} problems. {_race(result.get('over_time') or [])}"
    )
    return card("Cross-play of the stages", note, ["", *names], rows)


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


def _bugs(counts: Mapping[str, Any]) -> str:
    most = [row for row in counts.get("most") or [] if isinstance(row, dict)]
    if not most:
        return ""
    rows = [
        [
            esc(row.get("problem")),
            f"<code>{esc(row.get('test'))}</code>",
            f"{esc(row.get('broke'))} of {esc(row.get('ran'))}",
        ]
        for row in most[:_TESTS]
    ]
    note = (
        f"{number(counts.get('tests', 0))} tests broke programs {number(counts.get('bugs', 0))} "
        "times; these did most often."
    )
    return card("Tests that found bugs", note, ("Problem", "Test", "Programs broken"), rows)

"""The report's part on the game of equivalence: the exam of each round, and what was played."""

from __future__ import annotations

from typing import Any

from sparring.report.markup import esc, number
from sparring.report.rundata import RunData, is_number

TRUTHS = ("equivalent", "inequivalent")
SAID = ("yes", "no", "neither")
BINS = 10


def equivalence(run: RunData) -> str:
    """Nothing, where the game was not played."""
    exams = [line for line in run.lines if is_number(line.get("pairs_eval/accuracy"))]
    rounds = [line for line in run.lines if is_number(line.get("equivalence/games"))]
    return (_exams(exams) if exams else "") + (_rounds(rounds) if rounds else "")


def _exams(lines: list[dict[str, Any]]) -> str:
    heads = ["After round", "Right"]
    heads += [f"{truth}: {said}" for truth in TRUTHS for said in SAID]
    rows = []
    for line in lines:
        cells = [_round(line), number(line["pairs_eval/accuracy"], percent=True)]
        cells += [_count(line, f"pairs_eval/{truth}/{said}") for truth in TRUTHS for said in SAID]
        rows.append(cells)
    note = (
        f"{_count(lines[-1], 'pairs_eval/pairs')} pairs that no training saw, each in both orders, "
        "by truth and by what Bob said of them."
    )
    return _card("Bob on held-out pairs", note, heads, rows)


def _rounds(lines: list[dict[str, Any]]) -> str:
    heads = ["Round", "Games", "Accepted", "Kept", "Incidents", "Bob right", "Mean difficulty"]
    heads += ["Difficulty, 0 to 10", "CrossHair found too"]
    heads += [f"{branch}: {said}" for branch in ("SEQ", "SINQ") for said in SAID]
    rows = []
    for line in lines:
        cells = [_round(line)]
        cells += [_count(line, f"equivalence/{key}") for key in ("games", "accepted", "kept")]
        cells.append(_count(line, "equivalence/incidents"))
        accuracy = line.get("equivalence/bob_accuracy")
        cells.append(number(accuracy, percent=True) if is_number(accuracy) else "–")
        cells.append(_count(line, "equivalence/mean_difficulty"))
        cells.append(_bars([line.get(f"equivalence/difficulty/{i}", 0) for i in range(BINS)]))
        searched = line.get("equivalence/crosshair_searched")
        found = _count(line, "equivalence/crosshair_found")
        cells.append(f"{found} of {number(searched)}" if searched else "–")
        for branch in ("seq", "sinq"):
            cells += [_count(line, f"equivalence/confusion/{branch}/{said}") for said in SAID]
        rows.append(cells)
    note = (
        "SEQ pairs are equivalent, SINQ pairs are not; the last columns count Bob's single "
        "judgements. CrossHair is asked for an input of its own where Alice has shown one."
    )
    return _card("What was played", note, heads, rows)


def _round(line: dict[str, Any]) -> str:
    return "none" if line["iteration"] == 0 else esc(line["iteration"])


def _count(line: dict[str, Any], key: str) -> str:
    value = line.get(key)
    return number(value) if is_number(value) else "–"


def _bars(counts: list[float]) -> str:
    """A histogram small enough for a cell."""
    most = max(*counts, 1)
    bars = "".join(
        f'<rect x="{7 * i}" y="{24 - round(24 * count / most, 1)}" width="6" '
        f'height="{round(24 * count / most, 1)}"><title>{i} to {i + 1}: {number(count)}</title>'
        "</rect>"
        for i, count in enumerate(counts)
    )
    return f'<svg width="{7 * BINS}" height="24" fill="currentColor" role="img">{bars}</svg>'


def _card(title: str, note: str, heads: list[str], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{esc(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="card"><h3>{esc(title)}</h3><p>{esc(note)}</p><div class="scroll">'
        f'<table class="results"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div></div>"
    )

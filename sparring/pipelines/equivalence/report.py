"""The report's part on the game of equivalence: the exam of each round, and what was played."""

from __future__ import annotations

from typing import Any

from sparring.core.formatting import esc, number
from sparring.view.part import ReportPart, Section, card, figure
from sparring.view.rundata import RunData, is_number, read_json_lines, read_object

ANSWERS = ("yes", "no", "neither")
MEASURES = {  # of a round
    "equivalence/accepted": ("Pairs accepted", "Alice's, by the checker.", False),
    "equivalence/accepted_seq": ("Equivalent pairs accepted", "Of the SEQ branch.", False),
    "equivalence/accepted_sinq": ("Inequivalent pairs accepted", "Of the SINQ branch.", False),
    "equivalence/kept": ("Pairs kept to learn from", "Hard ones, and a part of the easy.", False),
    "equivalence/mean_difficulty": ("Difficulty of a pair", "Mean, by Bob's answers.", False),
    "equivalence/bob_accuracy": ("Bob's right answers", "On the pairs of the round.", True),
    "equivalence/alice_records": ("Alice's records", "To fit to, over all rounds.", False),
    "equivalence/bob_records": ("Bob's records", "To fit to, over all rounds.", False),
    "equivalence/crosshair_searched": ("Pairs given to CrossHair", "", False),
    "equivalence/crosshair_found": ("Inputs found by CrossHair", "", False),
    "equivalence/crosshair_shorter": ("Inputs that are shorter than Alice's", "", False),
    "equivalence/incidents": ("Incidents", "Proved and refuted at once; void.", False),
    "equivalence/void": ("Void games of equivalence", "", False),
}


def section(run: RunData) -> ReportPart | None:
    """None where the game was not played."""
    exams = [read_object(path) for path in sorted(run.path.glob("evaluations/pairs_*.json"))]
    exams = [exam for exam in exams if is_number(exam.get("accuracy"))]
    rounds = [
        row
        for path in run.path.glob("iteration_*/seq_summary.jsonl")
        for row in read_json_lines(path)
        if is_number(row.get("iteration"))
    ]
    rounds.sort(key=lambda row: int(row["iteration"]))
    body = (_exams(exams) if exams else "") + (_rounds(rounds) if rounds else "")
    return ReportPart([Section("pairs", "Pairs", body)]) if body else None


def _exams(exams: list[dict[str, Any]]) -> str:
    truths = ("equivalent", "inequivalent")
    heads = ["After round", "Right"]
    heads += [f"{truth}: {answer}" for truth in truths for answer in ANSWERS]
    rows = [
        [_round(exam), figure(exam.get("accuracy"), percent=True), *_confusion(exam, truths)]
        for exam in sorted(exams, key=lambda exam: exam.get("iteration", 0))
    ]
    note = (
        f"{figure(exams[-1].get('pairs'))} pairs that no training saw, each in both orders, by "
        "truth and by Bob's answers."
    )
    return card("Bob on held-out pairs", note, heads, rows)


def _rounds(rounds: list[dict[str, Any]]) -> str:
    heads = ["Round", "Games", "Accepted", "Kept", "Incidents", "Bob right", "Mean difficulty"]
    heads += ["Difficulty, 0 to 10", "CrossHair found too"]
    heads += [f"{branch}: {answer}" for branch in ("SEQ", "SINQ") for answer in ANSWERS]
    rows = []
    for row in rounds:
        counted = ("games", "accepted", "kept", "incidents")
        searched = row.get("crosshair_searched")
        rows.append(
            [
                _round(row),
                *(figure(row.get(key)) for key in counted),
                figure(row.get("bob_accuracy"), percent=True),
                figure(row.get("mean_difficulty")),
                _bars(row.get("difficulties")),
                f"{figure(row.get('crosshair_found'))} of {searched:g}"
                if is_number(searched) and searched
                else figure(None),
                *_confusion(row, ("seq", "sinq")),
            ]
        )
    note = (
        "SEQ pairs are equivalent, SINQ pairs are not; the last columns count Bob's single "
        "judgements. CrossHair is asked for an input of its own where Alice has given one."
    )
    return card("What was played", note, heads, rows)


def _round(row: dict[str, Any]) -> str:
    return "none" if row.get("iteration") == 0 else esc(row.get("iteration"))


def _confusion(row: dict[str, Any], truths: tuple[str, ...]) -> list[str]:
    matrix = row.get("confusion")
    counts = [matrix.get(truth) if isinstance(matrix, dict) else None for truth in truths]
    none = [None] * len(ANSWERS)
    whole = [n if isinstance(n, list) and len(n) == len(none) else none for n in counts]
    return [figure(count) for of_truth in whole for count in of_truth]


def _bars(counts: Any) -> str:
    """A histogram small enough for a cell."""
    if not isinstance(counts, list) or not all(map(is_number, counts)):
        return figure(None)
    most = max([*counts, 1])
    heights = [round(24 * count / most, 1) for count in counts]
    bars = "".join(
        f'<rect x="{7 * i}" y="{24 - height}" width="6" height="{height}">'
        f"<title>{i} to {i + 1}: {number(count)}</title></rect>"
        for i, (height, count) in enumerate(zip(heights, counts, strict=True))
    )
    width = 7 * len(counts)
    return f'<svg width="{width}" height="24" fill="currentColor" role="img">{bars}</svg>'

"""The report of a run in phases: what was measured before and after, what was preferred and why,
and what each phase took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.core.formatting import duration, esc, humanise, number
from sparring.evaluation.significance import SIGNIFICANT
from sparring.run.rundir import read_lines
from sparring.view.curves import chart_cards
from sparring.view.part import ReportPart, Section, figure, table
from sparring.view.results import Headline, tiles
from sparring.view.rundata import RunData, is_number, read_metrics, read_object

PHASES = "phases.json"
POLICIES = {"eval_base": "Before", "eval_sft": "After SFT", "eval_dpo": "After DPO"}
ROLLOUTS = {
    "rollouts": "To learn from",
    "arms_sft": "Kept apart, after SFT",
    "arms_dpo": "Kept apart, after DPO",
}
SCORES = {
    "s_end": "Agreement on the answer",
    "s_path": "Likeness of the reasoning",
    "s_cf": "Agreement of the largest group",
    "s_wm": "Weighted mean of the three",
    "stability": "Stability",
    "correct": "Right answers",
    "questions": "Questions",
    "void": "Void",
}
PHASE_NAMES = {
    **{key: f"Evaluation: {name[:1].lower()}{name[1:]}" for key, name in POLICIES.items()},
    **{"sft": "SFT", "dpo": "DPO", "arms_sft": "Arms after SFT", "arms_dpo": "Arms after DPO"},
}
_EXAMPLES = 3  # pairs of each kind, as they were


def section(run: RunData) -> ReportPart | None:
    """The report of a run that goes in phases instead of iterations."""
    results = {k: v for k, v in read_object(run.path / PHASES).items() if isinstance(v, dict)}
    if not results:
        return None
    sections = [
        Section("results", "Results", _results(results)),
        Section("coherence", "Coherence", _coherence(results)),
        Section(
            "preferences", "Preferences", _preferences(results.get("preferences", {}), run.path)
        ),
        Section("training", "Training", _training(run.path)),
        Section("phases", "Phases", _phases(results)),
    ]
    lead = f"{run.config.get('policy') or 'A policy'}: fine-tuned, sampled, preferred, measured."
    return ReportPart(sections, tiles=phase_tiles(results), lead=lead, replaces=True)


def phase_tiles(results: Mapping[str, Any]) -> str:
    rates = {k: results[k]["pass_rate"] for k in POLICIES if "pass_rate" in results.get(k, {})}
    heads = []
    for (a, b), title in ((("eval_base", "eval_sft"), "SFT"), (("eval_sft", "eval_dpo"), "DPO")):
        if a in rates and b in rates:
            paired = (results.get("comparisons") or {}).get(f"{a[5:]} → {b[5:]}") or {}
            sure = is_number(p := paired.get("mcnemar_p")) and p < SIGNIFICANT
            better = rates[b] > rates[a] if sure else None
            heads.append(Headline(title, rates[b], rates[a], True, better, "GSM8K, right answers"))
    return tiles(heads, "On the same questions, which were not trained on.")


def _results(results: Mapping[str, Any]) -> str:
    rows = []
    for key, name in POLICIES.items():
        facts = results.get(key)
        if not facts:
            continue
        low, high = facts["interval_95"]
        rows.append(
            (
                name,
                f"{facts['problems_passed']} of {facts['problems']}",
                number(facts["pass_rate"], True),
                f"{number(low, True)} to {number(high, True)}",
                number(facts["pass_rate_marked"], True),
                number(facts["tokens"]),
                number(facts["cut_off"]),
                number(facts["void"]),
            )
        )
    heads = ("Policy", "Right", "Pass rate", "95 %", "Marked", "Tokens", "Cut off", "Void")
    text = _table(heads, rows)
    pairs = [
        (
            " → ".join(POLICIES.get(f"eval_{part}", part) for part in name.split(" → ")),
            number(c["difference"], True),
            f"{number(c['interval_95'][0], True)} to {number(c['interval_95'][1], True)}",
            f"{c['only_first']} / {c['only_second']}",
            number(c["mcnemar_p"]),
        )
        for name, c in results.get("comparisons", {}).items()
    ]
    paired = ("From → to", "Difference", "95 %", "Only first / only second right", "McNemar's p")
    return text + (f"<h3>Question by question</h3>{_table(paired, pairs)}" if pairs else "")


def _coherence(results: Mapping[str, Any]) -> str:
    """Scores of the questions learned from, and of those kept apart, before and after DPO."""
    facts = results.get("rollouts", {})
    if not facts:
        return ""
    asked = {name: results[key] for key, name in ROLLOUTS.items() if results.get(key)}
    rows = [(title, *[figure(f.get(key)) for f in asked.values()]) for key, title in SCORES.items()]
    arms = [
        (humanise(arm), *[number(f["arms"].get(arm, 0.0), True) for f in asked.values()])
        for arm in facts.get("arms", {})
    ]
    return (
        f"{_table(('Mean over questions', *asked), rows)}"
        f"<h3>Right answers, by arm</h3>{_table(('Arm', *asked), arms)}"
    )


def _preferences(facts: Mapping[str, Any], run: Path) -> str:
    if not facts:
        return ""
    hidden = ("phase", "inputs", "made", "seconds", "skipped")
    rows = [(humanise(k), number(v)) for k, v in facts.items() if k not in hidden and is_number(v)]
    return _table(("Of the pairs", ""), rows) + _examples(run / "preferences.jsonl")


def _examples(path: Path) -> str:
    """A few pairs as they are. Models say anything, so all of it is escaped."""
    examples: dict[str, list[dict[str, Any]]] = {}
    try:
        for pair in read_lines(path):
            own = examples.setdefault(str(pair["pair_type"]), [])
            if len(own) < _EXAMPLES:
                own.append(pair)
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return "".join(_example(kind, pair) for kind, own in examples.items() for pair in own)


def _example(kind: str, pair: Mapping[str, Any]) -> str:
    sides = [
        f"<h3>{humanise(side)} ({esc(humanise(pair.get(f'{side}_arm', '')))})</h3>"
        f"<pre>{esc(pair[side])}</pre>"
        for side in ("chosen", "rejected")
    ]
    title = f"{esc(humanise(kind))}: {esc(pair['question'][:120])}"
    return f'<details class="card"><summary>{title}</summary>{"".join(sides)}</details>'


def _training(run: Path) -> str:
    """The curves of both fits, from the logs of the runs that they are."""
    parts = []
    for title, folder in (("SFT", "sft/lora"), ("DPO", "dpo")):
        cards = chart_cards(read_metrics(run / folder / "metrics.jsonl"), step="epoch")
        if cards:
            parts.append(f"<h3>{title}</h3>{cards}")
    return "".join(parts)


def _phases(results: Mapping[str, Any]) -> str:
    rows = [
        (
            PHASE_NAMES.get(name) or humanise(name),
            duration(facts["seconds"]),
            figure(facts.get("tokens_per_s")),
        )
        for name, facts in results.items()
        if is_number(facts.get("seconds"))
    ]
    return _table(("Phase", "Took", "Tokens per second"), rows)


def _table(heads: Iterable[str], rows: Sequence[tuple[str, ...]]) -> str:
    cells = [[esc(cell) for cell in row] for row in rows]
    return f'<div class="card">{table(heads, cells)}</div>' if cells else ""

"""Preference pairs from rollouts: right over wrong first, then, among the right, coherent over less
coherent. Pure but for the reading and writing of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import lcm
from pathlib import Path
from statistics import fmean
from typing import Any

from sparring.core.errors import ConfigError
from sparring.pipelines.coherent_math.config import PreferencesConfig
from sparring.run.lines import dump
from sparring.run.rundir import write_whole

CORRECTNESS, COHERENCE = "correctness", "coherence"
KINDS = (CORRECTNESS, COHERENCE)
Trajectory = dict[str, Any]


def pairs_of(line: dict[str, Any], config: PreferencesConfig) -> list[dict[str, Any]]:
    """A question's pairs; none where nothing differs. What was cut off is never chosen: it would
    teach to stop in mid-sentence."""
    trajectories = distinct(line["trajectories"])
    right = [t for t in trajectories if t["correct"] and t["finish"] != "length"]
    right.sort(key=lambda t: (-t["reward"], t["arm"]))
    wrong = sorted(
        (t for t in trajectories if not t["correct"]), key=lambda t: (-t["reward"], t["arm"])
    )
    pairs = [
        _pair(line, chosen, rejected, CORRECTNESS)
        for chosen, rejected in across(right, wrong, config.correctness)
    ]
    ranked = sorted(right, key=lambda t: (-t["s_wm"], t["arm"]))
    for chosen, rejected in ends(ranked)[: config.coherence]:
        if chosen["s_wm"] - rejected["s_wm"] > config.margin:
            pairs.append(_pair(line, chosen, rejected, COHERENCE))
    return pairs


def distinct(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """One of each text: arms that say the same word for word differ in nothing."""
    return list({t["full_text"].strip(): t for t in reversed(trajectories)}.values())[::-1]


def across(
    right: Sequence[Trajectory], wrong: Sequence[Trajectory], most: int
) -> list[tuple[Trajectory, Trajectory]]:
    """Pairs over both lists, best with best, each one used as evenly as the other list allows."""
    if not right or not wrong:
        return []
    again = lcm(len(right), len(wrong))  # steps until both lists begin anew: then shift by one
    return [
        (right[k % len(right)], wrong[(k + k // again) % len(wrong)])
        for k in range(min(most, len(right) * len(wrong)))
    ]


def ends(ranked: Sequence[Trajectory]) -> list[tuple[Trajectory, Trajectory]]:
    """The first with the last, the second with the last but one, and so on inwards."""
    return [(ranked[i], ranked[-1 - i]) for i in range(len(ranked) // 2)]


def _pair(
    line: dict[str, Any], chosen: Trajectory, rejected: Trajectory, kind: str
) -> dict[str, Any]:
    pair = {
        "id": line["id"],
        "question": line["question"],
        "chosen": chosen["full_text"],
        "rejected": rejected["full_text"],
        "pair_type": kind,
    }
    for name, t in (("chosen", chosen), ("rejected", rejected)):
        for key in ("arm", "correct", "reward", "s_end", "s_path", "s_cf", "s_wm", "finish"):
            pair[f"{name}_{key}"] = t[key]
    return pair


def build_preferences(
    rollouts: Sequence[dict[str, Any]], config: PreferencesConfig, out: Path
) -> dict[str, Any]:
    """All pairs of all questions, written down; or an error, where there is none."""
    per_question = [pairs_of(line, config) for line in rollouts]
    pairs = [pair for group in per_question for pair in group]
    facts = statistics(rollouts, per_question)
    if not pairs:
        raise ConfigError(
            f"no valid pair: of {facts['questions']} questions, {facts['all_wrong']} have no right "
            f"answer, {facts['all_right']} no wrong one, and no two right ones differ by more than "
            f"{config.margin} in coherence"
        )
    write_whole(out, "".join(f"{dump(pair)}\n" for pair in pairs).encode())
    return facts


def statistics(
    rollouts: Sequence[dict[str, Any]], per_question: Sequence[Sequence[dict[str, Any]]]
) -> dict[str, Any]:
    pairs = [pair for stats in per_question for pair in stats]
    right = [sum(t["correct"] for t in line["trajectories"]) for line in rollouts]
    counts = [len(line["trajectories"]) for line in rollouts]
    stats: dict[str, Any] = {
        "questions": len(rollouts),
        "all_right": sum(r == n for r, n in zip(right, counts, strict=True)),
        "all_wrong": sum(r == 0 for r in right),
        "questions_with_pairs": sum(bool(own) for own in per_question),
        "pairs": len(pairs),
    }
    for kind in KINDS:
        own = [pair for pair in pairs if pair["pair_type"] == kind]
        stats[kind] = len(own)
        if own:
            gaps = [p["chosen_s_wm"] - p["rejected_s_wm"] for p in own]
            stats[f"{kind}_gap"] = round(fmean(gaps), 4)
            lengths = [len(p["chosen"]) / max(1, len(p["rejected"])) for p in own]
            stats[f"{kind}_length_ratio"] = round(fmean(lengths), 4)
    return stats


def read_preferences(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r} of preferences")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        pairs = [json.loads(line) for line in lines if line.strip()]
    except ValueError as error:
        raise ConfigError(f"{path} is not JSONL: {error}") from error
    for i, pair in enumerate(pairs, 1):
        for key in ("question", "chosen", "rejected"):
            if not isinstance(pair, dict) or not isinstance(pair.get(key), str):
                raise ConfigError(f"pair {i} of {path} has no text under {key!r}")
    if not pairs:
        raise ConfigError(f"{path} is empty: there is no valid pair to learn from")
    return pairs

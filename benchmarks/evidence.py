"""Does a pipeline learn what it exists for? `python benchmarks/evidence.py ROW` trains its seeds
and prints a row for docs/results.md: before, after, interval over seeds, minutes, command.

Runs that are there already are read instead of trained again, and go on where they were stopped."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats


@dataclass(frozen=True)
class Row:
    pipeline: str
    model: str
    label: str  # of the measure, with the direction that is better
    measure: str  # path in evaluation.json, where `untrained/…` has the same before; or a metric
    recipe: str
    overrides: tuple[str, ...] = ()


PERFECT = ("opponents.kind=perfect", "opponents.share=0.3")
SMOLLM2_TICTACTOE = (*PERFECT, "learn.lr=1e-4", "learn.entropy_end=0.005", "iterations=220")
ROWS = {
    "tictactoe": Row(
        "SPIRAL", "nano", "lost to perfect play ↓", "tictactoe/perfect/losses", "tictactoe"
    ),
    "tictactoe-smollm2": Row(
        "SPIRAL", "SmolLM2", "lost to perfect play ↓", "tictactoe/perfect/losses",
        "tictactoe-smollm2", SMOLLM2_TICTACTOE,
    ),
    "kuhn": Row("SPIRAL", "nano", "exploitability ↓", "kuhn/exact/exploitability", "kuhn"),
    "kuhn-masked": Row(
        "SPIRAL", "nano", "exploitability, masked ↓", "kuhn/exact/exploitability", "kuhn",
        ("sampling.mask_actions=true",),
    ),
    "negotiation": Row(
        "SPIRAL", "nano", "surplus ↑", "negotiation/exact/surplus", "negotiation"
    ),
    "matching": Row("matching", "nano", "score ↑", "matching/exact/score", "matching"),
    "matching-warm": Row("matching", "nano", "score ↑", "matching/exact/score", "matching-warm"),
    "equivalence-bob": Row(
        "equivalence", "SmolLM2", "pairs judged right ↑", "pairs_eval/accuracy", "equivalence-bob"
    ),
    "adversary": Row(
        "adversary", "nano", "discriminator's reward ↑", "reward/adversarial_tests/discriminator",
        "adversarial-discriminator",
    ),
    "code": Row(
        "code", "SmolLM2", "MBPP passed ↑", "mbpp_eval/pass_rate", "grpo-code-execution"
    ),
    "code-tests": Row(
        "code", "SmolLM2", "MBPP passed ↑", "mbpp_eval/pass_rate", "grpo-code-tests"
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--smoke", action="store_true", help="the whole of it, at a tiny size")
    parser.add_argument("overrides", nargs="*", help="KEY=VALUE for every run")
    options = parser.parse_intermixed_args()
    row = ROWS[options.row]
    command = ["train", row.recipe, *row.overrides, *options.overrides]
    if options.smoke:
        command.append("--smoke")
    results = []
    for seed in range(options.seeds):
        folder = options.runs / f"{options.row}{'-smoke' if options.smoke else ''}-{seed}"
        results.append((*measure(folder, command, seed, row.measure), minutes(folder)))
    print(header())
    print(line(row, results, " ".join(["sparring", *command])))


def measure(folder: Path, command: list[str], seed: int, path: str) -> tuple[float, float]:
    """The measure before and after training; trains what has not been."""
    if not (folder / "report.html").exists():
        resume = ["--resume"] if folder.exists() else []
        words = [*command, f"seed={seed}", "--run", str(folder), *resume]
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "sparring", *words], check=True)
        print(f"seed {seed}: {(time.monotonic() - begun) / 60:.1f} minutes", file=sys.stderr)
    return before_and_after(folder, path)


def before_and_after(folder: Path, path: str) -> tuple[float, float]:
    file = folder / "evaluation.json"
    evaluation = json.loads(file.read_text()) if file.exists() else {}
    if path.split("/")[0] in evaluation:
        return look_up(evaluation["untrained"], path), look_up(evaluation, path)
    values = [v for line in metrics(folder) if isinstance(v := line.get(path), int | float)]
    if not values:
        raise SystemExit(f"{folder} has no {path!r}, in its evaluation or its metrics")
    return values[0], values[-1]


def look_up(tree: Any, path: str) -> float:
    for part in path.split("/"):
        tree = tree[part]
    return float(tree)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def minutes(folder: Path) -> float:
    return sum(line.get("time/total_s", 0.0) for line in metrics(folder)) / 60


def interval(values: list[float]) -> str:
    """Student's 95 % interval of the mean over seeds; with one seed there is none."""
    if len(values) < 2:
        return "–"
    mean, error = statistics.mean(values), stats.sem(values)
    reach = error * stats.t.ppf(0.975, len(values) - 1)
    return f"{mean - reach:.3g} to {mean + reach:.3g}"


def header() -> str:
    names = "pipeline | model | measure | before | after | interval | seeds | minutes | command"
    return f"| {names} |\n|{' --- |' * (names.count('|') + 1)}"


def line(row: Row, results: list[tuple[float, float, float]], command: str) -> str:
    before, after, took = ([result[i] for result in results] for i in range(3))
    cells = [
        *(row.pipeline, row.model, row.label),
        f"{statistics.mean(before):.3g}",
        ", ".join(f"{value:.3g}" for value in after),
        interval(after),
        str(len(results)),
        f"{statistics.mean(took):.1f}",
        f"`{command}`",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

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
from pathlib import Path
from typing import Any

from evidence_rows import ROWS, Row
from scipy import stats


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
        train(folder, command, seed)
        results.append((*before_and_after(folder, row.measure, row.before), minutes(folder)))
        if row.then:
            script, *words = (word.format(run=folder) for word in row.then.split())
            path = Path(__file__).with_name(script)
            subprocess.run([sys.executable, str(path), *words], check=True)
    print(header())
    print(line(row, results, " ".join(["sparring", *command])))


def train(folder: Path, command: list[str], seed: int) -> None:
    if not (folder / "report.html").exists():
        resume = ["--resume"] if folder.exists() else []
        words = [*command, f"seed={seed}", "--run", str(folder), *resume]
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "sparring", *words], check=True)
        print(f"seed {seed}: {(time.monotonic() - begun) / 60:.1f} minutes", file=sys.stderr)


def before_and_after(folder: Path, path: str, before: str = "") -> tuple[float, float]:
    results = read(folder / "evaluation.json") | read(folder / "phases.json")
    if path.split("/")[0] in results:
        return look_up(results, before or f"untrained/{path}"), look_up(results, path)
    values = [v for line in metrics(folder) if isinstance(v := line.get(path), int | float)]
    if not values:
        raise SystemExit(f"{folder} has no {path!r}, in its evaluation or its metrics")
    return values[0], values[-1]


def look_up(tree: Any, path: str) -> float:
    for part in path.split("/"):
        tree = tree[part]
    return float(tree)


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.exists() else {}


def metrics(folder: Path) -> list[dict[str, Any]]:
    file = folder / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def minutes(folder: Path) -> float:
    phases = sum(facts.get("seconds", 0.0) for facts in read(folder / "phases.json").values())
    return (phases + sum(line.get("time/total_s", 0.0) for line in metrics(folder))) / 60


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

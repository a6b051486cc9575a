"""What SFT, DPO and the coherence pairs are worth on GSM8K and GSM8K Platinum, by question.

Reads the runs that `evidence.py mathematics` and `evidence.py mathematics-correctness` train.
Platinum's questions are among GSM8K's, some with another answer: replies are graded again."""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

from sparring.judge.math import grade

Right = dict[str, float]  # question -> share of seeds that answer it rightly


def replies(file: Path) -> dict[str, str]:
    rows = map(json.loads, file.read_text().splitlines())
    return {row["question"].strip(): row["text"] for row in rows}


def references(file: Path) -> dict[str, str]:
    rows = map(json.loads, file.read_text().splitlines())
    return {row["question"].strip(): row["answer"].split("####")[-1].strip() for row in rows}


def graded(file: Path, answers: dict[str, str]) -> Right:
    own = replies(file)
    return {q: float(grade(own[q], answer).passed) for q, answer in answers.items()}


def mean_right(seeds: list[Right]) -> Right:
    return {question: fmean(seed[question] for seed in seeds) for question in seeds[0]}


def paired(first: Right, second: Right) -> str:
    """Mean difference in points with its 95 % interval over questions, seeds averaged within."""
    gaps = [100 * (second[question] - first[question]) for question in first]
    reach = 1.96 * stdev(gaps) / sqrt(len(gaps))
    return f"{fmean(gaps):+.2f} ({fmean(gaps) - reach:+.2f} to {fmean(gaps) + reach:+.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="GSM8K, Platinum")
    options = parser.parse_args()
    both, alone = (
        sorted(p for p in options.runs.glob(f"{name}-[0-9]") if (p / "eval/dpo.jsonl").exists())
        for name in ("mathematics", "mathematics-correctness")
    )
    stages = {name: [run / f"eval/{name}.jsonl" for run in both] for name in ("base", "sft")}
    stages["dpo, correctness pairs alone"] = [run / "eval/dpo.jsonl" for run in alone]
    stages["dpo"] = [run / "eval/dpo.jsonl" for run in both]
    for data in options.data:
        answers = references(data)
        print(f"\n{data.name}, {len(answers)} questions: percent right, seed by seed")
        means = {}
        for name, files in stages.items():
            seeds = [graded(file, answers) for file in files]
            if seeds:
                means[name] = mean_right(seeds)
                rates = ", ".join(f"{100 * fmean(seed.values()):.2f}" for seed in seeds)
                print(f"  {name}: {rates}; mean {100 * fmean(means[name].values()):.2f}")
        for first, second in [*pairwise(means), ("sft", "dpo"), ("base", "dpo")]:
            print(f"  {first} → {second}: {paired(means[first], means[second])} points")


if __name__ == "__main__":
    main()

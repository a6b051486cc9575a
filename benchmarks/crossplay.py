"""Whom each stage's discriminator breaks, from a run's crossplay.json, with 95 % intervals.

python benchmarks/crossplay.py RUN …
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def lines(result: dict) -> list[str]:
    names = result["names"]
    rows = [f"| programs broken, {result['games']} games | " + " | ".join(names) + " |"]
    rows.append("| --- |" + " --- |" * len(names))
    for name, wins, intervals in zip(
        names, result["discriminator_wins"], result["interval_95"], strict=True
    ):
        cells = (
            f"{win:.2f} ({low:.2f} to {high:.2f})"
            for win, (low, high) in zip(wins, intervals, strict=True)
        )
        rows.append(f"| discriminator {name} | " + " | ".join(cells) + " |")
    passed = " | ".join(f"{share:.2f}" for share in result["baseline_passed"])
    return [*rows, f"| baseline tests passed | {passed} |"]


if __name__ == "__main__":
    for run in sys.argv[1:]:
        print(f"{run}:", *lines(json.loads(Path(run, "crossplay.json").read_text())), sep="\n")

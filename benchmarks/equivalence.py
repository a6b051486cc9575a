"""How good the checkers of equivalence are: verdict by truth, over pairs whose truth is known.

python benchmarks/equivalence.py [--language haskell] [--every 3] [--out FILE] [--show FILE…]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from sparring.pipelines.equivalence.judge.checkers import Checker, make_checker
from sparring.tasks import load_tasks

AT_ONCE = 4
TRUTHS = ("equivalent", "inequivalent")


async def judge_pairs(
    rows: list[dict[str, Any]], language: str, sandbox: str, crosshair_paths: int
) -> list[dict[str, Any]]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(checker: Checker, row: dict[str, Any]) -> dict[str, Any]:
        p, q, function = row["p"], row["q"], row["function"]
        async with room:
            began = time.perf_counter()
            claimed = await checker.equivalent(p, q, function, row.get("proof") or "")
            found = {"id": row["id"], "truth": row["claim"], "equivalent": claimed.kind}
            found |= {"detail": claimed.detail, "seconds": time.perf_counter() - began}
            if row["claim"] == "inequivalent" and row.get("input") is not None:
                shown = await checker.diverges(p, q, function, row["input"])
                found["diverges"] = shown.kind
            return found

    async with make_checker(language, sandbox, crosshair_paths=crosshair_paths) as checker:
        return list(await asyncio.gather(*(one(checker, row) for row in rows)))


def table(found: list[dict[str, Any]]) -> str:
    """The claim of equivalence put to every pair, by what came of it and by the truth."""
    counts = Counter((f["equivalent"], f["truth"]) for f in found)
    kinds = sorted({kind for kind, _ in counts})
    lines = ["| verdict on “equivalent” | equivalent | inequivalent |", "| --- | --- | --- |"]
    lines += [f"| {k} | {counts[k, TRUTHS[0]]} | {counts[k, TRUTHS[1]]} |" for k in kinds]
    shown = Counter(f["diverges"] for f in found if "diverges" in f)
    lines += ["", f"the given inputs of the inequivalent ones: {dict(shown)}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--language", default="python")
    parser.add_argument("--data", default="", help="a JSONL of pairs; the shipped ones otherwise")
    parser.add_argument("--every", type=int, default=1, help="each so-manieth pair")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--crosshair-paths", type=int, default=100)
    parser.add_argument("--sandbox", default="bubblewrap")
    parser.add_argument("--out", type=Path, help="where each verdict is appended")
    parser.add_argument("--show", type=Path, nargs="*", help="only the table of such files")
    options = parser.parse_args()
    if options.show:
        lines = [line for file in options.show for line in file.read_text().splitlines()]
        print(table([json.loads(line) for line in lines]))
        return
    source = options.data or f"shipped:pairs_{options.language}"
    rows = [task.data for task in load_tasks(source, None)][options.first :: options.every]
    found = asyncio.run(
        judge_pairs(rows, options.language, options.sandbox, options.crosshair_paths)
    )
    if options.out:
        with options.out.open("a") as file:
            file.writelines(json.dumps(f) + "\n" for f in found)
    print(table(found))


if __name__ == "__main__":
    main()

"""Kuhn poker with nano on CPU cores: stale games with and without correction, and each kind of
reference. Every run is a process with one thread; prints exploitability after the last iteration.

    python benchmarks/kuhn.py --out runs/kuhn [--seeds 3] [--iterations 120] [--episodes 1024]
        [--cores 16] [--only "reference"] [--set sampling.mask_actions=true]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

QUICK = (
    *("evaluate.every=1000000", "evaluate.games=0", "evaluate.final=0", "evaluate.ladder=0"),
    *("checkpoint.every=1000000", "tracking.tensorboard=false", "guard.enabled=false"),
    *("engine.device=cpu", "engine.dtype=float32"),
)
MODE, LOW, HIGH = (f"learn.importance_sampling_{key}" for key in ("mode", "clip_min", "clip_max"))
CORRECTIONS = {
    "clip against the engine's logprobs": (),
    "TIS, token_truncate at 2": (f"{MODE}=token_truncate", f"{HIGH}=2"),
    "IcePop, token_mask 0.5 to 2": (f"{MODE}=token_mask", f"{LOW}=0.5", f"{HIGH}=2"),
}
REFERENCES = {
    "none": ("learn.kl=0",),
    "base": ("learn.reference=base",),
    "ema 0.05": ("learn.reference=ema",),
    "copy every 20": ("learn.reference=copy", "learn.reference_every=20"),
    "average": ("learn.reference=average",),
    "uniform, kl 0.2 to 0": ("learn.reference=uniform", "learn.kl_end=0"),
}
# Heads of the table, and the end of the key in the last line of a run's metrics.
COLUMNS = {
    "legal actions": "exploitability_legal",
    "with forfeits": "/exploitability",
    "illegal mass": "illegal_mass",
    "drift": "learn/drift",
}


def settings() -> dict[str, tuple[str, ...]]:
    stale = {
        f"ahead {k}, {name}": (f"collect.ahead={k}", *own)
        for k in (1, 4, 8)
        for name, own in CORRECTIONS.items()
    }
    return stale | {f"reference {name}": own for name, own in REFERENCES.items()}


def run(name: str, folder: Path, keys: Sequence[str]) -> tuple[str, dict[str, Any]]:
    words = [sys.executable, "-m", "sparring", "train", "kuhn", "--run", str(folder), *keys]
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with Path(f"{folder}.log").open("w") as log:
        done = subprocess.run(
            words, env={**os.environ, **alone}, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        return name, {}
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    return name, {
        head: next((v for k, v in last.items() if k.endswith(end)), None)
        for head, end in COLUMNS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=120)
    parser.add_argument("--episodes", type=int, default=1024)
    parser.add_argument("--only", default="", help="settings with this in their name")
    parser.add_argument("--set", action="append", default=[], help="a key for every run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    size = [f"iterations={args.iterations}", f"collect.episodes={args.episodes}", *args.set]
    jobs = [
        (name, args.out / f"{number}_{seed}", (f"seed={seed}", *QUICK, *size, *own))
        for seed in range(args.seeds)
        for number, (name, own) in enumerate(settings().items())
        if args.only in name
    ]
    began = time.perf_counter()
    with ThreadPoolExecutor(args.cores) as pool:
        results = list(pool.map(lambda job: run(*job), jobs))
    print(f"{len(jobs)} runs, {size}, {time.perf_counter() - began:.0f} s in all")
    heads = ["setting", *(f"seed {seed}" for seed in range(args.seeds)), *COLUMNS]
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * len(heads))
    for name in dict.fromkeys(name for name, _ in results):
        rows = [row for other, row in results if other == name]
        each = [_number([row.get("legal actions")]) for row in rows]
        means = [_number([row.get(head) for row in rows]) for head in COLUMNS]
        print(f"| {name} | " + " | ".join([*each, *means]) + " |")


def _number(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.fmean(known):.3f}" if known else "–"


if __name__ == "__main__":
    main()

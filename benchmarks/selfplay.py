"""Self-play end to end: the recipe's own loop on tic-tac-toe, each round in a process of its own.
Turns and tokens a second, where the time goes, how busy the GPU is, peak memory.

    python benchmarks/selfplay.py [--policy smollm2] [--iterations 6] [--warm 1] [--episodes N]
        [--overlap]
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

RECIPES = {"smollm2": "tictactoe-smollm2", "nano": "tictactoe"}
SPLIT = {  # of an iteration's seconds
    "generate": "the engine speaks",
    "judge": "a judge rules and the engine is idle",
    "wait": "neither: games, prompts, the event loop",
    "learn": "credit and steps",
    "record": "games and metrics are written",
}
RATES = ("turns_per_s", "tokens_per_s", "lesson_tokens_per_s")
EVERY_S = 0.1  # between two looks at the GPU


class Gauge(threading.Thread):
    """Looks at the GPU while the run goes on. Its utilisation is the driver's: the share of time
    in which any kernel ran, not of the machine that kernels filled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: list[int] = []
        self._done = threading.Event()

    def run(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        # One process that goes on telling: starting one takes longer than an iteration may.
        command += ["--id=0", f"--loop-ms={int(EVERY_S * 1000)}"]
        if shutil.which(command[0]) is None:
            return
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if self._done.is_set():
                break
            self.seen.append(int(line))
        process.terminate()
        process.wait()

    def mark(self) -> None:
        """Forget what was seen so far."""
        self.seen.clear()

    def stop(self) -> list[int]:
        self._done.set()
        self.join(timeout=5)
        return self.seen


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """One run: the metrics of all iterations but the first ones, which warm up, and the last, which
    writes a checkpoint."""
    import torch

    from sparring.run.config import load_recipe
    from sparring.training.loop import train

    overrides = [
        f"iterations={args.warm + args.iterations + 1}",
        f"checkpoint.every={args.warm + args.iterations + 2}",
        "evaluate.games=0",
        f"evaluate.every={args.warm + args.iterations + 2}",
        "guard.enabled=false",
        "tracking={tensorboard: false, wandb: never, trackio: never}",
        *([f"collect.episodes={args.episodes}"] if args.episodes else []),
        *(["collect.ahead=1"] if args.overlap else []),
        *args.set,
    ]
    lines: list[dict[str, Any]] = []
    cuda = torch.cuda.is_available()
    gauge = Gauge() if cuda else None
    if gauge:
        gauge.start()

    ended = time.perf_counter()

    def progress(metrics: dict[str, Any]) -> None:
        nonlocal ended
        if len(lines) < args.warm and gauge:
            gauge.mark()
        before, ended = ended, time.perf_counter()
        wall = ended - before
        lines.append({**metrics, "wall_s": wall, "time/record_s": wall - metrics["time/total_s"]})

    with tempfile.TemporaryDirectory() as folder:
        train(load_recipe(RECIPES[args.policy], overrides), Path(folder, "run"), progress=progress)
    seen = gauge.stop() if gauge else []
    if cuda:
        peak = torch.cuda.max_memory_reserved() / 2**30
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "iterations": lines[args.warm : -1],
        "first_s": lines[0]["time/total_s"],
        "compile_s": compile_seconds(),
        "gpu_utilisation": statistics.fmean(seen) if seen else None,
        "peak_gib": peak,
        "device": torch.cuda.get_device_name()
        if cuda
        else f"CPU, {torch.get_num_threads()} threads",
    }


def compile_seconds() -> float:
    """What torch.compile took in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    spent = dynamo.calculate_time_spent() if dynamo else {}
    return float(spent.get("total_wall_time", spent.get("entire_frame_compile", 0.0)))


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the iterations of all runs, the range of the runs' own medians, and the split of
    an iteration's time."""
    lines = [line for run in runs for line in run["iterations"]]

    def of(key: str) -> dict[str, Any]:
        each = [statistics.median(line[key] for line in run["iterations"]) for run in runs]
        values = [line[key] for line in lines]
        return {
            "median": statistics.median(values),
            "iterations": [min(values), max(values)],
            "rounds": [min(each), max(each)],
        }

    spent = {part: sum(line[f"time/{part}_s"] for line in lines) for part in SPLIT}
    whole = sum(line["wall_s"] - line["time/evaluate_s"] for line in lines)
    gpu = [run["gpu_utilisation"] for run in runs if run["gpu_utilisation"] is not None]
    return {
        "device": runs[0]["device"],
        "versions": {p: metadata.version(p) for p in ("torch", "transformers")}
        | {"python": platform.python_version()},
        "rounds": len(runs),
        "iterations": len(lines),
        "work": {
            k: statistics.median(x[k] for x in lines) for k in ("turns", "tokens", "lesson_tokens")
        },
        **{rate: of(rate) for rate in RATES},
        "iteration_s": of("wall_s"),
        "seconds": {part: seconds / len(lines) for part, seconds in spent.items()},
        # With overlap the parts come to more than the whole: that is what it is for.
        "share": {part: seconds / whole for part, seconds in spent.items()},
        **{key: max(run[key] for run in runs) for key in ("first_s", "compile_s")},
        "gpu_utilisation": statistics.fmean(gpu) if gpu else None,
        "peak_gib": max(run["peak_gib"] for run in runs),
        **(
            {"staleness": max(x["staleness/max"] for x in lines)}
            if "staleness/max" in lines[0]
            else {}
        ),
    }


def show(found: dict[str, Any]) -> None:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    work = found["work"]
    print(f"{found['device']}; {versions}")
    print(
        f"{found['iterations']} iterations in {found['rounds']} rounds, each of "
        f"{work['turns']:,.0f} turns, {work['tokens']:,.0f} tokens generated, "
        f"{work['lesson_tokens']:,.0f} learned from"
    )
    names = {
        "turns_per_s": "turns/s, playing and learning",
        "tokens_per_s": "tokens/s generated, while playing",
        "lesson_tokens_per_s": "tokens/s learned from, while learning",
        "iteration_s": "seconds an iteration, by the clock",
    }
    print(f"\n{'':40}{'median':>10}   iterations           rounds")
    for key, name in names.items():
        row = found[key]
        spans = [
            f"{_short(low)} to {_short(high)}" for low, high in (row["iterations"], row["rounds"])
        ]
        print(f"{name:40}{_short(row['median']):>10}   {spans[0]:20} {spans[1]}")
    print()
    for part, meaning in SPLIT.items():
        spent, share = found["seconds"][part], found["share"][part]
        print(f"{part:9}{spent:9.3f} s an iteration {share:7.1%}   {meaning}")
    gpu = found["gpu_utilisation"]
    unknown = "no GPU" if found["device"].startswith("CPU") else "not known, without nvidia-smi"
    print(f"\nGPU: {unknown if gpu is None else f'{gpu:.0f}% of the time'}")
    print(f"peak memory: {found['peak_gib']:.2f} GiB")
    first, compiling = found["first_s"], found["compile_s"]
    print(f"first iteration: {first:.1f} s; compiling in the whole run: {compiling:.1f} s")
    if "staleness" in found:
        print(f"staleness: {found['staleness']:g} versions at most")


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", choices=list(RECIPES), default="nano")
    parser.add_argument("--iterations", type=int, default=6, help="after those that warm up")
    parser.add_argument("--warm", type=int, default=1, help="iterations before, not counted")
    parser.add_argument(
        "--episodes", type=int, help="games an iteration; the recipe's, if not said"
    )
    parser.add_argument("--overlap", action="store_true", help="play the next games while learning")
    parser.add_argument("--rounds", type=int, default=3, help="whole runs")
    parser.add_argument(
        "--set", action="append", default=[], help="key=value, as in `sparring train`"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object, for machines")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args)))
        return
    runs = []
    for _ in range(args.rounds):
        command = [sys.executable, __file__, *sys.argv[1:], "--child"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(done.returncode)
        runs.append(json.loads(done.stdout.strip().splitlines()[-1]))
    found = summary(runs)
    if args.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()

"""A run that is killed at random moments, loses its judge and its disk, and is looked at all the
while, against the same run left alone: no game lost or counted twice, the same metrics, and how
memory grows.

nano plays four games (one of them judged in the jail) with a league and evaluations. The disturbed
run goes on for the time given and is then resumed to its end; a second run of as many iterations is
left alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import yaml

from sparring.core.types import Episode
from sparring.judge.sandbox import probe
from sparring.run.rundir import RunDir, read_lines

RECIPE: dict[str, Any] = {
    "seed": 0,
    "iterations": 1_000_000,  # until it is stopped
    "policy": "nano",
    "checkpoint": {"every": 2, "keep": 2},
    "games": {
        "tictactoe": {"style": "terse", "opening": 8},
        "kuhn": {"style": "terse"},
        "negotiation": {"style": "terse"},
        "code_execution": {"style": "terse", "timeout_s": 5, "max_tokens": 4},
    },
    "tasks": {"source": "shipped"},
    "opponents": {"kind": "league", "every": 2, "size": 4, "share": 0.5, "players": ["random"]},
    "collect": {"episodes": 48},
    "learn": {"weights": "full", "lr": 1e-3, "horizon": 1_000_000},
    "evaluate": {"every": 4, "games": 4, "final": 4, "ladder": 0},
    "tracking": {"tensorboard": False},
    "guard": {"enabled": False},
}
FULL_DISK = 64 << 10  # bytes that a file may still grow to: a log line fits, a checkpoint does not
PATIENCE_S = 300.0
Start = Callable[
    [Sequence[str], Path], Any
]  # words of the command, where it prints → a Popen, or what acts like one


def start_process(words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen([sys.executable, "-m", "sparring", *words], stdout=out, stderr=out)


def iterations(run: Path) -> int:
    return max((line["iteration"] for line in read_lines(run / "metrics.jsonl")), default=0)


def children(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


class Observer(threading.Thread):
    """Polls the view as a browser would, and notes how much memory processes hold."""

    def __init__(self, address: str, run: str) -> None:
        super().__init__(daemon=True)
        self.paths = [
            f"{address}/api/runs",
            *(f"{address}/api/runs/{run}{p}" for p in ("", "/games", "/ladder")),
        ]
        self.answers: Counter[int] = Counter()
        self.slowest_s = 0.0
        self.memory: dict[int, list[tuple[float, float]]] = {}  # of each process: seconds, MiB
        self.processes: list[Any] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self.stopped.wait(0.5):
                for path in self.paths:
                    began = time.monotonic()
                    try:
                        self.answers[client.get(path).status_code] += 1
                    except httpx.HTTPError:
                        self.answers[0] += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                for pid, samples in self.memory.items():
                    with suppress(psutil.Error):
                        mebibytes = psutil.Process(pid).memory_info().rss / 2**20
                        samples.append((time.monotonic(), mebibytes))

    def watch(self, process: Any) -> Any:
        self.memory = {**self.memory, process.pid: []}
        self.processes.append(process)
        return process

    def close(self) -> None:
        self.stopped.set()
        self.join()
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait(PATIENCE_S)


def slope(samples: Sequence[tuple[float, float]]) -> dict[str, Any] | None:
    """Mebibytes an hour over the second half, when all is warm, the mean of each quarter, and the
    most that was held."""
    half = samples[len(samples) // 2 :]
    if len(half) < 4 or half[-1][0] <= half[0][0]:
        return None
    held = [mebibytes for _, mebibytes in samples]
    quarters = [held[n * len(held) // 4 : (n + 1) * len(held) // 4] for n in range(4)]
    per_s = statistics.linear_regression(*zip(*half, strict=True)).slope
    return {
        "mib_per_hour": round(per_s * 3600, 1),
        "seconds": round(half[-1][0] - half[0][0]),
        "quarters_mib": [round(statistics.mean(quarter)) for quarter in quarters],
        "peak_mib": round(max(held)),
    }


def disturb(kind: str, process: Any) -> None:
    """`kill -9`, no room for another checkpoint, or the death of a jail of the judge."""
    if kind == "kill":
        left = children(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
        _, alive = psutil.wait_procs(left, timeout=30)
        if alive:
            raise SystemExit(f"processes outlived the run that was killed: {alive}")
    elif kind == "disk":
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FULL_DISK, hard))
        process.wait(PATIENCE_S)
    elif kind == "judge":
        until = time.monotonic() + PATIENCE_S
        while not (jails := children(process.pid)) and process.poll() is None:
            if time.monotonic() > until:
                raise SystemExit("the run has no judge that could be killed")
            time.sleep(0.02)
        for jail in jails[:1]:
            with suppress(psutil.NoSuchProcess):
                jail.kill()


def kinds(dice: random.Random) -> list[str]:
    once = (
        ["judge", "disk"] if hasattr(resource, "prlimit") else ["judge"]
    )  # macOS cannot limit another process
    dice.shuffle(once)
    return once


def disturbed(
    run: Path,
    train: Sequence[str],
    seconds: float,
    gap_s: float,
    seed: int,
    start: Start,
    observer: Observer,
) -> Counter[str]:
    """Resume the run until the time is over; every life but the last is ended from outside."""
    dice, done, until = random.Random(seed), Counter[str](), time.monotonic() + seconds
    due, furthest, kind = kinds(dice), 0, ""
    log = run.with_suffix(".log")
    while time.monotonic() < until or due or not done["kill"]:
        furthest = max(furthest, iterations(run))  # each blow comes after new work
        process = observer.watch(start([*train, "--run", str(run), "--resume"], log))
        while process.poll() is None:
            while process.poll() is None and iterations(run) <= furthest:
                time.sleep(0.05)
            furthest = max(furthest, iterations(run))
            with suppress(subprocess.TimeoutExpired):
                process.wait(dice.uniform(0, gap_s))
            if process.poll() is not None:
                break
            kind = due.pop() if due else "kill"
            disturb(kind, process)
            done[kind] += 1
        expected = {"kill": -signal.SIGKILL, "disk": 1}.get(kind)
        if process.poll() != expected:
            raise SystemExit(
                f"after {dict(done)} the run ended with {process.poll()}, not {expected}: see {log}"
            )
    return done


def finish(run: Path, train: Sequence[str], start: Start, observer: Observer, total: int) -> float:
    began = time.monotonic()
    log = run.with_suffix(".log")
    words = [*train, "--run", str(run), "--resume", f"iterations={total}"]
    process = observer.watch(start(words, log))
    process.wait(None)
    if process.poll() != 0:
        raise SystemExit(f"{run} ended with {process.poll()}: see {log}")
    return time.monotonic() - began


def facts(run: Path) -> list[dict[str, Any]]:
    """The metrics, less what the clock and the memory have to say."""
    lines = read_lines(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if not k.endswith(("_s", "_gb"))} for line in lines]


def timeless(episodes: list[Episode]) -> list[Episode]:
    """Games less the seconds that their verdicts took."""
    for episode in episodes:
        episode.verdicts = [replace(verdict, seconds=0.0) for verdict in episode.verdicts]
    return episodes


def compare(run: Path, alone: Path, episodes: int) -> dict[str, Any]:
    """What differs between the two runs, and whether each game is on record once."""
    mine, other = facts(run), facts(alone)
    keys = {
        k
        for a, b in zip(mine, other, strict=False)
        for k in a.keys() | b.keys()
        if a.get(k) != b.get(k)
    }
    folders = RunDir.existing(run), RunDir.existing(alone)
    steps = [line["iteration"] for line in mine]
    games = [[timeless(folder.read_episodes(step)) for step in steps if step] for folder in folders]
    ids = Counter(episode.id for step in games[0] for episode in step)
    weights = [
        {p.parent.name: p.read_text() for p in folder.checkpoints.glob("step_*/manifest.json")}
        for folder in folders
    ]
    return {
        "iterations": steps[-1],
        "games": sum(ids.values()),
        "games_lost": steps[-1] * episodes - len(ids),
        "games_twice": sum(count - 1 for count in ids.values()),
        "games_equal": games[0] == games[1],
        "metrics_equal": mine == other,
        "metrics_that_differ": sorted(keys),
        "iterations_in_order": steps == [line["iteration"] for line in other] == sorted(set(steps)),
        "checkpoints_equal": weights[0] == weights[1],
    }


def view(folder: Path, start: Start) -> tuple[Any, str]:
    log = folder / "view.log"
    process = start(["view", str(folder), "--port", "0"], log)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and process.poll() is None:
        lines = log.read_text().split() if log.exists() else []
        if address := next((word for word in lines if word.startswith("http")), None):
            return process, address.rstrip("/")
        time.sleep(0.1)
    raise SystemExit(f"the view did not start: see {log}")


def soak(
    folder: Path,
    seconds: float,
    *,
    gap_s: float = 45.0,
    seed: int = 0,
    changes: Sequence[str] = (),
    start: Start = start_process,
) -> dict[str, Any]:
    (folder / "soak.yaml").write_text("# a run to be disturbed\n" + yaml.safe_dump(RECIPE))
    sandbox = [] if probe().ok else ["sandbox=unsafe"]
    train = ["train", str(folder / "soak.yaml"), *sandbox, *changes]
    run, alone = folder / "disturbed", folder / "alone"
    server, address = view(folder, start)
    observer = Observer(address, run.name)
    observer.watch(server)
    observer.start()
    try:
        done = disturbed(run, train, seconds, gap_s, seed, start, observer)
        config = RunDir.existing(run).config()
        every = max(config.evaluate.every, config.checkpoint.every)
        total = (iterations(run) // every + 1) * every
        finish(run, train, start, observer, total)
        alone_s = finish(alone, train, start, observer, total)
        alone_pid = list(observer.memory)[-1]
    finally:
        observer.close()
    report = compare(run, alone, config.collect.episodes)
    report |= {
        "disturbances": dict(done),
        "view": {"answers": dict(observer.answers), "slowest_s": round(observer.slowest_s, 2)},
        "memory": {
            "run": slope(observer.memory[alone_pid]),
            "view": slope(observer.memory[server.pid]),
        },
        "alone_s": round(alone_s, 1),
        "seed": seed,
    }
    sound = report["games_equal"] and report["metrics_equal"] and report["checkpoints_equal"]
    whole = not report["games_lost"] and not report["games_twice"] and report["iterations_in_order"]
    # before the run's first line there is no run to be shown, which the view says with 404
    report["passed"] = bool(sound and whole and set(observer.answers) <= {200, 404})
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="of disturbance; the run alone comes after it"
    )
    parser.add_argument(
        "--gap",
        type=float,
        default=45.0,
        help="at most so many seconds from an iteration to a blow",
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="kept; otherwise a temporary one")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the recipe"
    )
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = words.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = soak(
            folder, 60 * words.minutes, gap_s=words.gap, seed=words.seed, changes=words.set
        )
    print(json.dumps(report, indent=1))
    sys.exit(not report["passed"])


if __name__ == "__main__":
    main()

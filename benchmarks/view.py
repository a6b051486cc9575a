"""How long the browser view takes to index a run's games, to show the first page of them, to filter
and search, and to draw sixty charts: in a real Chromium, as a person waits for it.

Without a run it writes one: tic-tac-toe between random players, 1,024 games an iteration.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sparring.core.collect import Job, collect
from sparring.core.scripted import ScriptedEngine, play_random
from sparring.core.types import derive
from sparring.run.config import dump, make_config
from sparring.run.games import load_game
from sparring.run.rundir import write_episodes
from sparring.view.episode_index import EpisodeIndex

PER_ITERATION = 1024
DRAW = """(points) => {
  const box = document.body.appendChild(document.createElement("div"));
  const x = [...Array(points).keys()];
  const started = performance.now();
  for (let i = 0; i < 60; i++) {
    const node = box.appendChild(document.createElement("div"));
    const ys = [x.map((t) => Math.sin(t / 9 + i))];
    window.sparring.mount(node, { x, ys, curves: [{ label: "a", colour: "curve-0" }] });
  }
  const took = performance.now() - started;
  box.remove();
  return took / 1000;
}"""


def make_run(folder: Path, games: int) -> Path:
    """A run's folder with this many games on record, no two iterations alike."""
    game = load_game("tictactoe", style="short")
    engine, seating = ScriptedEngine({"main": play_random}), dict.fromkeys(game.seats, "main")
    iterations = range(1, max(1, games // PER_ITERATION) + 1)
    for iteration in iterations:
        seeds = [derive(0, iteration, n) for n in range(min(games, PER_ITERATION))]
        jobs = [
            Job(f"{iteration}-{n}", "tictactoe", game, game.task(seed), seed, seating)
            for n, seed in enumerate(seeds)
        ]
        (folder / "episodes").mkdir(parents=True, exist_ok=True)
        path = folder / "episodes" / f"{iteration:06d}.jsonl.gz"
        write_episodes(path, asyncio.run(collect(jobs, engine.act)))
    (folder / "config.yaml").write_text(dump(make_config({"games": {"tictactoe": {}}})))
    lines = [json.dumps({"iteration": n, "learn/entropy": 1 / n}) for n in iterations]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def repeated(what: Callable[[], float], times: int) -> dict[str, float]:
    seconds = [what() for _ in range(times)]
    return {"median_s": round(statistics.median(seconds), 3), "worst_s": round(max(seconds), 3)}


def measure_pages(run: Path, address: str, repeats: int) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()

        def games(query: str) -> float:
            started = time.perf_counter()
            page.goto(f"{address}/run/{run.name}/games{query}")
            page.wait_for_selector("table.games tbody tr")
            return time.perf_counter() - started

        games("")
        queries = {"first page": "", "one iteration": "?iteration=1", "X wins": "?outcome=X+wins"}
        figures = {
            name: repeated(partial(games, query), repeats) for name, query in queries.items()
        }
        page.goto(f"{address}/run/{run.name}")
        page.wait_for_selector("figure.chart .u-over")
        figures["60 charts"] = repeated(lambda: page.evaluate(DRAW, 210), repeats)
        browser.close()
    return figures


def benchmark(run: Path, cache: Path, repeats: int) -> dict[str, Any]:
    index = EpisodeIndex(run, cache / "sparring" / "view")
    started = time.process_time()
    index.update()
    figures: dict[str, Any] = {"games": index.page({})["count"]}
    figures["indexed_cpu_s"] = round(time.process_time() - started, 1)
    command = [sys.executable, "-m", "sparring", "view", str(run), "--port", "0"]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = iter(server.stdout.readline, "")
        address = next(line.strip() for line in lines if line.startswith("http://"))
        return figures | measure_pages(run, address, repeats)
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, help="a run; one is written otherwise")
    parser.add_argument("--games", type=int, default=210 * PER_ITERATION)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or make_run(Path(folder) / "run", args.games)
        for name, figure in benchmark(run, Path(folder) / "cache", args.repeats).items():
            print(f"{name}: {figure}")


if __name__ == "__main__":
    main()

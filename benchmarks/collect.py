"""How many turns a second the game loop itself can drive, with players that cost next to nothing.

One process, one core, no model: tic-tac-toe between two random programs. What this measures is
what every pipeline pays per turn before a single token is sampled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

from sparring.core.collect import Job, collect
from sparring.core.scripted import ScriptedEngine, play_random
from sparring.core.types import derive
from sparring.run.games import load_game

GOAL = 5000  # turns a second


def make_jobs(name: str, style: str, games: int, seed: int) -> list[Job]:
    game = load_game(name, style=style)
    seating = {seat: "random" for seat in game.seats}
    return [
        Job(str(i), name, game, game.task(derive(seed, i)), derive(seed, i, "play"), seating)
        for i in range(games)
    ]


def measure(jobs: list[Job], concurrency: int) -> tuple[int, float]:
    """Turns played, and the processor time that took."""
    engine = ScriptedEngine({"random": play_random})
    start = time.process_time()
    episodes = asyncio.run(collect(jobs, engine.act, concurrency=concurrency))
    seconds = time.process_time() - start
    void = [episode.void for episode in episodes if episode.void]
    if void or len(episodes) != len(jobs):
        raise SystemExit(f"{len(void)} games were void, first: {void[:1]}")
    return sum(len(episode.turns) for episode in episodes), seconds


def benchmark(args: argparse.Namespace) -> dict[str, Any]:
    jobs = make_jobs(args.game, args.style, args.games, args.seed)
    measure(jobs[: max(1, args.games // 10)], args.concurrency)  # caches fill, imports happen
    runs = [measure(jobs, args.concurrency) for _ in range(args.repeats)]
    rates = [turns / seconds for turns, seconds in runs]
    return {
        "game": args.game,
        "style": args.style,
        "games": args.games,
        "concurrency": args.concurrency,
        "turns": runs[0][0],
        "turns_per_s": round(statistics.median(rates)),
        "turns_per_s_worst": round(min(rates)),
        "turns_per_s_best": round(max(rates)),
        "goal": GOAL,
        "reached": statistics.median(rates) >= GOAL,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="tictactoe")
    parser.add_argument("--style", default="terse")
    parser.add_argument("--games", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object, for machines")
    found = benchmark(args := parser.parse_args())
    if args.json:
        print(json.dumps(found))
        return
    verdict = "reached" if found["reached"] else "missed"
    print(
        f"{found['turns_per_s']:,} turns/s on one core "
        f"({found['turns_per_s_worst']:,} to {found['turns_per_s_best']:,} in {args.repeats} runs; "
        f"goal {GOAL:,}: {verdict}): {found['turns']:,} turns of {args.game} ({args.style}) "
        f"in {args.games:,} games, {args.concurrency} at a time"
    )


if __name__ == "__main__":
    main()

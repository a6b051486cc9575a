"""Are the last Alice's pairs harder than the first one's, for the first Bob and for the last?
`python benchmarks/pairs.py RUN` prints the rounds of a run of equivalence. Then its first players
(after imitation, where there was some) and its last ones meet, over programs that nobody learned
from, or with `--split train` over those that they did: there more of hers are equivalent.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

from sparring.core.collect import Job
from sparring.core.game import opened
from sparring.core.types import Episode, derive
from sparring.engines.load import add_policy, load_engine
from sparring.evaluation.sampling import as_trained
from sparring.run.games import make_games
from sparring.run.rundir import RunDir, read_lines
from sparring.tasks import load_tasks
from sparring.tasks.source import choose_task

GAME, SEATS, STEPS = "equivalence", ("alice", "bob"), ("0", "last")
BRANCHES = ("seq", "sinq")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--games", type=int, default=300)
    parser.add_argument("--split", choices=("train", "test"), default="test", help="of the tasks")
    options = parser.parse_args()
    print(*rounds(options.run), sep="\n")
    print("| Alice | Bob | pairs accepted, = and ≠ | difficulty | of = | of ≠ |")
    print("| --- | --- | --- | --- | --- | --- |")
    games = asyncio.run(play(options.run, options.games, options.split))
    for (alice, bob), episodes in games.items():
        felt = by_branch(episodes)
        counts = ", ".join(str(len(felt[branch])) for branch in BRANCHES)
        each = " | ".join(show(*mean(felt[branch])) for branch in BRANCHES)
        print(f"| {alice} | {bob} | {counts} | {show(*both(felt))} | {each} |")


def rounds(run: Path) -> list[str]:
    """What the run itself says of each round; round 0 is what Bob knew before the first."""
    lines = ["| round | accepted, = and ≠ | difficulty | Bob right, held out |"]
    lines.append("| --- | --- | --- | --- |")
    for line in read_lines(run / "metrics.jsonl"):
        counts = ", ".join(f"{line.get(f'equivalence/accepted_{b}', 0):g}" for b in BRANCHES)
        felt = line.get("equivalence/mean_difficulty")
        shown = "–" if felt is None else f"{felt:.2f}"
        lines.append(
            f"| {line['iteration']} | {counts} | {shown} | {line['pairs_eval/accuracy']:.3f} |"
        )
    return lines


async def play(path: Path, count: int, split: str) -> dict[tuple[str, str], list[Episode]]:
    """Every Alice against every Bob: the same seeds, so that either Bob is asked the same pairs."""
    config = RunDir.existing(path).config()
    engine, _ = load_engine(f"{path}@last:alice")
    for seat, step in product(SEATS, STEPS):
        add_policy(engine, f"{path}@{step}:{seat}", f"{seat} {step}")
    game = make_games(config.games)[GAME]
    tasks = load_tasks(config.tasks.source or f"shipped:{game.problems}", split)
    games = {}
    async with opened([game], config.sandbox):
        for alice, bob in product(STEPS, STEPS):
            seating = {"alice": f"alice {alice}", "bob": f"bob {bob}"}
            jobs = [
                Job(f"{i}", GAME, game, choose_task(tasks, 7, i), derive(7, i), seating)
                for i in range(count)
            ]
            played = await engine.collect(jobs, concurrency=512, sampling=as_trained(config))
            games[alice, bob] = [e for e in played if e.void is None]
    return games


def by_branch(episodes: list[Episode]) -> dict[str, list[float]]:
    """The difficulties of the pairs that were accepted."""
    accepted = [e.facts for e in episodes if e.facts["end"] == "accepted"]
    return {b: [f["difficulty"] for f in accepted if f["branch"] == b] for b in BRANCHES}


def mean(values: list[float]) -> tuple[float, float]:
    """And how far its 95 % interval reaches."""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.nan
    return fmean(values), 1.96 * stdev(values) / math.sqrt(len(values))


def both(felt: dict[str, list[float]]) -> tuple[float, float]:
    """Both branches weigh the same, however many pairs of each were accepted."""
    means = [mean(felt[branch]) for branch in BRANCHES]
    return fmean(m for m, _ in means), math.hypot(*(reach for _, reach in means)) / 2


def show(value: float, reach: float) -> str:
    return f"{value:.2f} ± {reach:.2f}"


if __name__ == "__main__":
    main()

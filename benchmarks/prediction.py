"""Does each side of the prediction game get better against the other's start? The base model, the
first checkpoint of a run (after imitation, where there was some) and its last one as author and as
predictor, each against each on the same problems: `python benchmarks/prediction.py RUN MBPP.jsonl`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

from sparring.core.collect import Job
from sparring.core.game import opened
from sparring.core.types import BASE, Episode, derive
from sparring.engines.load import add_policy, load_engine
from sparring.evaluation.sampling import as_trained
from sparring.run.games import make_games
from sparring.run.rundir import RunDir
from sparring.tasks import load_tasks

GAME, AUTHOR, PREDICTOR = "code_prediction", "author", "predictor"
Pair = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("problems", help="themes that nobody learned from: MBPP's test split")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--out", type=Path, help="a JSON file for the author's rewards")
    options = parser.parse_args()
    games = asyncio.run(play(options.run, options.problems, options.limit))
    rewards = {
        pair: {e.task.id: e.rewards[AUTHOR] for e in of_pair} for pair, of_pair in games.items()
    }
    print("| author | predictor | author's reward | programs that keep the rules | predicted |")
    print("| --- | --- | --- | --- | --- |")
    for (author, predictor), episodes in games.items():
        guesses = [e.facts["predicted"] for e in episodes if e.facts["predicted"] is not None]
        earned = fmean(rewards[author, predictor].values())
        asked, right = f"{len(guesses)} of {len(episodes)}", sum(guesses)
        print(f"| {author} | {predictor} | {earned:+.3f} | {asked} | {right} |")
    start, end = "0", "last"
    print("author against the predictor's start:", gain(rewards, (start, start), (end, start)))
    print("predictor against the author's start:", gain(rewards, (start, end), (start, start)))
    if options.out:
        table = {" | ".join(pair): of_pair for pair, of_pair in rewards.items()}
        options.out.write_text(json.dumps(table))


async def play(path: Path, problems: str, limit: int | None) -> dict[Pair, list[Episode]]:
    """Every author against every predictor; void games are left out."""
    config = RunDir.existing(path).config()
    engine, _ = load_engine(f"{path}@last:{AUTHOR}")
    for seat, step in product((AUTHOR, PREDICTOR), ("0", "last")):
        add_policy(engine, f"{path}@{step}:{seat}", f"{seat} {step}")
    game, tasks = make_games(config.games)[GAME], load_tasks(problems, "test", limit)
    games = {}
    async with opened([game], config.sandbox):
        for author, predictor in product((BASE, "0", "last"), repeat=2):
            seating = {
                seat: BASE if step == BASE else f"{seat} {step}"
                for seat, step in ((AUTHOR, author), (PREDICTOR, predictor))
            }
            jobs = [
                Job(f"{author}-{predictor}-{i}", GAME, game, task, derive(7, i), seating)
                for i, task in enumerate(tasks)
            ]
            played = await engine.collect(jobs, concurrency=512, sampling=as_trained(config))
            games[author, predictor] = [e for e in played if e.void is None]
    return games


def gain(rewards: dict[Pair, dict[str, float]], before: Pair, after: Pair) -> str:
    """The author's reward in `after` less that in `before`, over problems, with a 95 % interval."""
    first, second = rewards[before], rewards[after]
    differences = [second[task] - first[task] for task in first if task in second]
    reach = 1.96 * stdev(differences) / math.sqrt(len(differences))
    mean = fmean(differences)
    return f"{mean:+.3f} ({mean - reach:+.3f} to {mean + reach:+.3f})"


if __name__ == "__main__":
    main()

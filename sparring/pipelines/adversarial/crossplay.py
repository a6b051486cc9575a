"""Is it an arms race or a cycle? The generators and discriminators of all stages meet each other on
the same problems. A program does not hang on who tests it, nor a test on whose program it breaks:
each player speaks once per problem, and the judge brings the pairs together."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean
from typing import TYPE_CHECKING, Any

from sparring.core.game import opened
from sparring.core.table import Table
from sparring.core.types import Task, derive
from sparring.evaluation.sampling import as_trained
from sparring.evaluation.significance import wilson
from sparring.pipelines.adversarial.game import DISCRIMINATOR, GENERATOR, AdversarialTests, score
from sparring.pipelines.adversarial.problems import full_problem
from sparring.pipelines.adversarial.written_tests import VALID
from sparring.run import checkpoint
from sparring.run.config import Config
from sparring.run.games import make_games
from sparring.run.rundir import RunDir, read_log, write_whole
from sparring.tasks.source import held_out_tasks, training_tasks
from sparring.training.checkpoint_names import name_of
from sparring.training.imitation import sources

if TYPE_CHECKING:
    from sparring.engines.local.engine import TransformersEngine

UNTRAINED, IMITATED = "untrained", "after imitation"
_MOST_TESTS = 50


async def closing(run: RunDir) -> None:
    """What the end of a run in stages is measured by."""
    config = run.config()
    if config.schedule.enabled:
        count_bugs(run)
        if config.evaluate.ladder:
            await crossplay(run, config.evaluate.ladder)


async def crossplay(run: RunDir, games: int) -> None:
    """Write crossplay.json: every stage's generator against every stage's discriminator."""
    config = run.config()
    checkpoints = _checkpoints(run, config)
    played = [g for g in make_games(config.games).values() if isinstance(g, AdversarialTests)]
    if not played or len(checkpoints) < 2:
        return
    game = played[0]
    engine = _load(run, config, list(checkpoints.values()))
    tasks = held_out_tasks(config.tasks, game.problems) or training_tasks(
        config.tasks, game.problems
    )
    tasks = [task for task in tasks if not game.unusable(task)]
    if config.evaluate.temperature:  # players who are sampled may meet on a problem more than once
        tasks *= -(-games // len(tasks))
    async with opened([game], config.sandbox):
        results = await meet(game, engine, list(checkpoints), tasks[:games], config)
    write_whole(run.path / "crossplay.json", (json.dumps(results, indent=1) + "\n").encode())


def _checkpoints(run: RunDir, config: Config) -> dict[str, int | None]:
    """The steps of the first players and of those at the end of each stage, where both learned.
    Where the first ones were fitted to examples, the base model (None) is the untrained."""
    from sparring.run.schedule import steps_of

    steps = steps_of(config.schedule, make_games(config.games).values())
    there = set(checkpoint.steps(run.checkpoints))
    steps_by_name: dict[str, int | None] = {UNTRAINED: 0} if 0 in there else {}
    if sources(config) and steps_by_name:
        steps_by_name = {UNTRAINED: None, IMITATED: 0}
    for iteration, step in enumerate(steps, 1):
        if step.last and iteration in there and (run.checkpoints / name_of(step)).exists():
            steps_by_name[f"stage {step.stage}"] = iteration
    both = [
        (run.checkpoints / checkpoint.step_name(step) / f"{seat}.policy.safetensors").exists()
        for step in steps_by_name.values()
        if step is not None
        for seat in (GENERATOR, DISCRIMINATOR)
    ]
    return steps_by_name if both and all(both) else {}


def _load(run: RunDir, config: Config, steps: Sequence[int | None]) -> TransformersEngine:
    from sparring.engines.load import add_policy, load_engine

    first = f"{run.path}@{steps[-1]}:{GENERATOR}"
    engine, _ = load_engine(first, device=config.engine.device, dtype=config.engine.dtype)
    engine.max_batch = config.engine.max_batch
    for seat in (GENERATOR, DISCRIMINATOR):
        for index, step in enumerate(steps):
            policy = config.policy if step is None else f"{run.path}@{step}:{seat}"
            add_policy(engine, policy, f"{seat}{index}")
    return engine


async def meet(
    game: AdversarialTests,
    engine: TransformersEngine,
    names: Sequence[str],
    tasks: Sequence[Task],
    config: Config,
) -> dict[str, Any]:
    """Rows are discriminators, columns generators, both in the order of `names`. A discriminator
    wins a game in which a valid test of its own breaks the program; `broken` says on which of the
    problems, in their order."""
    indices = range(len(names))
    problems = [full_problem(task) for task in tasks]

    def table(index: int, problem: int) -> Table:
        seating = {seat: f"{seat}{index}" for seat in game.seats}
        seed = derive(config.seed, "crossplay", problem)
        return Table(
            game.seats, seating, engine.act, seed=seed, order=index * 10_000 + problem,
            sampling=as_trained(config, config.evaluate.temperature), outside=engine.outside,
        )  # fmt: skip

    async def program(index: int, i: int) -> str:
        replies = await game.reason(table(index, i)[GENERATOR], problems[i])
        return game.program(list(replies.values())[-1], problems[i])

    async def tests(index: int, i: int) -> str:
        return await game.write_tests(table(index, i)[DISCRIMINATOR], problems[i])

    each = [(index, i) for index in indices for i in range(len(problems))]
    programs = dict(zip(each, await asyncio.gather(*(program(*e) for e in each)), strict=True))
    written = dict(zip(each, await asyncio.gather(*(tests(*e) for e in each)), strict=True))
    wins, earned, lost = ([[0.0 for _ in indices] for _ in indices] for _ in range(3))
    broken, baseline = [["" for _ in indices] for _ in indices], [0.0 for _ in indices]
    for d in indices:
        for g in indices:
            rulings = await asyncio.gather(
                *(game.rule(p, programs[g, i], written[d, i]) for i, p in enumerate(problems))
            )
            scores = [score([v.passed for v in b], t, [v.passed for v in p]) for t, b, p in rulings]
            won = [any(not v.passed for v in passed) for _, _, passed in rulings]
            wins[d][g], broken[d][g] = fmean(won), "".join("01"[one] for one in won)
            baseline[g] = fmean(v.passed for _, verdicts, _ in rulings for v in verdicts)
            earned[d][g] = fmean(s.generator for s in scores)
            lost[d][g] = fmean(s.discriminator for s in scores)
    return {
        "names": list(names),
        "problems": len({task.id for task in tasks}),
        "games": len(problems),
        "sampling": asdict(as_trained(config, config.evaluate.temperature)),
        "discriminator_wins": wins,
        "interval_95": [[wilson(row.count("1"), len(row)) for row in line] for line in broken],
        "broken": broken,
        "baseline_passed": baseline,
        "generator_reward": earned,
        "discriminator_reward": lost,
        "over_time": over_time(wins),
    }


def over_time(wins: Sequence[Sequence[float]]) -> list[dict[str, float]]:
    """Per stage: how today's players do against today's others, against yesterday's on average, and
    against the one of yesterday's that is hardest for them (a cycle averages out). In an arms race
    none of yesterday's is harder than today's; where one is, what beat it was forgotten."""
    stages = []
    for k in range(1, len(wins)):
        broken = [wins[k][i] for i in range(k)]
        held = [1 - wins[i][k] for i in range(k)]
        stages.append(
            {
                "discriminator_against_todays": wins[k][k],
                "discriminator_against_yesterdays": fmean(broken),
                "discriminator_against_hardest": min(broken),
                "generator_against_todays": 1 - wins[k][k],
                "generator_against_yesterdays": fmean(held),
                "generator_against_hardest": min(held),
            }
        )
    return stages


def count_bugs(run: RunDir) -> None:
    """Write bugs.json: which tests broke how many programs, and in which stage."""
    stage_of = {
        line["iteration"]: line["schedule/stage"]
        for line in read_log(run.metrics)
        if "schedule/stage" in line
    }
    broke: Counter[tuple[str, str]] = Counter()
    ran: Counter[tuple[str, str]] = Counter()
    stages: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for iteration, stage in stage_of.items():
        for episode in run.read_episodes(iteration):
            for test in episode.facts.get("tests", []):
                if test["kind"] == VALID:
                    key = (episode.task.id, test["test"])
                    ran[key] += 1
                    if not test["passed"]:
                        broke[key] += 1
                        stages[key][str(stage)] += 1
    rows = [
        {"problem": key[0], "test": key[1], "broke": n, "ran": ran[key], "stages": stages[key]}
        for key, n in sorted(broke.items(), key=lambda item: (-item[1], item[0]))
    ]
    summary = {"tests": len(broke), "bugs": sum(broke.values()), "most": rows[:_MOST_TESTS]}
    write_whole(run.path / "bugs.json", (json.dumps(summary, indent=1) + "\n").encode())

"""The loop: collect, teach, fit, record. Everything else in the package is called from here."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.collect import Job, collect
from sparring.curriculum.opponents import Opponents, against_league
from sparring.curriculum.schedule import Step
from sparring.evaluate.held_out import evaluate_held_out
from sparring.evaluate.mbpp import evaluate_run
from sparring.game import Game, opened
from sparring.parts import Parts, build, resume_from, roll_back
from sparring.run import interrupt, needs
from sparring.run.config import Config
from sparring.run.metrics import lesson_tokens, place, summaries, summarize, timings
from sparring.run.named import due
from sparring.run.rundir import RunDir, append, read_lines
from sparring.run.tracking import Tracking
from sparring.tasks import draw
from sparring.types import Sampling, Task, derive

Progress = Callable[[dict[str, Any]], None]
log = logging.getLogger(__name__)


def train(
    config: Config,
    path: Path,
    *,
    resume: bool = False,
    resume_at: str | None = None,
    progress: Progress | None = None,
) -> RunDir:
    """Run a config into a folder, from the start or from its last good checkpoint; `resume_at`
    names another one."""
    parts = build(config, path)  # before the folder: what cannot be had leaves nothing behind
    run = RunDir.open(path, config, resume=resume or resume_at is not None)
    first = resume_from(run, parts, resume_at)
    for notice in parts.engine.notices():
        log.warning(notice)
        run.event(first, "not_trainable", notice)
    tracking = Tracking(config, run.path, first)
    try:
        with interrupt.listening():
            asyncio.run(_play(run, parts, tracking, first, progress or (lambda metrics: None)))
    except interrupt.Interrupted:
        parts.learner.dismiss()
        raise
    finally:
        tracking.close()
    parts.learner.dismiss()
    return run


async def _play(
    run: RunDir, parts: Parts, tracking: Tracking, first: int, progress: Progress
) -> None:
    async with opened(parts.games.values(), parts.config.sandbox):
        if not any(read_lines(run.metrics)):
            before = await evaluate_held_out(parts.config, parts.games, parts.engine)
            before |= await evaluate_run(parts.config, parts.engine, run.path, 0)
            if before:
                append(run.metrics, {"iteration": 0, **before})
                tracking.log({"iteration": 0, **before})
        try:
            await _loop(run, parts, tracking, first, progress)
        finally:
            await parts.engine.close()


async def _loop(
    run: RunDir, parts: Parts, tracking: Tracking, first: int, progress: Progress
) -> None:
    config = parts.config
    for iteration in range(first + 1, config.iterations + 1):
        started, _ = time.perf_counter(), parts.engine.clock.take()
        step = parts.steps[iteration - 1] if parts.steps else None
        jobs = make_jobs(config, parts.games, parts.opponents, iteration, parts.tasks, step)
        episodes = await collect(
            jobs,
            parts.engine.act,
            concurrency=config.collect.concurrency,
            sampling=Sampling(**config.sampling.model_dump()),
            outside=parts.engine.outside,
        )
        split, collected = parts.engine.clock.take(), time.perf_counter()
        async with parts.engine.learning():
            lessons, told = parts.teacher.lessons(episodes, iteration, run.path)
            stats = parts.learner.fit(lessons, iteration - 1, config.iterations)
            parts.teacher.learned(parts.learner.policies, iteration, run.path)
        parts.opponents.learn_scores(against_league(episodes))
        parts.opponents.grow(parts.learner.policies, iteration)
        learned = time.perf_counter()
        metrics = {"iteration": iteration, **place(step), **summarize(episodes), **told, **stats}
        metrics["lesson_tokens"] = lesson_tokens(lessons)
        metrics |= summaries(parts.games, episodes) | parts.engine.metrics()
        metrics |= {
            f"baseline/{k}": v for k, v in parts.credit.state().get("baselines", {}).items()
        }
        if iteration % config.evaluate.every == 0 or iteration == config.iterations:
            metrics |= await _evaluate(parts)
            metrics |= await evaluate_held_out(config, parts.games, parts.engine)
        metrics |= await evaluate_run(config, parts.engine, run.path, iteration)
        ended = time.perf_counter()
        metrics |= timings(
            metrics,
            split,
            collect=collected - started,
            learn=learned - collected,
            evaluate=ended - learned,
            total=ended - started,
        )
        reason = parts.guard.watch(metrics)
        if reason:
            roll_back(run, parts, iteration, reason)
            metrics["guard/rollbacks"] = parts.guard.rollbacks
        run.record(metrics, episodes)
        tracking.log(metrics)
        best = (
            not reason
            and "eval/score" in metrics
            and parts.guard.improved(metrics["eval/score"], iteration)
        )
        if (
            best
            or iteration % config.checkpoint.every == 0
            or iteration == config.iterations
            or (step is not None and due(config, step))
            or interrupt.asked()
        ):
            parts.save(run, iteration)
        progress(metrics)
        interrupt.leave(iteration, config.iterations)


def make_jobs(
    config: Config,
    games: dict[str, Game],
    opponents: Opponents,
    iteration: int,
    tasks: Mapping[str, Sequence[Task]] | None = None,
    step: Step | None = None,
) -> list[Job]:
    """One iteration's games. Their seeds and tasks come from the run's seed, so that any
    iteration can be played again without those before it. A step of a schedule says which seat
    learns, and from which stage."""
    names = list(games)
    weights = [float(config.games[name].get("weight", 1.0)) for name in names]
    learned = frozenset(needs.learned_policies(config, games.values()))
    learning = needs.learning_seats(config, games.values())
    stages = None
    if step is not None:
        learning &= {step.seat}
        stages = None if config.schedule.together else frozenset({step.name})
    tables = -(-config.collect.episodes // config.collect.group)
    jobs = []
    for i in range(config.collect.episodes):
        table, seed = i // config.collect.group, derive(config.seed, iteration, i)
        of_group = derive(config.seed, iteration, "group", table)
        name = random.Random(of_group).choices(names, weights)[0]
        given, place = (tasks or {}).get(name), (iteration - 1) * tables + table
        jobs.append(
            Job(
                id=f"{iteration}-{i}",
                name=name,
                game=games[name],
                task=draw(given, config.seed, place) if given else games[name].task(of_group),
                seed=seed,
                seating=opponents.seating(games[name].seats, i, seed),
                group=f"{iteration}-{table}",
                learned=learned,
                learning=learning,
                stages=stages,
            )
        )
    return jobs


async def _evaluate(parts: Parts) -> dict[str, float]:
    from sparring.evaluate.standard import as_metrics, evaluate

    config = parts.config.evaluate
    found, _ = await evaluate(
        parts.games,
        parts.engine,
        count=config.games,
        seed=parts.config.seed,
        temperature=config.temperature,
    )
    return as_metrics(found)

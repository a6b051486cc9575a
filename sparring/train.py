"""The loop: collect, teach, fit, record. Everything else in the package is called from here."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.collect import Job, collect
from sparring.credit import Credit, make_credit
from sparring.credit.samples import to_samples
from sparring.curriculum.opponents import Opponents, against_league
from sparring.evaluate.mbpp import evaluate_run
from sparring.game import Game, opened
from sparring.games import make_games
from sparring.run import checkpoint, needs
from sparring.run.config import Config, ConfigError
from sparring.run.guard import Guard
from sparring.run.metrics import summarize, timings
from sparring.run.policy import base_name
from sparring.run.rundir import RunDir, RunError, append, read_lines
from sparring.run.tracking import Tracking
from sparring.tasks import draw
from sparring.types import Episode, Sample, Sampling, Task, derive

if TYPE_CHECKING:
    from sparring.engines.transformers import TransformersEngine
    from sparring.learn.learner import Learner

log = logging.getLogger(__name__)
Progress = Callable[[dict[str, Any]], None]


@dataclass
class Parts:
    """What a run is made of. Whatever shapes the next step can say its state and take it back."""

    config: Config
    games: dict[str, Game]
    learner: Learner
    engine: TransformersEngine
    credit: Credit
    opponents: Opponents
    guard: Guard
    tasks: dict[str, list[Task]]  # of the games that do not make their own

    def save(self, run: RunDir, iteration: int) -> None:
        learner, league = self.learner, self.opponents.league
        tensors = learner.state()
        tensors |= {f"league.{name}": learner.policies.state(name) for name in league}
        state = {
            "iteration": iteration,
            "credit": self.credit.state(),
            "opponents": self.opponents.state(),
            "guard": self.guard.state(),
            "lr_scale": learner.lr_scale,
            "versions": {n: learner.policies.version(n) for n in learner.policies.names()},
        }
        checkpoint.save(run.checkpoints, iteration, tensors, state)
        checkpoint.tidy(run.checkpoints, self.config.checkpoint.keep, self.guard.best_step)

    def load(self, tensors: checkpoint.Tensors, state: dict[str, Any]) -> None:
        self.opponents.load(state["opponents"], self.learner.policies)
        self.learner.load(tensors)
        for name in self.opponents.league:
            self.learner.policies.load(name, tensors[f"league.{name}"])
        for name, version in state["versions"].items():
            self.learner.policies.set_version(name, version)
        self.credit.load(state["credit"])
        self.guard.load(state["guard"])
        self.learner.lr_scale = state["lr_scale"]


def train(
    config: Config, path: Path, *, resume: bool = False, progress: Progress | None = None
) -> RunDir:
    """Run a config into a folder, from the start or from its last good checkpoint."""
    parts = build(config)  # before the folder: a model that cannot be had leaves nothing behind
    run = RunDir.open(path, config, resume=resume)
    first = resume_from(run, parts)
    tracking = Tracking(config, run.path, first)
    try:
        asyncio.run(_play(run, parts, tracking, first, progress or (lambda metrics: None)))
    finally:
        tracking.close()
    return run


async def _play(
    run: RunDir, parts: Parts, tracking: Tracking, first: int, progress: Progress
) -> None:
    async with opened(parts.games.values(), parts.config.sandbox):
        if not any(read_lines(run.metrics)):
            before = await evaluate_run(parts.config, parts.engine, run.path, 0)
            if before:
                append(run.metrics, {"iteration": 0, **before})
                tracking.log({"iteration": 0, **before})
        await _loop(run, parts, tracking, first, progress)


async def _loop(
    run: RunDir, parts: Parts, tracking: Tracking, first: int, progress: Progress
) -> None:
    config = parts.config
    for iteration in range(first + 1, config.iterations + 1):
        started = time.perf_counter()
        jobs = make_jobs(config, parts.games, parts.opponents, iteration, parts.tasks)
        episodes = await collect(
            jobs,
            parts.engine.act,
            concurrency=config.collect.concurrency,
            sampling=Sampling(**config.sampling.model_dump()),
            outside=parts.engine.outside,
        )
        collected = time.perf_counter()
        lessons = teach(parts.credit, episodes)
        stats = parts.learner.fit(lessons, iteration - 1, config.iterations)
        parts.opponents.learn_scores(against_league(episodes))
        parts.opponents.grow(parts.learner.policies, iteration)
        learned = time.perf_counter()
        metrics = {"iteration": iteration, **summarize(episodes), **stats}
        metrics |= {
            f"baseline/{k}": v for k, v in parts.credit.state().get("baselines", {}).items()
        }
        if iteration % config.evaluate.every == 0 or iteration == config.iterations:
            metrics |= await _evaluate(parts)
        metrics |= await evaluate_run(config, parts.engine, run.path, iteration)
        metrics |= timings(metrics, started, collected, learned, time.perf_counter())
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
        if best or iteration % config.checkpoint.every == 0 or iteration == config.iterations:
            parts.save(run, iteration)
        progress(metrics)


def teach(credit: Credit, episodes: list[Episode]) -> list[Sample]:
    """Episodes to samples. A void episode moves no baseline and trains nobody."""
    fair = [e for e in episodes if e.void is None]
    return to_samples(fair, credit.advantages(fair))


def make_jobs(
    config: Config,
    games: dict[str, Game],
    opponents: Opponents,
    iteration: int,
    tasks: Mapping[str, Sequence[Task]] | None = None,
) -> list[Job]:
    """One iteration's games. Their seeds and tasks come from the run's seed, so that any
    iteration can be played again without those before it."""
    names = list(games)
    weights = [float(config.games[name].get("weight", 1.0)) for name in names]
    learned = frozenset(needs.learned_policies(config, games.values()))
    learning = needs.learning_seats(config, games.values())
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
            )
        )
    return jobs


def roll_back(run: RunDir, parts: Parts, iteration: int, reason: str) -> None:
    """Back to the best checkpoint, more carefully; or stop, if that is what was asked for."""
    guard, config = parts.guard, parts.config.guard
    step = guard.best_step or 0
    if config.action == "stop" or guard.rollbacks >= config.most:
        run.event(iteration, "stopped", reason)
        raise RunError(
            f"the run collapsed at iteration {iteration}: {reason}. The best checkpoint is "
            f"{checkpoint.step_name(step)}; guard.action and guard.most say when to stop."
        )
    kept, scale = guard.state(), parts.learner.lr_scale
    parts.load(*checkpoint.load(run.checkpoints, step))
    guard.load(kept)
    guard.rolled_back()
    parts.learner.lr_scale = scale * config.lr_factor
    run.event(iteration, "rollback", f"{reason}; back to {checkpoint.step_name(step)}")


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


def resume_from(run: RunDir, parts: Parts) -> int:
    """The iteration to go on after. A run that has no checkpoint yet begins by making one."""
    found = checkpoint.load_latest(run.checkpoints)
    if found is None:
        run.rewind(0)
        parts.save(run, 0)
        return 0
    step, tensors, state, problems = found
    parts.load(tensors, state)
    run.rewind(step)
    checkpoint.point(run.checkpoints, "best", parts.guard.best_step)
    for problem in problems:
        log.warning("%s; going on from %s", problem, checkpoint.step_name(step))
        run.event(step, "damaged_checkpoint", problem)
    if step > 0:
        run.event(step, "resumed", f"from {checkpoint.step_name(step)}")
    return step


def build(config: Config) -> Parts:
    """Load the model and put the parts together."""
    from sparring.engines.transformers import TransformersEngine
    from sparring.learn.device import choose_device, fast_allocations
    from sparring.learn.learner import Learner
    from sparring.learn.policies import load_policies

    if not config.games:
        raise ConfigError("a run needs at least one game under `games:`")
    games = make_games(config.games)
    tasks = needs.tasks_of(config, games)
    needs.need_mbpp(config)
    needs.need_jail(config, games.values())
    fast_allocations()
    device, dtype = choose_device(config.engine.device, config.engine.dtype)
    policies = load_policies(
        config.policy, config.learn, device=device, dtype=dtype, seed=config.seed
    )
    learner = Learner(
        policies,
        needs.learned_policies(config, games.values()),
        config.learn,
        seed=config.seed,
        canary=config.canary,
        max_tokens=config.sampling.max_tokens,
    )
    engine = TransformersEngine(
        policies, max_batch=config.engine.max_batch, lockstep=config.engine.lockstep
    )
    engine.base = base_name(config.policy, config.seed)
    needs.seat_players(config, engine)
    credit = make_credit(**config.credit.model_dump())
    opponents = Opponents(config.opponents, config.players)
    return Parts(config, games, learner, engine, credit, opponents, Guard(config.guard), tasks)

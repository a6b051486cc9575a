"""The loop: collect, teach, fit, record. Everything else in the package is called from here."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sparring.core.game import opened
from sparring.core.types import MAIN
from sparring.credit.group_relative import differing, groups
from sparring.engines.published import check_versions
from sparring.evaluation.held_out import evaluate_held_out
from sparring.evaluation.periodic import due, evaluate_periodically, wanted
from sparring.evaluation.sampling import as_trained
from sparring.models.compute_thread import workbench
from sparring.models.device import choose_device
from sparring.run import checkpoint, interrupt
from sparring.run.config import Config
from sparring.run.job import checkpoint_due, run_steps, working_in
from sparring.run.rundir import RunDir, append, read_log
from sparring.run.schedule import Step
from sparring.run.tracking import Tracking
from sparring.training import checkpoint_names, imitation, requirements
from sparring.training.imitation import Demonstrated, first_line, gather, imitate
from sparring.training.metrics import (
    lesson_tokens,
    memory_peaks,
    schedule_position,
    staleness,
    summaries,
    summarize,
    timings,
)
from sparring.training.opponents import against_league, measure, write_population
from sparring.training.overlap import Ahead, InTurn, Played, held_to_who_spoke
from sparring.training.state import Parts, build, resume_from, roll_back, stop_if_void

Progress = Callable[[dict[str, Any]], None]
log = logging.getLogger(__name__)
YOUNG = 500_000  # objects that an iteration may make before they are scanned for garbage
FULL = 10  # iterations from one scan of all objects to the next


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
    engine = config.engine
    device = choose_device(engine.device, engine.dtype, config.learn.weights)[0]
    with working_in(path), workbench(device):
        if resume_at is not None:
            # One that is not there makes no folder.
            checkpoint_names.find(path / "checkpoints", resume_at)
        # Before the folder: what cannot be had leaves nothing behind.
        parts = build(config, path)
        demonstrated = gather(parts, path)
        run = RunDir.open(path, config, resume=resume or resume_at is not None)
        try:
            asyncio.run(_play(run, parts, demonstrated, resume_at, progress or (lambda _: None)))
        except (interrupt.Interrupted, interrupt.Left):
            parts.learner.dismiss()
            raise
        parts.learner.dismiss()
        return run


async def _play(
    run: RunDir,
    parts: Parts,
    demonstrated: Demonstrated | None,
    resume_at: str | None,
    progress: Progress,
) -> None:
    async with opened(parts.curriculum.all_games(), parts.config.jail):
        try:
            if demonstrated is not None:
                with interrupt.deferred("epoch"):
                    await imitate(run, parts, demonstrated, partial(_measure, parts))
            first = resume_from(run, parts, resume_at)
            imitation.tidy(run.path)
            for notice in parts.engine.notices():
                log.warning(notice)
                run.event(first, "not_trainable", notice)
            with closing(Tracking(parts.config, run.path, first)) as tracking:
                await _record_first(run, parts, tracking)
                await _loop(run, parts, tracking, first, progress)
        finally:
            for players in {parts.engine, parts.collecting}:
                await players.close()


async def _record_first(run: RunDir, parts: Parts, tracking: Tracking) -> None:
    """Iteration 0: what there is to say of the policies before they play for rewards."""
    if any(read_log(run.metrics)):
        return
    before = first_line(run.path)
    if not before:
        before = await evaluate_held_out(parts.config, parts.games, parts.engine)
        before |= await evaluate_periodically(parts.config, parts.engine, run.path, 0)
    if before:
        append(run.metrics, {"iteration": 0, **before})
        tracking.log({"iteration": 0, **before})


async def _loop(
    run: RunDir, parts: Parts, tracking: Tracking, first: int, progress: Progress
) -> None:
    if first == 0 and parts.config.opponents.kind == "league":
        # Later checkpoints hold what was played here.
        await measure(parts, parts.opponents.everyone())
        write_population(parts.opponents, run.path, 0)
    batches = Ahead(parts, first) if parts.config.collect.ahead else InTurn(parts)

    async def step(indices: range) -> None:
        await _iterate(run, parts, tracking, batches, progress, indices)
        # Now that its games are gone; what has been kept for long is looked through now and then.
        gc.collect(2 if indices.stop % FULL == 0 else 1)

    try:
        with _rare_garbage_collection():
            await run_steps(first, parts.config.iterations, step)
    finally:
        await batches.close()


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """The model and libraries stay, and the games of an iteration live until its end: scanning
    them for garbage again and again took a fifth of a run, and then another."""
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


async def _iterate(
    run: RunDir,
    parts: Parts,
    tracking: Tracking,
    batches: InTurn | Ahead,
    progress: Progress,
    indices: range,
) -> None:
    iteration = indices.stop
    config, step = parts.config, parts.steps[iteration - 1] if parts.steps else None
    started = time.perf_counter()
    played = await _played(run, parts, batches, iteration)
    episodes, collected = played.episodes, time.perf_counter()
    with _given_up_at_checkpoint(run, config):
        stats = await batches.learn(partial(_learn, run, parts, played, iteration))
    parts.opponents.learn_scores(against_league(episodes, parts.opponents.everyone()))
    joined = parts.opponents.grow(parts.learner.policies, iteration)
    parts.gate.update(episodes)
    learned = time.perf_counter()
    if joined:  # before later games are planned: whom they are played against is a matter of these
        await measure(parts, parts.opponents.league)
    batches.learned(iteration)
    metrics = {"iteration": iteration, **schedule_position(step), **summarize(episodes)}
    if iteration == 1 and (hint := requirements.nano_hint(config, metrics["length/tokens"])):
        log.warning(hint)
    metrics |= stats
    metrics |= summaries(parts.games, episodes) | parts.collecting.metrics()
    metrics |= parts.curriculum.metrics() | parts.gate.metrics(parts.tasks)
    metrics |= {f"baseline/{k}": v for k, v in parts.credit.state().get("baselines", {}).items()}
    if due(config.evaluate.every, config, iteration) or wanted(config):
        with _given_up_at_checkpoint(run, config):
            metrics |= await interrupt.in_time(
                _measure(parts, run.path, iteration), interrupt.GRACE_S
            )
    ended = time.perf_counter()
    metrics |= timings(
        metrics,
        played.split,
        collect=played.seconds,
        learn=learned - collected,
        evaluate=ended - learned,
        total=ended - started,
    )
    metrics |= memory_peaks()
    reason = parts.guard.watch(metrics)
    if reason:
        await _roll_back(run, parts, batches, iteration, reason)
        metrics["guard/rollbacks"] = parts.guard.rollbacks
    else:
        for raised in parts.curriculum.watch(metrics):
            run.event(iteration, "curriculum", raised)
    if joined or (reason and parts.config.opponents.kind == "league"):
        write_population(parts.opponents, run.path, iteration)
    run.record(metrics, played.encoded)
    tracking.log(metrics)
    stop_if_void(run, parts, iteration, episodes)
    if _checkpoint_due(parts, metrics, step):
        parts.save(run, iteration, await batches.state(iteration))
    progress(metrics)


@contextmanager
def _given_up_at_checkpoint(run: RunDir, config: Config) -> Iterator[None]:
    """What may be given up after a signal when the weights have moved, and no checkpoint can be
    written of the iteration: a resumed run repeats it from the last one there is."""
    try:
        with interrupt.limited():
            yield
    except interrupt.GivenUp:
        interrupt.leave(max(checkpoint.steps(run.checkpoints)), config.iterations)
        raise


async def _roll_back(
    run: RunDir, parts: Parts, batches: InTurn | Ahead, iteration: int, reason: str
) -> None:
    roll_back(run, parts, iteration, reason)
    if parts.config.opponents.kind == "league":  # the first checkpoint is older than its matches
        await measure(parts, parts.opponents.everyone())
    await batches.rolled_back(iteration)


async def _measure(parts: Parts, folder: Path, iteration: int = 0) -> dict[str, float]:
    """The evaluations that are due at an iteration, before the first all of them; details go into
    the folder."""
    config, metrics = parts.config, dict[str, float]()
    if due(config.evaluate.every, config, iteration):
        metrics |= await _evaluate(parts)
        metrics |= await evaluate_held_out(config, parts.games, parts.engine)
    return metrics | await evaluate_periodically(config, parts.engine, folder, iteration)


def _checkpoint_due(parts: Parts, metrics: dict[str, Any], step: Step | None) -> bool:
    """Whether to save: as often as the config says, after a stage, and the best so far."""
    config, iteration, score = parts.config, metrics["iteration"], metrics.get("eval/score")
    rolled_back = "guard/rollbacks" in metrics
    best = score is not None and not rolled_back and parts.guard.improved(score, iteration)
    regular = checkpoint_due(iteration, config.iterations, config.checkpoint.every)
    return best or regular or (step is not None and checkpoint_names.due(config, step))


async def _played(run: RunDir, parts: Parts, batches: InTurn | Ahead, iteration: int) -> Played:
    """An iteration's games. When a signal cancels them, a checkpoint of the iteration before is
    written: the weights have not moved since."""
    try:
        return await batches.played(iteration)
    except interrupt.GivenUp:
        if iteration - 1 not in checkpoint.steps(run.checkpoints):
            parts.save(run, iteration - 1, await batches.state(iteration - 1))
        raise


def _learn(run: RunDir, parts: Parts, played: Played, iteration: int) -> dict[str, float]:
    """One iteration of learning: its metrics."""
    from sparring.learn.canary import spoken_gaps

    requirements.need_whole_draws(parts.config, played.episodes)
    policies = parts.learner.policies
    versions = {name: policies.version(name) for name in policies.names()}
    check_versions(played.episodes, versions, parts.config.collect.ahead)
    behind = staleness(played.episodes, versions)
    episodes = played.episodes
    if parts.config.collect.filter_groups:
        episodes = differing(episodes, parts.credit)
        behind["rate/filtered_groups"] = 1 - groups(episodes) / max(1, groups(played.episodes))
    learn, limit = parts.config.learn, parts.config.canary
    if learn.restart and learn.objective == "policy" and not learn.shard:  # who needs all to read
        # Before the learner goes back to where it began: then the weights that spoke are gone.
        played.canary = spoken_gaps(parts.learner, policies, played.episodes, limit)
    lessons, of_teacher = parts.teacher.lessons(episodes, iteration, run.path)
    iterations = parts.config.iterations
    stats = parts.learner.fit(lessons, iteration - 1, iterations, lambda: played.encoded)
    parts.teacher.learned(policies, iteration, run.path)
    metrics = {"lesson_tokens": lesson_tokens(lessons), **behind, **of_teacher, **stats}
    return held_to_who_spoke(metrics, played.canary)


async def _evaluate(parts: Parts) -> dict[str, float]:
    from sparring.evaluation.standard import as_metrics, evaluate

    if MAIN not in parts.learner.policies.names():  # seats of their own have no common opponent
        return {}
    config = parts.config.evaluate
    results, _ = await evaluate(
        parts.games,
        parts.engine,
        count=config.games,
        seed=parts.config.seed,
        sampling=as_trained(parts.config),
        temperature=config.temperature,
        most_states=config.states,
    )
    return as_metrics(results)

"""Supervised fitting as a run: epochs over the same lessons, a checkpoint after each, and a folder
that is a policy wherever one is asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Lesson, members
from sparring.learn.demonstrations import Demonstration, to_samples
from sparring.models.chat import Chat
from sparring.models.compute_thread import on_bench, threads, use_threads
from sparring.models.device import choose_device
from sparring.run import checkpoint, interrupt, rank
from sparring.run.config import Config, make_config
from sparring.run.job import checkpoint_due, resume_latest, run_steps, working_in
from sparring.run.rundir import RunDir, append, digest, read_object, write_json
from sparring.training.metrics import lesson_tokens, memory_peaks

if TYPE_CHECKING:
    from sparring.learn.distributed.world import World
    from sparring.learn.learner import Learner
    from sparring.models.policies import Policies

LESSONS = "lessons.json"  # which lessons a folder was fitted to
Progress = Callable[[dict[str, Any]], None]
Make = Callable[[Chat], Sequence[Lesson]]
Ready = Callable[["Learner", RunDir, Sequence[Lesson]], None]


def finetune_config(
    model: str, *, epochs: int = 3, seed: int = 0, template: str | None = None, **learn: Any
) -> Config:
    """The config of a supervised run; the defaults are those that LoRA papers share."""
    settings = {
        "objective": "likelihood",
        "lora_r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.05,
        "lr": 2e-4,
        "schedule": "linear",
        "lr_floor": 0.0,
        "batch": 16,
        **learn,
    }
    data = {"recipe": "finetune", "policy": model, "iterations": epochs, "seed": seed}
    data["template"] = template
    return make_config({**data, "learn": settings, "checkpoint": {"every": 1}})


def finetune(
    config: Config,
    path: Path,
    demonstrations: Sequence[Demonstration],
    *,
    name: str = MAIN,
    start: str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> RunDir:
    """Fit a policy to demonstrations, from the start or from the last epoch that is whole."""
    if not demonstrations:
        raise ConfigError("there is no demonstration to learn from")
    if start is not None:
        config = config.model_copy(update={"begin": {name: start}})
    facts = {"kind": "demonstrations", "count": len(demonstrations), "from": start or ""}
    facts["sha256"] = digest([asdict(one) for one in demonstrations])
    make = partial(to_samples, demonstrations=demonstrations, policy=name)
    return fit_run(config, path, make, facts, name=name, resume=resume, progress=progress)


def fit_run(
    config: Config,
    path: Path,
    make: Make,
    facts: dict[str, Any],
    *,
    ready: Ready | None = None,
    name: str = MAIN,
    resume: bool = False,
    progress: Progress | None = None,
) -> RunDir:
    """Epochs over the lessons that `make` gives; `facts` says which they are, and a folder that was
    fitted to others is refused. `ready` may add to the lessons what only the model knows."""
    with working_in(path):
        if (path / LESSONS).is_file() and read_object(path / LESSONS) != facts:
            raise ConfigError(f"{path} was fitted to other lessons; choose another folder")
        with learning(config, path, name) as learner:
            # Before the folder: what cannot be used leaves nothing behind.
            made, limit = make(Chat(learner.policies.tokenizer)), learner.policies.context
            sizes = [max(len(sample.ids) for sample in members(lesson)) for lesson in made]
            lessons = [x for x, n in zip(made, sizes, strict=True) if limit is None or n <= limit]
            if not lessons:
                kind = facts["kind"]
                raise ConfigError(f"all of these {kind} are longer than the model's {limit} tokens")
            run = RunDir.open(path, config, resume=resume)
            write_json(path / LESSONS, facts)
            first = resume_fit(run, learner)
            if ready is not None:
                ready(learner, run, lessons)
            epochs, every = config.iterations, config.checkpoint.every
            fit = fit_epochs(run, learner, lessons, first, epochs, every=every, progress=progress)
            asyncio.run(fit)
            export_adapter(learner.policies, name, config, path / "adapter")
    return run


async def fit_epochs(
    run: RunDir,
    learner: Learner,
    lessons: Sequence[Lesson],
    first: int,
    epochs: int,
    *,
    every: int = 1,
    keep: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Go over the lessons, from epoch `first` on; a line of metrics for each, a checkpoint for
    every `every`-th, of which the last `keep` stay."""
    tokens = lesson_tokens(lessons)

    async def fit(indices: range) -> None:
        epoch, began = indices.stop, time.perf_counter()
        with interrupt.limited():
            stats = await on_bench(partial(learner.fit, lessons, epoch - 1, epochs))
        spent = time.perf_counter() - began
        metrics = {"iteration": epoch, "lessons": len(lessons), **stats}
        metrics |= {"time/learn_s": spent, "tokens_per_s": tokens / spent, **memory_peaks()}
        append(run.metrics, metrics)
        if checkpoint_due(epoch, epochs, every):
            _save(run, learner, epoch)
            if keep is not None:
                checkpoint.prune(run.checkpoints, keep, set())
        if progress is not None:
            progress(metrics)

    await run_steps(first, epochs, fit, what="epoch")


@contextmanager
def learning(config: Config, path: Path, name: str) -> Iterator[Learner]:
    """The learner while it is needed. Where a launcher started several processes, the others make
    one like it and do what this one does, until it is done or leaves in good order."""
    from sparring.learn.distributed.distributed_learner import make_learner

    if rank.size() > 1:
        _all(config.engine.device).broadcast((config.model_dump(mode="json"), path, name))
    learner = make_learner(config, path, [name])
    try:
        yield learner
    except (ConfigError, interrupt.Interrupted, interrupt.Left):
        learner.dismiss()
        raise
    learner.dismiss()


def help_fit(device: str) -> None:
    """The life of a process other than the first: one learner after the other."""
    from sparring.learn.distributed.distributed_learner import ignore_signals, make_learner

    ignore_signals()
    group = _all(device)
    while (asked := group.broadcast()) is not None:
        config, path, name = asked
        try:
            learner = make_learner(make_config(config), path, [name])
        except ConfigError:
            continue  # the first process says so
        learner.serve()


@contextmanager
def leading(device: str) -> Iterator[None]:
    """While this lasts, the other processes wait for learners to help; then they leave."""
    if rank.size() == 1:
        yield
        return
    group = _all(device)
    try:
        yield
    except (ConfigError, interrupt.Interrupted, interrupt.Left):
        group.broadcast(None)
        raise
    group.broadcast(None)


def _all(device: str) -> World:
    from sparring.learn.distributed.world import World

    return World(rank.size(), choose_device(device, "auto")[0])


def resume_fit(run: RunDir, learner: Learner) -> int:
    """The epoch to go on after, with the learner as it was then."""

    def load(name: str, tensors: checkpoint.Tensors, state: dict[str, Any]) -> None:
        use_threads(state.get("threads", threads()))
        learner.load(tensors)
        for policy, version in state["versions"].items():
            learner.policies.set_version(policy, version)

    return resume_latest(run, load, partial(_save, run, learner))


def _save(run: RunDir, learner: Learner, epoch: int) -> None:
    versions = {n: learner.policies.version(n) for n in learner.policies.names()}
    state = {"iteration": epoch, "versions": versions, "threads": threads()}
    checkpoint.save(run.checkpoints, epoch, learner.state(), state)


def export_adapter(policies: Policies, name: str, config: Config, folder: Path) -> None:
    """The adapter in peft's own form, for other tools; full weights have none."""
    from sparring.models.export import export_policy
    from sparring.models.policies import LoraPolicies

    if isinstance(policies, LoraPolicies):
        export_policy(policies, name, config.policy, folder)

"""Checkpoints by stage and epoch: names that stand for steps, each with a JSON beside it that says
what it holds. A step that has a name is kept."""

from __future__ import annotations

import json
import time
from pathlib import Path

from sparring.core.errors import ConfigError
from sparring.run import checkpoint
from sparring.run.config import Config
from sparring.run.rundir import RunDir, read_log, write_whole
from sparring.run.schedule import Step

BEST = "checkpoint_best"


def name_of(step: Step) -> str:
    return f"checkpoint_stage_{step.stage}_epoch_{step.epoch}"


def due(config: Config, step: Step) -> bool:
    """After each stage, and every so many epochs of it."""
    return step.last or step.epoch % config.schedule.every == 0


def renew(run: RunDir, config: Config, steps: list[Step], best: int | None, device: str) -> None:
    """Bring the names in line with the checkpoints that are there. Whatever a kill left undone,
    the next call does."""
    folder = run.checkpoints
    there = set(checkpoint.steps(folder))
    wanted = {
        name_of(step): (iteration, step)
        for iteration, step in enumerate(steps, 1)
        if iteration in there and due(config, step)
    }
    if best is not None and 1 <= best <= len(steps) and best in there:
        wanted[BEST] = (best, steps[best - 1])
    for link in folder.glob("checkpoint_*"):
        if link.is_symlink() and link.name not in wanted:
            link.unlink()
            (folder / f"{link.name}.json").unlink(missing_ok=True)
    if all(_stands_for(folder / name) == iteration for name, (iteration, _) in wanted.items()):
        return
    metrics = {line["iteration"]: line for line in read_log(run.metrics)}
    for name, (iteration, step) in wanted.items():
        if _stands_for(folder / name) == iteration:
            continue
        facts = {
            "checkpoint": checkpoint.step_name(iteration),
            "iteration": iteration,
            "stage": step.stage,
            "stage_name": step.name,
            "epoch": step.epoch,
            "metrics": metrics.get(iteration, {}),
            "device": device,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "config": config.model_dump(mode="json"),
        }
        write_whole(folder / f"{name}.json", (json.dumps(facts, indent=1) + "\n").encode())
        checkpoint.point(folder, name, iteration)


def _stands_for(link: Path) -> int | None:
    if not link.is_symlink() or not link.with_name(f"{link.name}.json").exists():
        return None
    return checkpoint.step_of(link.resolve().name)


def usable(folder: Path) -> list[str]:
    """The names and steps that can be gone on from."""
    steps = checkpoint.steps(folder)
    whole = [s for s in steps if not checkpoint.damage(folder / checkpoint.step_name(s))]
    names = [
        link.name
        for link in sorted(folder.glob("checkpoint_*"))
        if link.is_symlink() and _stands_for(link) in whole
    ]
    return [*names, *map(checkpoint.step_name, whole)]


def find(folder: Path, word: str) -> int:
    """The step that a name, a step's name or number, or a path to one of these stands for."""
    name = Path(word).name
    step = int(name) if name.isdigit() else checkpoint.step_of((folder / name).resolve().name)
    if step is None or not (folder / checkpoint.step_name(step)).is_dir():
        raise refused(folder, name, "there is no such checkpoint")
    if problem := checkpoint.damage(folder / checkpoint.step_name(step)):
        raise refused(folder, name, problem)
    return step


def refused(folder: Path, name: str, problem: str) -> ConfigError:
    listed = ", ".join(usable(folder)) or "none"
    return ConfigError(f"{name} of {folder.parent} cannot be used: {problem}. Usable: {listed}")

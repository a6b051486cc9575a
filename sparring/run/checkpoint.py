"""Checkpoints: safetensors and JSON in a folder that appears whole or not at all.

A manifest holds the checksum of every file, so that damage is noticed, named and stepped over.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

MANIFEST = "manifest.json"
Tensors = dict[str, dict[str, "Tensor"]]


class CheckpointError(RuntimeError):
    """A checkpoint that could not be written or read, with what is still good."""


def step_name(step: int) -> str:
    return f"step_{step:06d}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint's folder, or None for any other name."""
    return int(name[5:]) if name.startswith("step_") and name[5:].isdigit() else None


def steps(folder: Path) -> list[int]:
    """All checkpoints, oldest first. They appear whole, so one that is not whole is damaged."""
    numbers = (step_of(path.name) for path in folder.glob("step_*"))
    return sorted(step for step in numbers if step is not None)


def save(folder: Path, step: int, tensors: Tensors, state: dict[str, Any]) -> Path:
    """Write everything beside its final place, then rename: a crash leaves the last one whole."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    target, unfinished = folder / step_name(step), folder / f".{step_name(step)}.unfinished"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for name, group in tensors.items():
            whole = {key: value.detach().cpu().contiguous() for key, value in group.items()}
            save_file(whole, unfinished / f"{name}.safetensors")
        (unfinished / "state.json").write_text(json.dumps(state))
        sums = {p.name: _checksum(p) for p in sorted(unfinished.iterdir())}
        (unfinished / MANIFEST).write_text(json.dumps({"step": step, "sha256": sums}, indent=1))
        for path in unfinished.iterdir():
            _flush(path)
        if target.exists():  # written by a life of this run that was killed before it was done
            shutil.rmtree(target)
        unfinished.rename(target)
        _flush(folder)
    except (OSError, SafetensorError) as error:  # safetensors has its own word for a full disk
        shutil.rmtree(unfinished, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"the checkpoint of iteration {step} could not be written: {reason}. "
            f"{_last_good(folder)} Make room or bring the folder back, then --resume."
        ) from error
    return target


def load(folder: Path, step: int) -> tuple[Tensors, dict[str, Any]]:
    """Tensors by file and the state, checked against the manifest."""
    from safetensors.torch import load_file

    path = folder / step_name(step)
    reason = damage(path)
    if reason:
        raise CheckpointError(f"{path.name} is damaged: {reason}")
    files = sorted(json.loads((path / MANIFEST).read_text())["sha256"])
    tensors = {
        name.removesuffix(".safetensors"): load_file(path / name)
        for name in files
        if name.endswith(".safetensors")
    }
    return tensors, json.loads((path / "state.json").read_text())


def load_latest(folder: Path) -> tuple[int, Tensors, dict[str, Any], list[str]] | None:
    """The newest whole checkpoint, and what was wrong with any newer one."""
    problems = []
    for step in reversed(steps(folder)):
        try:
            tensors, state = load(folder, step)
        except CheckpointError as error:
            problems.append(str(error))
            continue
        return step, tensors, state, problems
    if problems:
        raise CheckpointError("no usable checkpoint is left: " + "; ".join(problems))
    return None


def damage(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        step, sums = manifest["step"], dict(manifest["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {MANIFEST} cannot be read"
    if path.name != step_name(step) or "state.json" not in sums:
        return f"its {MANIFEST} is not the one that was written"
    for name, expected in sums.items():
        file = path / name
        if not file.exists():
            return f"{name} is missing"
        if _checksum(file) != expected:
            return f"{name} is not what was written (its checksum differs)"
    return None


def prune(folder: Path, keep: int, protect: set[int]) -> None:
    """Forget all but the newest few, the protected ones, and those that a name stands for."""
    lasting = protect | _kept(folder, keep)
    for step in steps(folder):
        if step not in lasting:
            # Out of sight first: a kill halfway must not leave half of it under its name.
            gone = folder / f".{step_name(step)}.gone"
            (folder / step_name(step)).rename(gone)
    for left in folder.glob(".step_*"):
        shutil.rmtree(left)


def _kept(folder: Path, keep: int) -> set[int]:
    named = (step_of(link.resolve().name) for link in folder.iterdir() if link.is_symlink())
    return {*steps(folder)[-keep:], *(step for step in named if step is not None)}


def tidy(folder: Path, keep: int, best: int | None, former: Sequence[int] = ()) -> None:
    """Point at the best and prune; it and the first one, the untrained, are kept, and for each that
    is kept the best one of its time: a run that is resumed from it may be rolled back to that."""
    try:
        point(folder, "best", best)
        bests = [0, *former, best or 0]
        of_its_time = {max(b for b in bests if b <= step) for step in _kept(folder, keep)}
        prune(folder, keep, {0, best or 0} | of_its_time)
    except OSError as error:
        raise CheckpointError(
            f"{folder} could not be tidied: {error.strerror or error}. {_last_good(folder)}"
        ) from error


def set_aside(folder: Path, step: int, why: str = "damaged") -> None:
    """Keep a checkpoint's files for inspection, but no longer as a checkpoint."""
    aside = folder / f"{why}_{step_name(step)}"
    shutil.rmtree(aside, ignore_errors=True)
    (folder / step_name(step)).rename(aside)


def point(folder: Path, name: str, step: int | None) -> None:
    """Let `name` (such as `best`) stand for a step, atomically; or for none."""
    if step is None:
        (folder / name).unlink(missing_ok=True)
        return
    unfinished = folder / f".{name}.unfinished"
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(step_name(step))
    unfinished.replace(folder / name)


def _last_good(folder: Path) -> str:
    good = [step for step in steps(folder) if damage(folder / step_name(step)) is None]
    return f"The last good one is {step_name(good[-1])}." if good else "There is no earlier one."


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""What every long job shares, whatever it makes: one writer in its folder, signals that end it in
good order, a console log, one loop over its steps, and resuming from the newest checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparring.run import checkpoint, console_log, interrupt
from sparring.run.lock import writing
from sparring.run.rundir import RunDir

log = logging.getLogger(__name__)


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """The time in which this process works in a folder; a job inside a job of the same folder is
    part of it."""
    with interrupt.listening(), writing(folder), console_log.kept(folder):
        yield


async def run_steps(
    done: int,
    total: int,
    step: Callable[[range], Awaitable[None]],
    *,
    size: int = 1,
    what: str = "iteration",
    kept: str = "with a checkpoint",
) -> None:
    """The loop of every resumable job: calls `step` with the indices of the next `size` items until
    all are done. A step writes what it made before it returns; after a signal the loop ends with
    the step that is running, or, when that is given up, with the one before."""
    with interrupt.deferred("batch" if size > 1 else what):
        while done < total:
            indices = range(done, min(done + size, total))
            try:
                await step(indices)
            except interrupt.GivenUp:
                interrupt.leave(done, total, what, kept)
                raise
            done = indices.stop
            interrupt.leave(done, total, what, kept)


def checkpoint_due(step: int, last: int, every: int) -> bool:
    """Whether to save after a step: every so often, at the end, and before leaving for a signal."""
    return step % every == 0 or step == last or interrupt.asked()


def resume_latest(
    run: RunDir,
    load: Callable[[str, checkpoint.Tensors, dict[str, Any]], None],
    save: Callable[[int], None],
) -> int:
    """The step to go on after: that of the newest whole checkpoint, which `load` is given with its
    name, or 0, which is then saved. Logs are cut back to it; what is damaged is on record."""
    latest = checkpoint.load_latest(run.checkpoints)
    if latest is None:
        run.rewind(0)
        save(0)
        return 0
    step, tensors, state, problems = latest
    name = checkpoint.step_name(step)
    load(name, tensors, state)
    run.rewind(step)
    for problem in problems:
        log.warning("%s; going on from %s", problem, name)
        run.event(step, "damaged_checkpoint", problem)
    if step > 0:
        run.event(step, "resumed", f"from {name}")
    return step

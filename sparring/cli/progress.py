"""Live progress of a run: a bar with an ETA in a terminal, plain lines elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from sparring.run import console_log

_SHOWN = (  # metric, label, format: what is worth a glance while it runs
    ("rate/invalid", "invalid", "{:.1%}"),
    ("reward/avg_batch_reward", "reward", "{:+.2f}"),
    ("learn/entropy", "entropy", "{:.2f}"),
    (r"eval/(.+)/random/not_lost", "not lost to random", "{:.0%}"),
    (r"eval/(.+)/regret", "regret", "{:.3f}"),
    (r"eval/(.+)/exploitability", "exploitability", "{:.3f}"),
    ("pass_rate", "right", "{:.1%}"),
    ("mbpp_eval/pass_rate", "mbpp", "{:.1%}"),
    ("turns_per_s", "turns/s", "{:.0f}"),
)


class Live:
    """Call it with each iteration's metrics."""

    def __init__(self, console: Console, title: str, iterations: int) -> None:
        self.console, self.title, self.iterations = console, title, iterations
        self.last: dict[str, Any] = {}
        self.started: tuple[float, int] | None = None
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=12 if console.width < 100 else 24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            # Cut where the terminal ends: wrapped, it would take the room of the count and the bar.
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, ratio=1)),
            console=console,
            expand=True,
        )
        self.task = self.bar.add_task(title, total=iterations, note="")

    def __enter__(self) -> Live:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        self.last |= metrics
        iteration = metrics["iteration"]
        if self.console.is_terminal:
            self.bar.update(self.task, completed=iteration, note=describe(self.last))
        if iteration % max(1, self.iterations // 20) and iteration != self.iterations:
            return
        line = f"{self.title} {iteration}/{self.iterations}{self._left(iteration)}"
        if note := describe(self.last):
            line += f" · {note}"
        if self.console.is_terminal:
            console_log.note(line)
        else:
            self.console.print(line, highlight=False, soft_wrap=True)

    def _left(self, iteration: int) -> str:
        now = time.monotonic()
        if self.started is None:
            self.started = (now, iteration)
            return ""
        begun, first = self.started
        seconds = (now - begun) / max(1, iteration - first) * (self.iterations - iteration)
        return f" · {int(seconds) // 60}:{int(seconds) % 60:02d} left"


@contextmanager
def live(title: str, total: int, *, quiet: bool = False) -> Iterator[Live | None]:
    """Progress on the terminal. With output for a machine: on stderr, and only if that is one
    too."""
    from sparring.cli.console import console

    where = Console(stderr=True) if quiet else console
    if quiet and not where.is_terminal:
        yield None
        return
    with Live(where, title, total) as progress:
        yield progress


def describe(metrics: Mapping[str, Any]) -> str:
    """What is worth a glance; measures of any other game under their own names."""
    parts, known = [], set()
    for pattern, label, form in _SHOWN:
        keys = [key for key in metrics if re.fullmatch(pattern, key)]
        known.update(keys)
        if keys:
            parts.append(f"{label} {form.format(fmean(metrics[key] for key in keys))}")
    own = (key for key in metrics if re.fullmatch(r"eval/[^/]+/[^/]+", key) and key not in known)
    parts += [f"{key.rpartition('/')[2].replace('_', ' ')} {metrics[key]:.3g}" for key in own]
    return " · ".join(parts)

"""A run in a notebook: progress that is drawn once and then changed in place, and the curves of a
finished run as a cell's output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparring.core.formatting import duration, esc, number
from sparring.view.page import render_curves
from sparring.view.rundata import is_number, read_log

# What is worth a word while a run goes on, as far as it has it.
_METRICS = {
    "reward/avg_batch_reward": ("reward", False),
    "rate/invalid": ("invalid", True),
    "rate/void": ("void", True),
    "learn/entropy": ("entropy", False),
    "learn/loss": ("loss", False),
    "eval/score": ("score", False),
}


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this, which renders HTML."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def cell_progress(name: str, total: int) -> Callable[[Mapping[str, Any]], None]:
    """Shows a bar now; called with each iteration's metrics, it changes the bar where it is."""
    from IPython.display import HTML, display

    spent: list[float] = []
    handle = display(HTML(bar(name, 0, total, "starting")), display_id=True)

    def step(metrics: Mapping[str, Any]) -> None:
        done = int(metrics["iteration"])
        if is_number(metrics.get("time/total_s")):
            spent.append(float(metrics["time/total_s"]))
        left = (total - done) * sum(spent) / len(spent) if spent else 0.0
        parts = [f"{duration(left)} left"] if done < total and spent else ["done"] * (done == total)
        parts += [
            f"{word} {number(metrics[key], percent)}"
            for key, (word, percent) in _METRICS.items()
            if is_number(metrics.get(key))
        ]
        handle.update(HTML(bar(name, done, total, " · ".join(parts))))

    return step


def bar(name: str, done: int, total: int, words: str) -> str:
    return (
        f"<div><b>{esc(name)}</b> {done:,} of {total:,} "
        f'<progress value="{done}" max="{total}" style="vertical-align:middle"></progress> '
        f"{esc(words)}</div>"
    )


def run_html(run: Path) -> str:
    """A run's curves in a frame of their own, so that neither page's styles reach the other."""
    page = render_curves(read_log(run))
    frame = "width:100%;height:640px;border:0;border-radius:10px"
    return f'<iframe srcdoc="{esc(page)}" style="{frame}" title="{esc(run.name)}"></iframe>'

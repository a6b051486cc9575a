"""A run keeps what a person saw of it."""

from __future__ import annotations

import io
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lives import train
from rich.console import Console

from sparring.cli.progress import Live
from sparring.run import console_log
from sparring.run.rundir import read_lines


@pytest.fixture(autouse=True)
def nothing_printed_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands of other tests in this process have left lines for the next run."""
    monkeypatch.setattr(console_log, "_early", [])


def at_iteration(count: int, error: str) -> None:
    from sparring.training import loop as loop

    usual = loop._iterate

    async def iterate(*given: Any) -> None:
        await usual(*given)
        iteration = given[-1].stop
        if iteration == count and error == "bug":
            raise ValueError("a bug of ours")
        if iteration == count:
            os.kill(os.getpid(), signal.SIGTERM)

    loop._iterate = iterate


def test_every_life_of_a_run_is_in_its_console_log(tmp_path: Path) -> None:
    run, keys = tmp_path / "run", ("iterations=4", "checkpoint.every=1")
    lives = [
        train("kuhn", run, *keys, first=partial(at_iteration, 1, "signal")),
        train("kuhn", run, *keys, resume=True, first=partial(at_iteration, 3, "bug")),
        train("kuhn", run, "seed=5", resume=True),  # refused: it is not this run's
        train("kuhn", run, *keys, resume=True),
    ]
    assert [life.code for life in lives] == [75, 1, 2, 0]
    text = (run / "console.log").read_text()
    first, second, third = text.split("\n── ")
    assert first.startswith("── ") and "train kuhn --smoke" in first.splitlines()[0]
    assert "machine: " in first and "kuhn 1/4" in first and "SIGTERM came: left after" in first
    assert "Traceback" in second and "ValueError: a bug of ours" in second and "kuhn 3/4" in second
    assert "over a paged cache" in third and "kuhn 4/4" in third  # stderr is in it too
    assert "differ" not in text
    for line in read_lines(run / "metrics.jsonl"):
        assert 0.01 < line["memory/cpu_peak_gb"] < 1000
        assert "memory/gpu_peak_gb" not in line


def test_bars_are_lines_and_colours_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with console_log.kept(tmp_path):
        console = Console(force_terminal=True, width=80)
        with Live(console, "kuhn", 2) as live:
            live({"iteration": 1, "learn/entropy": 0.5})
            console.print("[bold]in between[/bold]")
            live({"iteration": 2})
        print("not yet the run's", flush=True)
        assert not (tmp_path / "console.log").exists()
        console_log.begin(tmp_path)
        print("half ", end="")
        print("and half")
    lines = (tmp_path / "console.log").read_text().splitlines()[1:]
    assert lines == [
        "kuhn 1/2 · entropy 0.50",
        "in between",
        "kuhn 2/2 · 0:00 left · entropy 0.50",
        "not yet the run's",
        "half and half",
    ]
    print("after")
    assert "after" not in (tmp_path / "console.log").read_text()

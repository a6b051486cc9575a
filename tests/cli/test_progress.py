"""The progress line at the width of a usual terminal, and beside log lines."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from rich.console import Console

from sparring.cli.console import OnCurrentStderr
from sparring.cli.progress import Live, describe, live

METRICS = {
    "iteration": 60, "rate/invalid": 0.125, "reward/avg_batch_reward": -0.5, "learn/entropy": 1.25,
    "eval/mine.py:Nim/random/not_lost": 0.75, "eval/mine.py:Nim/wrong_moves": 0.031,
    "eval/score": 0.5, "turns_per_s": 1234.0,
}  # fmt: skip


def test_games_that_nobody_here_knows_show_their_own_measures() -> None:
    assert describe(METRICS) == (
        "invalid 12.5% · reward -0.50 · entropy 1.25 · not lost to random 75% · turns/s 1234 · "
        "wrong moves 0.031"
    )


def test_eighty_columns_keep_count_bar_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(sys, "stderr", out)
    handler = OnCurrentStderr()
    with Live(console, "tictactoe-with-a-name", 120) as live:
        live(METRICS)
        live.bar.refresh()
        handler.emit(logging.LogRecord("x", logging.WARNING, "", 0, "ROLLED BACK", (), None))
    lines = out.getvalue().replace("\r", "\n").splitlines()
    bars = [line for line in lines if "60/120" in line]
    assert bars and all("━" in line and ":" in line.split("60/120")[1] for line in bars)
    assert all("invalid" in line for line in bars), "the note follows on the same line"
    [said] = [line for line in lines if "ROLLED BACK" in line]
    assert "━" not in said and "60/120" not in said, "a log line has a line of its own"


def test_a_command_for_a_machine_shows_its_progress_to_a_person_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with live("replies", 2, quiet=True) as progress:
        assert progress is None  # stderr is a file here
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True)
    monkeypatch.setattr("sparring.cli.progress.Console", lambda stderr: terminal)
    with live("replies", 2, quiet=True) as progress:
        assert progress is not None
        progress({"iteration": 2})
    assert "replies" in shown.getvalue()
    assert capsys.readouterr().out == ""

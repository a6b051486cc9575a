"""The end-to-end benchmark runs, and its split of the time comes to the whole."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from fake_workers import worker_in_this_process
from lives import sparring

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "selfplay.py"
WORDS = ("--policy", "nano", "--iterations", 2, "--episodes", 16, "--set", "engine.device=cpu")


def test_it_says_where_the_time_went(tmp_path: Path) -> None:
    done = sparring(*WORDS, "--rounds", 1, "--json", program=SCRIPT, cwd=tmp_path)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["iterations"] == 2 and found["work"]["turns"] >= 16
    assert found["work"]["lesson_tokens"] > found["work"]["tokens"] > 0
    assert found["peak_gib"] > 0.1 and found["staleness"] == 0
    assert found["first_s"] > 0 and found["compile_s"] == 0  # on a CPU nothing is compiled
    assert sum(found["share"].values()) == pytest.approx(1, abs=0.05)


def test_games_played_ahead_are_one_version_old(tmp_path: Path) -> None:
    """One round, as the benchmark starts it, with the worker in its own process."""
    words = (*WORDS, "--overlap", "--child")
    done = sparring(*words, program=SCRIPT, cwd=tmp_path, first=worker_in_this_process)
    assert done.code == 0, done.err
    found = runpy.run_path(str(SCRIPT))["summary"]([json.loads(done.out.splitlines()[-1])])
    assert found["iterations"] == 2 and found["staleness"] == 1
    assert sum(found["share"].values()) >= 0.9

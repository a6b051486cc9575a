"""The end-to-end benchmark runs, and its split of the time comes to the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "selfplay.py"


@pytest.mark.parametrize("more", [(), ("--overlap",)])
def test_it_says_where_the_time_went(more: tuple[str, ...]) -> None:
    words = ["--policy", "nano", "--iterations", "2", "--episodes", "16", "--rounds", "1", *more]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *words, "--json", "--set", "engine.device=cpu"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["iterations"] == 2 and found["work"]["turns"] >= 16
    assert found["work"]["lesson_tokens"] > found["work"]["tokens"] > 0
    assert found["peak_gib"] > 0.1 and found["staleness"] == len(more)
    assert found["first_s"] > 0 and found["compile_s"] == 0  # on a CPU nothing is compiled
    whole = sum(found["share"].values())
    assert whole >= 0.9 if more else whole == pytest.approx(1, abs=0.05)

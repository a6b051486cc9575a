"""The demo's own size, on two threads, beside two busy loops: trained again or killed at random
moments and resumed, a run comes to the same lines and the same weights.

SPARRING_FULL=1 trains four times and kills thirty times, over six iterations; by default it is one
kill over two of fewer games (the steps of learning are as large), and the run that was killed is
also the one that is trained again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import lives
import pytest
import torch
from lives import Begun, facts, whole

FULL = os.environ.get("SPARRING_FULL") == "1"
TRAININGS, KILLS, ITERATIONS = (4, 30, 6) if FULL else (0, 1, 2)
LIMIT_S = 1200
pytestmark = pytest.mark.timeout(10800 if FULL else 600)
COMMAND = ["train", "tictactoe", "seed=7", "checkpoint.every=1"]
COMMAND += [f"iterations={ITERATIONS}", "evaluate.final=0", "evaluate.ladder=0"]
COMMAND += ["evaluate.games=4", "tracking.tensorboard=false"]
COMMAND += [] if FULL else ["collect.episodes=384"]


def begin(run: Path, threads: int = 2) -> Begun:
    first = partial(torch.set_num_threads, threads)
    return lives.begin(*COMMAND, "--run", run, "--resume", cwd=run.parent, first=first)


def finish(process: Begun) -> None:
    life = process.end(LIMIT_S)
    assert life.code == 0, life.err


BUSY = """
import os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
while True: pass
"""


@contextmanager
def busy_loops(run: Path) -> Iterator[None]:
    """From when this run begins to play: nothing of what is tested here hangs on its imports."""
    command = [sys.executable, "-S", "-c", BUSY, str(run / "checkpoints")]
    loops = [subprocess.Popen(command) for _ in range(2)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A run that was left alone, and how long it took."""
    run, began = tmp_path_factory.mktemp("unbroken") / "run", time.monotonic()
    finish(begin(run))
    lines = facts(run)
    assert [line["iteration"] for line in lines] == list(range(1, ITERATIONS + 1))
    assert lines[0]["learn/loss"] != lines[-1]["learn/loss"]
    return run, time.monotonic() - began


@pytest.mark.skipif(not FULL, reason="SPARRING_FULL=1 trains again; the killed run does it, too")
def test_trained_again_on_a_busy_machine(tmp_path: Path, unbroken: tuple[Path, float]) -> None:
    with busy_loops(tmp_path / "0"):
        for number in range(TRAININGS):
            finish(begin(tmp_path / str(number)))
            assert whole(tmp_path / str(number)) == whole(unbroken[0])


def test_killed_at_random_moments_on_a_busy_machine(
    tmp_path: Path, unbroken: tuple[Path, float], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every third life has one thread to its name, and takes two: those the run began with."""
    seed = int(time.time())
    dice, killed, runs = random.Random(seed), 0, 0
    span = unbroken[1]
    with busy_loops(tmp_path / "0"):
        while killed < KILLS or runs == 0:
            run, lives, before = tmp_path / str(runs), 0, killed
            while True:
                has_begun = (run / "checkpoints" / "step_000000").exists()
                process = begin(run, threads=1 if has_begun and lives % 3 == 2 else 2)
                lives += 1
                if killed < KILLS:
                    process.process.join(dice.uniform(0.3, 1.5) * span)
                if process.process.exitcode is not None or killed == KILLS:
                    finish(process)
                    break
                os.kill(process.pid, signal.SIGKILL)
                if (code := process.end().code) == 0:  # it had just come to its end
                    break
                assert code == -signal.SIGKILL
                killed += 1
            assert whole(run) == whole(unbroken[0]), f"random seed {seed}, run {runs}"
            runs += 1
            if killed == before:  # the machine has become faster since
                span /= 2
    with capsys.disabled():
        print(f"\n{killed} kills over {runs} runs, random seed {seed}: no line or weight differs")

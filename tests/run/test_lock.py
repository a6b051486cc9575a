"""Every folder and file has one writer at a time; a second one is refused and told of the first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lives import SMALL, begin, events, facts, sparring, train

from sparring.core.errors import ConfigError
from sparring.run.config import make_config
from sparring.run.lock import LOCK, Taken, writing, writing_file
from sparring.run.rundir import RunDir, append, read_lines

HOLD = """
import sys
from pathlib import Path
from sparring.run.lock import writing
with writing(Path(sys.argv[1])):
    print("mine", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], **pipes)  # type: ignore[call-overload]
    assert process.stdout.readline() == "mine\n"
    return process


def test_a_second_writer_is_told_of_the_first_and_a_crash_lets_go(tmp_path: Path) -> None:
    first = hold(tmp_path / "run")
    with pytest.raises(Taken, match=f"process {first.pid} on .* since "), writing(tmp_path / "run"):
        pass
    first.kill()
    first.wait()
    assert (tmp_path / "run" / LOCK).exists()  # nobody was left to remove it
    with writing(tmp_path / "run"), writing(tmp_path / "run"):  # whoever has it may ask again
        pass
    assert list((tmp_path / "run").iterdir()) == []


def test_a_job_may_ask_again_and_another_thread_may_not(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with writing(run), writing(run), ThreadPoolExecutor() as pool, pytest.raises(Taken):
        pool.submit(lambda: writing(run).__enter__()).result()
    with writing(tmp_path / "run"):
        pass


def test_what_is_written_stays_and_what_is_refused_does_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError), writing(tmp_path / "a" / "b"):
        raise ValueError
    assert list(tmp_path.iterdir()) == []
    with writing_file(tmp_path / "a" / "out.jsonl"):
        (tmp_path / "a" / "out.jsonl").write_text("{}\n")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["out.jsonl"]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file cannot be written"), writing(tmp_path / "file"):
        pass


def test_two_runs_in_one_folder_are_one_run(tmp_path: Path) -> None:
    words = ["train", "kuhn", "--smoke", *SMALL, "iterations=200", "--run", "run"]
    first = begin(*words, cwd=tmp_path)
    until = time.monotonic() + 120
    while not facts(tmp_path / "run") and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(first.pid, signal.SIGSTOP)  # it would be done before the second has come to its lock
    second = sparring(*words, "--resume", cwd=tmp_path)
    os.kill(first.pid, signal.SIGCONT)
    assert second.code == 2, second.err
    assert f"process {first.pid} on " in second.err and "train kuhn" in second.err
    assert first.process.exitcode is None
    os.kill(first.pid, signal.SIGUSR1)
    assert first.end().code == 75
    numbers = [line["iteration"] for line in facts(tmp_path / "run")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert not (tmp_path / "run" / LOCK).exists()


DATA = json.dumps({"system_prompt": "", "user_prompt": "two?", "output": "2"}) + "\n"
WRITERS = {
    "train": ("train", "kuhn", "--smoke", "--run", "out"),
    "phases": ("train", "coherent-math", "--smoke", "--run", "out"),
    "finetune": ("finetune", "--model", "nano", "--data", "data.jsonl", "--out", "out"),
    "selfplay": ("selfplay", "matching", "--policy", "scripted", "--out", "out"),
    "export": ("export", "verl", "run", "--out", "out"),
    "math": ("math", "sft", "--smoke", "--out", "out"),
    "merge": ("merge", "--policy", "run", "--out", "out"),
    "convert": ("convert", "mbpp", "mbpp.jsonl", "out"),
}


@pytest.mark.parametrize("command", list(WRITERS))
def test_every_command_that_writes_asks_first(tmp_path: Path, command: str) -> None:
    (tmp_path / "data.jsonl").write_text(DATA)
    whole = command in ("math", "merge", "convert")  # it appears whole, in place of what was there
    with (writing_file if whole else writing)(tmp_path / "out"):
        before = sorted(tmp_path.rglob("*"))
        life = sparring(*WRITERS[command], cwd=tmp_path)
        assert life.code == 2 and f"process {os.getpid()} on " in life.err, life.err
        assert sorted(tmp_path.rglob("*")) == before


ALONE = {
    "selfplay": WRITERS["selfplay"],
    "rollouts": ("math", "rollouts", "--smoke", "--policy", "nano", "--out", "out"),
    "eval": ("eval", "gsm8k", "--policy", "nano", "--details", "out"),
}


@pytest.mark.parametrize("command", list(ALONE))
def test_copies_that_a_launcher_started_are_refused(tmp_path: Path, command: str) -> None:
    life = sparring(*ALONE[command], cwd=tmp_path, first=as_if_launched)
    assert life.code == 2 and "works in one process" in life.err and "WORLD_SIZE" in life.err
    assert list(tmp_path.iterdir()) == []


def as_if_launched() -> None:
    os.environ |= {"WORLD_SIZE": "2", "RANK": "1"}


def test_lines_that_two_writers_left_twice_are_dropped_on_resuming(tmp_path: Path) -> None:
    run = tmp_path / "run"
    life = train("kuhn", run, "iterations=4")
    assert life.code == 0, life.err
    lines = list(read_lines(run / "metrics.jsonl"))
    for line in lines[1:3]:
        append(run / "metrics.jsonl", {**line, "learn/loss": 7.0})
    life = train("kuhn", run, "iterations=4", resume=True)
    assert life.code == 0, life.err
    assert list(read_lines(run / "metrics.jsonl")) == lines
    assert "2 lines of metrics.jsonl" in events(run, "duplicates")[0]["detail"]


def test_a_lock_is_no_content(tmp_path: Path) -> None:
    with writing(tmp_path / "run"):
        RunDir.open(tmp_path / "run", make_config({}), resume=False)
    assert (tmp_path / "run" / "config.yaml").exists()

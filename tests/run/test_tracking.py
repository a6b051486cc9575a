"""TensorBoard and W&B are told the very names and numbers of metrics.jsonl."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from importlib import util
from pathlib import Path

import pytest
from lives import train

from sparring.core.errors import ConfigError
from sparring.run import tracking
from sparring.run.config import Config, load_recipe
from sparring.run.rundir import read_lines
from sparring.run.tracking import Tracking, wants_wandb

METRICS = {"learn/loss": 0.25, "rate/invalid": 0.5, "turns": 17, "word": "no number"}
with_wandb = pytest.mark.skipif(
    util.find_spec("wandb") is None, reason="wandb is missing: pip install 'sparring[wandb]'"
)


def config(wandb: str = "never", board: bool = True) -> Config:
    wanted = [f"tracking.wandb={wandb}", f"tracking.tensorboard={str(board).lower()}"]
    return load_recipe("kuhn", wanted, smoke=True)


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tensorboard")).Reload()
    return {
        tag: [(event.step, event.value) for event in board.Scalars(tag)]
        for tag in board.Tags()["scalars"]
    }


def test_tensorboard_holds_the_same_names_and_numbers(tmp_path: Path) -> None:
    told = Tracking(config(), tmp_path, 0)
    told.log({"iteration": 0, "mbpp_eval/pass_rate": 0.5})
    for i in (1, 2):
        told.log({"iteration": i, **METRICS})
    told.close()
    assert scalars(tmp_path) == {
        "iteration": [(0, 0.0), (1, 1.0), (2, 2.0)],
        "mbpp_eval/pass_rate": [(0, 0.5)],
        "learn/loss": [(1, 0.25), (2, 0.25)],
        "rate/invalid": [(1, 0.5), (2, 0.5)],
        "turns": [(1, 17.0), (2, 17.0)],
    }


def test_a_resumed_run_shows_each_iteration_once(tmp_path: Path) -> None:
    lives = [(0, range(1, 6)), (2, range(3, 7))]  # the first died at 5; its checkpoint was 2
    for first, iterations in lives:
        told = Tracking(config(), tmp_path, first)
        for i in iterations:
            told.log({"iteration": i, "learn/loss": i + first / 8})
        told.close()
        time.sleep(1.1)  # TensorBoard orders the files of lives by the second they began in
    assert scalars(tmp_path)["learn/loss"] == [
        *((1, 1.0), (2, 2.0)),
        *((3, 3.25), (4, 4.25), (5, 5.25), (6, 6.25)),
    ]


def test_neither_is_started_when_neither_is_wanted(tmp_path: Path) -> None:
    told = Tracking(config(board=False), tmp_path, 0)
    told.log({"iteration": 1, **METRICS})
    told.close()
    assert list(tmp_path.iterdir()) == []


def test_wandb_is_used_when_there_is_a_key_or_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: object())
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    assert [wants_wandb(s) for s in ("auto", "always", "never")] == [False, True, False]
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    assert [wants_wandb(s) for s in ("auto", "always", "never")] == [True, True, False]
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert [wants_wandb(s) for s in ("auto", "never")] == [False, False]
    with pytest.raises(ConfigError, match="pip install wandb"):
        wants_wandb("always")


def recorded(run: Path) -> list[bytes]:
    """What each life left for W&B; names and numbers stand in it as they are. Its own process
    writes the file, and on a busy machine is done a moment after it said so."""
    until = time.monotonic() + 20
    while True:
        found = [path.read_bytes() for path in sorted(run.glob("wandb/offline-run-*/*.wandb"))]
        if all(b"learn/loss" in data for data in found) or time.monotonic() > until:
            return found
        time.sleep(0.05)


@pytest.fixture
def no_wandb_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_DIR", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    import wandb

    wandb.teardown()  # it reads the environment once


@with_wandb
@pytest.mark.usefixtures("no_wandb_settings")
def test_without_a_key_wandb_records_offline_and_two_lives_are_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for i in (1, 2):
        told = Tracking(config("always", board=False), run, i - 1)
        told.log({"iteration": i, **METRICS})
        told.close()
    files = recorded(run)
    assert len(files) == 2
    for data in files:
        assert all(key.encode() in data for key in METRICS if key != "word")
        assert b"no number" not in data and (run / "wandb_id").read_bytes() in data


@with_wandb
@pytest.mark.usefixtures("no_wandb_settings")
def test_an_offline_run_ends_with_the_command_that_sends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("WANDB_MODE", "offline")  # as a machine without a network sets it
    caplog.set_level("INFO", logger=tracking.__name__)
    told = Tracking(config("auto", board=False), tmp_path, 0)
    assert "wandb sync" not in caplog.text
    told.close()
    assert f"wandb sync {tmp_path}/wandb/offline-run-*" in caplog.text
    assert "cannot be reached" not in caplog.text  # nobody was asked
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 1


def test_a_key_of_wandb_login_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not tracking.has_wandb_key()
    (tmp_path / ".netrc").write_text("machine api.wandb.ai login user password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    assert tracking.has_wandb_key()
    monkeypatch.setenv("WANDB_BASE_URL", "https://wandb.example.org")
    assert not tracking.has_wandb_key()


@pytest.mark.skipif(
    util.find_spec("trackio") is None, reason="trackio is missing: pip install 'sparring[trackio]'"
)
def test_trackio_holds_the_same_names_and_numbers_in_the_runs_folder(tmp_path: Path) -> None:
    """In a process of its own: trackio reads where to write when it is imported."""
    run = tmp_path / "run"
    keys = ("iterations=2", "tracking.trackio=always", "tracking.project=games")
    life = train("kuhn", run, *keys, first=leave_trackio_alone)
    assert life.code == 0, life.err
    assert f"TRACKIO_DIR={run}/trackio trackio sync --project games --space-id" in life.err
    with sqlite3.connect(run / "trackio" / "games.db") as database:
        rows = database.execute("select step, metrics from metrics order by step").fetchall()
    lines = list(read_lines(run / "metrics.jsonl"))
    assert [step for step, _ in rows] == [1, 2]
    for (_, told), line in zip(rows, lines, strict=True):
        assert json.loads(told) == {k: v for k, v in line.items() if isinstance(v, int | float)}


def leave_trackio_alone() -> None:
    for name in ("TRACKIO_DIR", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        os.environ.pop(name, None)


@with_wandb
@pytest.mark.usefixtures("no_wandb_settings")
def test_a_server_that_cannot_be_reached_costs_the_run_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(tracking, "_WAIT_S", 2)
    wandb.teardown()
    told = Tracking(config("auto", board=False), tmp_path, 0)
    told.log({"iteration": 1, **METRICS})
    told.close()
    assert "W&B cannot be reached" in caplog.text
    assert "127.0.0.1:9" in caplog.text
    (data,) = recorded(tmp_path)
    assert b"learn/loss" in data

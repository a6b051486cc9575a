"""TensorBoard and W&B are told the very names and numbers of metrics.jsonl."""

from __future__ import annotations

from importlib import util
from pathlib import Path

import pytest

from sparring.run import tracking
from sparring.run.config import Config, ConfigError, load_recipe
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
    """What each life left for W&B; names and numbers stand in it as they are."""
    return [path.read_bytes() for path in sorted(run.glob("wandb/offline-run-*/*.wandb"))]


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

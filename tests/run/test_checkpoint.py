"""Checkpoints appear whole or not at all, and damage to them is noticed and named."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from sparring.run import checkpoint
from sparring.run.checkpoint import CheckpointError, damage, load, load_latest, prune, save, steps

TENSORS = {
    "main.policy": {"w": torch.arange(6.0).reshape(2, 3), "half": torch.ones(2).bfloat16()},
    "main.optimizer": {"w/step": torch.tensor(3.0)},
}
STATE = {"iteration": 1, "credit": {"baselines": {"g/x": 0.1 + 0.2}}}


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    save(tmp_path, 7, TENSORS, STATE)
    tensors, state = load(tmp_path, 7)
    assert state == STATE
    assert {k: set(v) for k, v in tensors.items()} == {k: set(v) for k, v in TENSORS.items()}
    for name, group in TENSORS.items():
        for key, value in group.items():
            assert tensors[name][key].dtype == value.dtype
            assert torch.equal(tensors[name][key], value)
    found = sorted(p.name for p in (tmp_path / "step_000007").iterdir())
    assert found == [
        "main.optimizer.safetensors",
        "main.policy.safetensors",
        "manifest.json",
        "state.json",
    ]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def empty_sums(path: Path) -> None:
    path.write_text(json.dumps({"step": 2, "sha256": {}}))


@pytest.mark.parametrize(
    ("name", "harm", "reason"),
    [
        ("main.policy.safetensors", flip, "main.policy.safetensors is not what was written"),
        ("main.optimizer.safetensors", cut, "main.optimizer.safetensors is not what was written"),
        ("main.policy.safetensors", Path.unlink, "main.policy.safetensors is missing"),
        ("state.json", cut, "state.json is not what was written"),
        ("manifest.json", cut, "manifest.json cannot be read"),
        ("manifest.json", Path.unlink, "manifest.json cannot be read"),
        ("manifest.json", empty_sums, "manifest.json is not the one that was written"),
    ],
)
def test_damage_is_named_and_the_one_before_is_used(
    tmp_path: Path, name: str, harm: Any, reason: str
) -> None:
    for step in (0, 1, 2):
        save(tmp_path, step, TENSORS, {**STATE, "iteration": step})
    assert damage(tmp_path / "step_000002") is None
    harm(tmp_path / "step_000002" / name)
    assert reason in (damage(tmp_path / "step_000002") or "")
    found = load_latest(tmp_path)
    assert found is not None
    step, _, state, problems = found
    assert (step, state["iteration"]) == (1, 1)
    assert len(problems) == 1 and "step_000002" in problems[0] and reason in problems[0]


def test_when_all_are_damaged_nothing_is_guessed(tmp_path: Path) -> None:
    assert load_latest(tmp_path) is None
    for step in (0, 1):
        save(tmp_path, step, TENSORS, STATE)
        flip(tmp_path / checkpoint.step_name(step) / "state.json")
    with pytest.raises(CheckpointError, match=r"no usable.*step_000001.*step_000000"):
        load_latest(tmp_path)


def test_a_checkpoint_in_another_ones_place_is_not_taken_for_it(tmp_path: Path) -> None:
    save(tmp_path, 1, TENSORS, STATE)
    (tmp_path / "step_000001").rename(tmp_path / "step_000009")
    assert "not the one" in (damage(tmp_path / "step_000009") or "")


def test_pruning_keeps_the_newest_the_first_and_the_best(tmp_path: Path) -> None:
    for step in range(8):
        save(tmp_path, step, {}, STATE)
    (tmp_path / ".step_000003.unfinished").mkdir()  # left by a life that was killed
    checkpoint.tidy(tmp_path, keep=2, best=3)
    assert steps(tmp_path) == [0, 3, 6, 7]
    assert (tmp_path / "best").resolve().name == "step_000003"
    checkpoint.tidy(tmp_path, keep=1, best=7)
    assert steps(tmp_path) == [0, 7]
    assert (tmp_path / "best").resolve().name == "step_000007"
    assert not list(tmp_path.glob(".*"))
    checkpoint.point(tmp_path, "best", None)
    assert not os.path.lexists(tmp_path / "best")


def test_pruning_keeps_the_best_of_the_time_of_each_that_is_kept(tmp_path: Path) -> None:
    """If the newest is damaged, the run goes on from the one before, and may be rolled back."""
    for step in range(9):
        save(tmp_path, step, {}, STATE)
    checkpoint.point(tmp_path, "checkpoint_stage_1_epoch_1", 5)
    checkpoint.tidy(tmp_path, keep=2, best=8, former=[1, 2, 3, 6])
    assert steps(tmp_path) == [0, 3, 5, 6, 7, 8]
    checkpoint.point(tmp_path, "checkpoint_stage_1_epoch_1", None)
    checkpoint.tidy(tmp_path, keep=2, best=8, former=[1, 2, 3, 6])
    assert steps(tmp_path) == [0, 6, 7, 8]


def test_pruning_fewer_than_are_kept_prunes_none(tmp_path: Path) -> None:
    for step in range(3):
        save(tmp_path, step, {}, STATE)
    prune(tmp_path, 5, set())
    assert steps(tmp_path) == [0, 1, 2]


def test_a_damaged_one_is_set_aside_as_often_as_it_happens(tmp_path: Path) -> None:
    for word in ("first", "second"):
        save(tmp_path, 4, {}, {"word": word})
        checkpoint.set_aside(tmp_path, 4)
        assert steps(tmp_path) == []
        kept = json.loads((tmp_path / "damaged_step_000004" / "state.json").read_text())
        assert kept == {"word": word}


@pytest.mark.parametrize("where", ["open", "safetensors", "rename"])
def test_a_full_disk_is_said_and_leaves_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    save(tmp_path, 1, TENSORS, STATE)

    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_for_safetensors(*args: object, **options: object) -> None:
        from safetensors import SafetensorError

        raise SafetensorError("I/O error: No space left on device (os error 28)")

    if where == "open":
        monkeypatch.setattr(Path, "write_text", full)
    elif where == "rename":
        monkeypatch.setattr(Path, "rename", full)
    else:
        monkeypatch.setattr("safetensors.torch.save_file", full_for_safetensors)
    with pytest.raises(CheckpointError, match=r"No space left.*step_000001.*--resume"):
        save(tmp_path, 2, TENSORS, STATE)
    monkeypatch.undo()
    assert [p.name for p in tmp_path.iterdir()] == ["step_000001"]
    assert damage(tmp_path / "step_000001") is None


def test_a_lost_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"could not be written: No such file"):
        save(tmp_path / "gone", 1, TENSORS, STATE)
    with pytest.raises(CheckpointError, match=r"could not be tidied: No such file"):
        checkpoint.tidy(tmp_path / "gone", 1, 1)

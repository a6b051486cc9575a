"""The folder of a run: whose it is, what is kept of it, and how torn lines are mended."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Task, Turn, Verdict
from sparring.run.config import Config, make_config
from sparring.run.rundir import (
    RunDir,
    RunError,
    append,
    differing,
    encode_episodes,
    mend,
    read_lines,
    write_whole,
)


def config(**changes: Any) -> Config:
    return make_config({"games": {"kuhn": {"style": "terse"}}, **changes})


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_new_run_writes_its_whole_config_and_reads_it_back(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "a" / "run", config(seed=5), resume=False)
    assert run.config() == config(seed=5)
    assert run.episodes.is_dir() and run.checkpoints.is_dir()
    assert "clip_high: 0.2" in (run.path / "config.yaml").read_text()  # what nobody set, too


def test_another_config_is_refused_with_its_keys_and_nothing_changes(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    run.metrics.write_text('{"iteration": 1}\n{"iter')
    before = contents(run.path)
    other = config(seed=1, learn={"lr": 1.0}, games={"kuhn": {"style": "terse", "weight": 2}})
    for resume in (True, False):
        with pytest.raises(ConfigError, match=r"games\.kuhn\.weight, learn\.lr, seed differ"):
            RunDir.open(run.path, other, resume=resume)
    assert contents(run.path) == before


def test_a_run_that_has_begun_is_only_resumed(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    RunDir.open(run.path, config(), resume=False)  # nothing was played: nothing can be lost
    append(run.metrics, {"iteration": 1})
    with pytest.raises(ConfigError, match="--resume"):
        RunDir.open(run.path, config(), resume=False)
    assert RunDir.open(run.path, config(), resume=True).path == run.path


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"!")
    for resume in (True, False):
        with pytest.raises(ConfigError, match="not empty and holds no run"):
            RunDir.open(tmp_path, config(), resume=resume)
    assert contents(tmp_path) == {"photo.jpg": b"!"}
    with pytest.raises(ConfigError, match="holds no run"):
        RunDir.existing(tmp_path)


def test_a_run_whose_checkpoints_are_gone_does_not_begin_again(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    append(run.metrics, {"iteration": 1})
    run.checkpoints.rmdir()
    before = contents(run.path)
    with pytest.raises(RunError, match=r"checkpoints is gone.*Bring it back"):
        RunDir.open(run.path, config(), resume=True)
    assert contents(run.path) == before


@pytest.mark.parametrize("torn", ["", '{"iteration": 3, "x', '{"iteration": 3}', "\x00\x00"])
def test_a_torn_last_line_is_cut_off_and_no_other(tmp_path: Path, torn: str) -> None:
    log = tmp_path / "log.jsonl"
    lines = [{"iteration": 1, "x": 0.1 + 0.2}, {"iteration": 2, "x": None}]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    assert list(read_lines(log)) == lines
    mend(log)
    append(log, {"iteration": 3})
    assert [json.loads(line) for line in log.read_text().splitlines()] == [*lines, {"iteration": 3}]


def test_only_a_torn_line_leaves_an_empty_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    mend(log)
    assert not log.exists() and list(read_lines(log)) == []
    log.write_text('{"iter')
    mend(log)
    assert log.read_text() == ""


def episode() -> Episode:
    turn = Turn("x", "main", "shown", "said ✓", 3, [1], [2, 3], [-0.1, -0.2], trainable=True)
    return Episode(
        *("1-0", "kuhn", Task("t", data={"cards": [0, 2]}), 9, "1-0"),
        seating={"x": "main"},
        turns=[turn],
        rewards={"x": 1.0},
        verdicts=[Verdict("pass", "tests")],
        facts={"end": "fold"},
    )


def test_episodes_come_back_as_they_were(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    run.record({"iteration": 1, "x": 1.5}, encode_episodes([episode(), episode()]))
    assert run.read_episodes(1) == [episode(), episode()]
    assert list(read_lines(run.metrics)) == [{"iteration": 1, "x": 1.5}]


def test_rewinding_forgets_what_came_after_and_nothing_else(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    for iteration in range(1, 5):
        run.record({"iteration": iteration, "x": iteration / 3}, encode_episodes([episode()]))
        run.event(iteration, "rollback", "why")
    kept = list(read_lines(run.metrics))[:2]
    run.rewind(2)
    assert list(read_lines(run.metrics)) == kept
    assert [e["iteration"] for e in read_lines(run.events)] == [1, 2]
    assert sorted(p.name for p in run.episodes.iterdir()) == ["000001.jsonl.gz", "000002.jsonl.gz"]


def test_a_full_disk_while_recording_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"iteration 1 .* No space left .*--resume"):
        run.record({"iteration": 1}, encode_episodes([episode()]))


def test_a_file_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def broken(handle: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="broken"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_differences_are_named_by_their_dotted_keys() -> None:
    old = {"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": {"g": 1}}
    new = {"a": 1, "b": {"c": 5, "d": {}}, "f": 4}
    assert differing(old, new) == ["b.c", "b.d.e", "f"]
    assert differing(old, old) == []


LATER = {
    "iterations": 300,
    "tracking": {"tensorboard": False},
    "checkpoint": {"keep": 9},
    "evaluate": {"every": 5, "games": 2},
}


def test_what_cannot_change_the_past_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    append(run.metrics, {"iteration": 1})
    again = RunDir.open(run.path, config(**LATER), resume=True)
    assert again.config() == config(**LATER)
    again.rewind(1)
    (event,) = read_lines(run.events)
    assert event["event"] == "config" and event["iteration"] == 1
    for key in ("iterations", "tracking.tensorboard", "checkpoint.keep", "evaluate.every"):
        assert key in event["detail"]
    with pytest.raises(ConfigError, match=r"\(seed differ\)"):
        RunDir.open(run.path, config(**{**LATER, "seed": 9, "iterations": 400}), resume=True)
    append(run.metrics, {"iteration": 7})
    with pytest.raises(ConfigError, match="has 7 iterations already, and iterations=6"):
        RunDir.open(run.path, config(iterations=6), resume=True)


def test_another_recipe_is_told_of_another_folder_and_of_no_horizon(tmp_path: Path) -> None:
    run = RunDir.open(tmp_path / "run", config(), resume=False)
    linear = config(learn={"schedule": "linear"}, iterations=200)
    with pytest.raises(
        ConfigError, match=r"learn\.schedule differ\); give this run another folder"
    ):
        RunDir.open(run.path, linear, resume=True)


def test_a_run_whose_game_lies_elsewhere_says_where_it_is_looked_for(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text("from sparring import Game\nclass Mine(Game):\n    seats = ('a',)\n")
    mine = config(games={f"{source}:Mine": {}})
    run = RunDir.open(tmp_path / "run", mine, resume=False)
    assert run.config() == mine
    source.unlink()
    with pytest.raises(ConfigError, match=r"there is no file .*mine\.py(.|\n)*is looked for in"):
        run.config()


def test_more_iterations_are_refused_where_a_schedule_goes_by_their_number(tmp_path: Path) -> None:
    linear = {"schedule": "linear"}
    for name, learn in (("lr", linear), ("entropy", {"entropy": 0.1, "entropy_end": 0.0})):
        run = RunDir.open(tmp_path / name, config(learn=learn), resume=False)
        with pytest.raises(ConfigError, match=r"iterations differ.*learn\.horizon=100"):
            RunDir.open(run.path, config(learn=learn, iterations=200), resume=True)
        more = config(learn={**learn, "horizon": 100}, iterations=200)
        assert RunDir.open(run.path, more, resume=True).config() == more
        with pytest.raises(ConfigError, match="iterations, learn"):
            further = config(learn={**learn, "horizon": 300}, iterations=300)
            RunDir.open(run.path, further, resume=True)

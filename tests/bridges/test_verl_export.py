"""What `sparring export verl` makes of runs, read without verl: which games, and whose tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sparring.bridges.verl_export import export, exportable_games
from sparring.core.errors import ConfigError
from sparring.core.plugin import names
from sparring.run.config import make_config
from sparring.run.games import load_game
from sparring.tasks import load_tasks
from sparring.training.instances import read_parquet
from sparring.training.loop import train


def played(path: Path, **more: Any) -> Path:
    config = {
        "policy": "nano",
        "iterations": 2,
        "sampling": {"max_tokens": 1},
        "collect": {"episodes": 4},
        "evaluate": {"games": 0, "final": 0, "ladder": 0},
        "engine": {"device": "cpu", "dtype": "float32"},
        "learn": {"lora_r": 2},
        **more,
    }
    train(make_config(config), path)
    return path


def test_a_game_that_needs_tasks_brings_those_of_its_source(tmp_path: Path):
    arms = ["wolfram_standard", "wolfram_rephrase"]
    run = played(
        tmp_path / "run",
        games={"coherent_math": {"style": "terse", "arms": arms}},
        tasks={"source": "shipped", "limit": 10, "holdout": 0.3},
        learn={"lora_r": 2, "seats": arms},
    )
    done = export(run, tmp_path / "out")
    assert (done["game"], done["train_rows"], done["val_rows"]) == ("coherent_math", 7, 3)
    source, rows = read_parquet(tmp_path / "out" / "train.parquet")
    assert source.game == "coherent_math" and source.options["arms"] == arms
    known = {t.id: t.data for t in load_tasks("shipped:word_problems", "train", 10)}
    assert all(row.task.data == known[row.task.id] for row in rows)
    # Won together, so that a row is a game of all seats.
    assert {row.seat for row in rows} == {""} and len({row.task.id for row in rows}) == 7
    _, val = read_parquet(tmp_path / "out" / "val.parquet")
    assert not {row.task.id for row in rows} & {row.task.id for row in val}
    assert all(row.prompt[0]["content"] for row in [*rows, *val])
    config = yaml.safe_load((tmp_path / "out" / "sparring.yaml").read_text())
    assert config["trainer"]["experiment_name"] == "${oc.env:EXP_NAME,coherent_math}"


def test_a_run_of_several_games_is_exported_one_at_a_time(tmp_path: Path):
    terse = {"style": "terse"}
    games = {"tictactoe": terse, "kuhn": terse}
    run = played(tmp_path / "run", games=games, collect={"episodes": 16})
    with pytest.raises(ConfigError, match=r"--game, of tictactoe, kuhn"):
        export(run, tmp_path / "out")
    with pytest.raises(ConfigError, match="no game 'khun'; did you mean 'kuhn'"):
        export(run, tmp_path / "out", "khun")
    assert not (tmp_path / "out").exists()
    assert export(run, tmp_path / "out", "kuhn")["game"] == "kuhn"
    source, rows = read_parquet(tmp_path / "out" / "train.parquet")
    assert source.game == "kuhn" and {row.seat for row in rows} == set(load_game("kuhn").seats)
    assert {row.task.game for row in rows} == {"kuhn"}


def test_who_sits_otherwise_in_verl_is_said(tmp_path: Path):
    run = played(
        tmp_path / "run",
        games={"kuhn": {"style": "terse"}},
        opponents={"kind": "random", "share": 0.5},
        sandbox="unsafe",
    )
    [note] = export(run, tmp_path / "out")["notes"]
    assert "main, random play" in note
    [loop] = yaml.safe_load((tmp_path / "out" / "agent.yaml").read_text())
    assert loop["sandbox"] == "unsafe"


def test_every_game_is_listed():
    found = exportable_games()
    assert set(found) == set(names("games"))
    assert "tasks of a source" in found["equivalence"] and "its own" in found["matching"]

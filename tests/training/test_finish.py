"""The end of a run: what is measured, against what, and what a person is left with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from lives import Moment, train

from sparring.run.rundir import RunDir
from sparring.training.finish import evenly_spaced, finish

MEASURED = ("evaluate.final=6", "evaluate.ladder=2")
SHORT = "games.tictactoe={style: terse, cap: 4}"  # each measurement asks for all positions


def test_steps_are_spread_evenly_with_both_ends() -> None:
    assert evenly_spaced([0, 5, 10], 6) == [0, 5, 10]
    assert evenly_spaced(list(range(0, 101, 10)), 6) == [0, 20, 40, 60, 80, 100]
    assert evenly_spaced(list(range(10)), 2) == [0, 9]


def made(recipe: str, folder: Path, *words: str) -> Path:
    life = train(recipe, folder / "run", *MEASURED, "iterations=4", *words)
    assert life.code == 0, life.err
    return folder / "run"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made("tictactoe", tmp_path_factory.mktemp("finish"), SHORT)


@pytest.fixture(scope="module")
def of_kuhn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `finished`, of a game whose positions are few: every measurement asks for all of them."""
    return made("kuhn", tmp_path_factory.mktemp("finish"))


def test_the_trained_and_the_untrained_play_the_same_opponents(finished: Path) -> None:
    found = json.loads((finished / "evaluation.json").read_text())
    for results in (found["tictactoe"], found["untrained"]["tictactoe"]):
        for opponent in ("random", "perfect", "random_sampled", "perfect_sampled"):
            score = results[opponent]
            assert score["games"] == score["wins"] + score["draws"] + score["losses"] == 6
            assert score["invalid"] <= score["losses"]
        assert 0 <= results["exact"]["regret"] <= 2
        asked = [(how["temperature"], how["max_tokens"]) for how in results["sampling"]]
        assert results["style"] == "terse" and asked == [(0, 1), (1, 1)]


def test_every_kept_checkpoint_is_rated_with_an_interval(finished: Path) -> None:
    found = json.loads((finished / "ladder.json").read_text())
    steps = {int(p.name[5:]) for p in (finished / "checkpoints").glob("step_*")}
    ratings = found["ratings"]
    assert {rating["name"] for rating in ratings} == {f"iteration {step}" for step in steps}
    assert 0 in steps and 4 in steps
    assert [r["elo"] for r in ratings] == sorted((r["elo"] for r in ratings), reverse=True)
    assert sum(r["elo"] for r in ratings) == pytest.approx(0, abs=1e-4)
    assert all(r["low"] < r["elo"] < r["high"] for r in ratings)
    assert all(rating["games"] == 2 * (len(steps) - 1) for rating in ratings)
    (sampling,) = found["played"]["tictactoe"]["sampling"]
    assert (sampling["temperature"], sampling["max_tokens"]) == (1.0, 1)  # as it was trained
    assert len(found["results"]) == len(steps) * (len(steps) - 1) // 2


def test_finishing_again_says_the_same(of_kuhn: Path, tmp_path: Path) -> None:
    copied = tmp_path / "run"
    shutil.copytree(of_kuhn, copied, symlinks=True)
    for name in ("evaluation.json", "ladder.json", "report.html"):
        (copied / name).unlink()
    finish(copied)
    for name in ("evaluation.json", "ladder.json"):
        assert (copied / name).read_text() == (of_kuhn / name).read_text()


def test_a_run_that_died_while_it_was_measured_is_measured_when_resumed(
    of_kuhn: Path, tmp_path: Path
) -> None:
    run, overrides = tmp_path / "run", (*MEASURED, "iterations=4")
    train("kuhn", run, *overrides, die_at=Moment("ladder.json"))
    assert not (run / "ladder.json").exists()
    assert train("kuhn", run, *overrides, resume=True).code == 0
    for name in ("evaluation.json", "ladder.json"):
        assert (run / name).read_text() == (of_kuhn / name).read_text()
    assert len(RunDir(run).read_episodes(4)) == 24

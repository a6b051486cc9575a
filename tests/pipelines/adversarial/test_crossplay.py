"""Who beats whom across stages, by numbers, and how the report tells it."""

import json
from pathlib import Path

import pytest

from sparring.pipelines.adversarial.crossplay import _checkpoints, over_time
from sparring.pipelines.adversarial.report import _race, section
from sparring.run import checkpoint
from sparring.run.config import load_recipe
from sparring.run.rundir import RunDir
from sparring.view.rundata import RunData

# Rows are discriminators, columns generators; a share of broken programs.
RACE = [[0.5, 0.3, 0.2], [0.7, 0.4, 0.3], [0.9, 0.6, 0.5]]
CYCLE = [[0.5, 0.1, 0.9], [0.9, 0.5, 0.1], [0.1, 0.9, 0.5]]


def test_today_against_yesterday_by_numbers() -> None:
    first, second = over_time(RACE)
    assert first == {
        "discriminator_against_todays": 0.4,
        "discriminator_against_yesterdays": 0.7,
        "discriminator_against_hardest": 0.7,
        "generator_against_todays": 0.6,
        "generator_against_yesterdays": 0.7,
        "generator_against_hardest": 0.7,
    }
    assert second["discriminator_against_yesterdays"] == pytest.approx(0.75)
    assert second["discriminator_against_hardest"] == 0.6
    assert second["generator_against_yesterdays"] == pytest.approx(0.75)
    assert second["generator_against_hardest"] == pytest.approx(0.7)
    assert over_time([[0.5]]) == []


def test_after_imitation_the_base_model_is_the_untrained_player(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for step in (0, 2):
        folder = run.checkpoints / checkpoint.step_name(step)
        folder.mkdir(parents=True)
        for seat in ("generator", "discriminator"):
            (folder / f"{seat}.policy.safetensors").touch()
    first = run.checkpoints / "checkpoint_stage_1_epoch_2"
    first.symlink_to(checkpoint.step_name(2))
    config = load_recipe("adversarial-warm", smoke=True)
    assert _checkpoints(run, config) == {"untrained": None, "after imitation": 0, "stage 1": 2}
    config.begin.clear()
    assert _checkpoints(run, config) == {"untrained": 0, "stage 1": 2}


def test_a_race_and_a_cycle_are_told_apart() -> None:
    assert "as in an arms race" in _race(over_time(RACE))
    assert "as in a cycle" in _race(over_time(CYCLE))
    assert "No discriminator broke anything" in _race(over_time([[0.0] * 3] * 3))
    assert _race([]) == ""


def test_the_report_shows_stages_players_and_tests_and_nothing_where_there_are_none(
    tmp_path: Path,
) -> None:
    assert section(RunData("plain", tmp_path, lines=[{"iteration": 1, "turns": 3}])) is None
    lines = [
        {"iteration": 0, "eval/adversarial_tests/held_out/pass_rate_baseline": 0.25},
        *(
            {
                "iteration": i,
                "schedule/stage": stage,
                "reward/adversarial_tests/generator": 0.5,
                "tests/bugs": 2.0,
                "time/total_s": 30.0,
            }
            for i, stage in ((1, 1), (2, 1), (3, 2))
        ),
    ]
    bug = {"problem": "p", "test": "assert f('<b>') == 1", "broke": 3, "ran": 4, "stages": {}}
    crossplay = {
        "names": ["untrained", "stage 1", "stage 2"],
        "discriminator_wins": RACE,
        "problems": 9,
        "over_time": over_time(RACE),
    }
    (tmp_path / "crossplay.json").write_text(json.dumps(crossplay))
    (tmp_path / "bugs.json").write_text(json.dumps({"tests": 1, "bugs": 3, "most": [bug]}))
    part = section(RunData("run", tmp_path, lines=lines))
    assert part is not None
    page = part.sections[0].body
    assert page.count("<tr><th>") == 3 + 3 + 3 + 1  # heads; before and two stages; players; a test
    assert "0.250" in page and "0.500" in page and ">4<" in page
    assert "90%" in page and "over 9 problems" in page and "3 of 4" in page
    assert "<b>" not in page  # a model's words are text
    (tmp_path / "crossplay.json").write_text(json.dumps({**crossplay, "games": 36}))
    again = section(RunData("run", tmp_path, lines=lines))
    assert again is not None and "over 36 games on 9 problems" in again.sections[0].body

"""Every recipe of self-play, whole and small: it trains, is measured, and leaves its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from browser import assert_tables_align
from lives import sparring
from test_bad_input import refused

from sparring.run.config import load_recipe
from sparring.run.machine import detect, settle
from sparring.run.recipes import recipe_files, recipe_names
from sparring.run.rundir import RunDir, read_lines

GAMES = {
    "tictactoe": ["tictactoe"],
    "kuhn": ["kuhn"],
    "negotiation": ["negotiation"],
    "leduc": ["openspiel:leduc_poker"],
    "spiral": ["tictactoe", "kuhn", "negotiation"],
}


REPORTS: list[Path] = []  # of the smoke runs, which one browser then opens


@pytest.mark.parametrize("recipe", list(GAMES))
def test_a_smoke_run_is_whole_and_takes_less_than_a_minute(tmp_path: Path, recipe: str) -> None:
    if any(game.startswith("openspiel:") for game in GAMES[recipe]):
        pytest.importorskip("pyspiel", reason="pip install 'sparring[openspiel]' adds OpenSpiel")
    life = sparring("train", recipe, "--smoke", cwd=tmp_path)
    assert life.code == 0, life.err
    assert 0 < life.cpu_s < 60  # less than a minute on one idle core
    run = tmp_path / "runs" / f"{recipe}-smoke"
    lines = [line for line in read_lines(run / "metrics.jsonl") if line["iteration"] > 0]
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["learn/grad_norm"] > 0 and line["learn/skipped"] == 0
        assert line["episodes"] == 16 and line["rate/void"] == 0
        assert {"time/total_s", "turns_per_s", "tokens_per_s"} <= set(line)
    assert "eval/score" in lines[1] and "eval/score" in lines[2]
    assert RunDir.existing(run).config() == settle(load_recipe(recipe, smoke=True), detect())[0]
    assert {e.game for i in (1, 2, 3) for e in RunDir(run).read_episodes(i)} == set(GAMES[recipe])
    steps = [f"step_{i:06d}" for i in range(4)]
    assert sorted(p.name for p in (run / "checkpoints").glob("step_*")) == steps
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert list(evaluation) == [*GAMES[recipe], "untrained"]
    assert len(json.loads((run / "ladder.json").read_text())["ratings"]) == 4
    assert list((run / "tensorboard").iterdir())
    page = (run / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    if recipe in ("spiral", "leduc"):  # whose reports have all that those of the others have
        REPORTS.append(run / "report.html")
    # Plain where no person looks, and the path of the report is the last thing said.
    assert "\x1b" not in life.out and "Traceback" not in life.err
    assert life.out.splitlines()[-1] == str(run / "report.html")
    assert f"{recipe} 3/3" in life.out


def test_the_tables_of_their_reports_align() -> None:
    if not REPORTS:
        pytest.skip("no smoke run was made in this session")
    assert_tables_align(*REPORTS)


@pytest.mark.parametrize("name", recipe_names())
def test_a_model_that_cannot_be_had_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused("nope", "train", name, "--smoke", "policy=nope")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_its_keys_at_the_top_and_says_what_it_is(name: str) -> None:
    text = recipe_files()[name].read_text()
    assert text.startswith("# ")
    data = yaml.safe_load(text)
    assert list(data)[:4] == ["seed", "iterations", "policy", "checkpoint"]
    assert data["checkpoint"]["every"] >= 1
    config, small = load_recipe(name), load_recipe(name, smoke=True)
    assert config.recipe == name and config.games
    assert (small.policy, small.engine.device) == ("nano", "cpu")
    plan = small.schedule
    steps = 5 * (plan.discriminator + plan.generator + plan.alternating)  # of five stages
    assert small.iterations == (steps if plan.enabled else 3)
    assert list(small.games) == list(config.games)  # shrunk, whole
    for section in ("credit", "learn"):
        assert getattr(small, section) == getattr(config, section)


def test_a_game_of_ones_own_can_be_named_in_a_recipes_place(tmp_path: Path) -> None:
    (tmp_path / "coin.py").write_text(
        "from sparring import Game, Outcome\n\n\nclass Coin(Game):\n    seats = ('a',)\n\n"
        "    async def play(self, task, table):\n"
        "        return Outcome(a=(await table['a'].act('?')).text == '1')\n"
    )
    life = sparring("train", "coin.py:Coin", "--smoke", "sampling.max_tokens=1", cwd=tmp_path)
    assert life.code == 0, life.err
    assert (tmp_path / "runs" / "Coin-smoke" / "report.html").exists()
    assert "no 'Head' to take the game" in sparring("train", "coin.py:Head", cwd=tmp_path).err
    assert "coin.py:CLASS" in sparring("train", "coin.py", cwd=tmp_path).err
    (tmp_path / "flip.yaml").write_text("games: {'coin.py:Coin': {}}\n")
    assert "did you mean 'flip.yaml'?" in sparring("train", "flip", cwd=tmp_path).err
    assert "games: {'gym:chain_sum'" in sparring("train", "gym:chain_sum", cwd=tmp_path).err
    misspelt = sparring("train", "openspeil:leduc_poker", cwd=tmp_path)
    assert misspelt.code == 2 and "did you mean 'openspiel'?" in misspelt.err


def test_a_game_without_seats_is_told_of_them(tmp_path: Path) -> None:
    (tmp_path / "nobody.py").write_text("from sparring import Game\nclass Nobody(Game): ...\n")
    life = sparring("train", "nobody.py:Nobody", cwd=tmp_path)
    assert life.code == 2 and "no game has a seat" in life.err
    assert not (tmp_path / "runs").exists()

"""Mistakes in a game that somebody writes are answered with the game, its file and the line."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sparring.cli.app import exit_code
from sparring.core.collect import Job, collect
from sparring.core.errors import GameError
from sparring.core.scripted import ScriptedEngine
from sparring.run.config import make_config
from sparring.run.games import load_game
from sparring.run.rundir import RunDir
from sparring.training.loop import train

HEAD = """from sparring import Game, Outcome, View


class Mine(Game):
    seats = ("left", "right")

    async def play(self, task, table):
"""


TOGETHER = """import asyncio
async def ask(seat):
    if (await table[seat].act('?')).text == 'word':
        raise ValueError(seat)
async with asyncio.TaskGroup() as tasks:
    for seat in self.seats:
        tasks.create_task(ask(seat))
"""


def played(path: Path, body: str) -> None:
    path.write_text(HEAD + "".join(f"        {line}\n" for line in body.splitlines()))
    game = load_game(f"{path}:Mine")
    job = Job("1", "mine.py:Mine", game, game.task(0), 0, {"left": "main", "right": "main"})
    engine = ScriptedEngine({"main": lambda request: "word"})
    asyncio.run(collect([job], engine.act))


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("await table['lft'].act('?')", 8, "there is no seat 'lft'; did you mean 'left'?"),
        ("await table['left'].act('?')", 7, "play returned None; it has to return an Outcome"),
        ("return 1.0", 7, "play returned 1.0"),
        ("return Outcome(up=1)", 7, "it rewards a seat 'up'; there are: left, right"),
        (
            "await table['right'].act('?')\nreturn Outcome(left=1)",
            7,
            "it gives the seat 'right' no reward; whoever was asked has one",
        ),
        ("return Outcome(left=float('nan'))", 8, "the reward of 'left' is nan; it has to be"),
        (
            "turn = await table['left'].act('?')\nturn.reward = float('nan')\n"
            "return Outcome(left=1)",
            7,
            "it gives the seat 'left' nan as the reward of a turn; it has to be a finite number",
        ),
        ("\nturn = table['left'].act('?')\nturn.text", 10, "is an `await` missing before what"),
        ("await table['left'].act('?', max_token=3)", 8, "did you mean 'max_tokens'?"),
        ("await table['left'].act('?', view=View(actions=('a',)))", 8, "'state'"),
        ("import random\nrandom.choice([])", 9, "IndexError"),
        ("return helper()", 8, "name 'helper' is not defined"),
        (TOGETHER, 11, "ValueError: left"),
        ("return Outcome(left=1, facts={'drawn': {1}})", 7, "type set is not JSON serializable"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_mistake_is_named_with_its_line(tmp_path: Path, body: str, line: int, says: str) -> None:
    path = tmp_path / "mine.py"
    with pytest.raises(GameError) as caught:
        played(path, body)
    assert f"mine.py:Mine ({path}:{line}): " in str(caught.value)
    assert says in str(caught.value)
    assert exit_code(caught.value) == 1


def test_a_play_that_is_not_async_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(HEAD.replace("async def", "def") + "        return Outcome(left=1, right=-1)\n")
    game = load_game(f"{path}:Mine")
    job = Job("1", "mine.py:Mine", game, game.task(0), 0, {"left": "main", "right": "main"})
    with pytest.raises(GameError, match=r"mine.py:7\): play has to be an `async def`"):
        asyncio.run(collect([job], ScriptedEngine({"main": lambda request: "word"}).act))


@pytest.mark.parametrize(
    ("task", "says"),
    [
        ("{'id': '1'}", "task returned {'id': '1'}; it has to return a Task"),
        ("None", "task returned None; it has to return a Task"),
        ("Task('1', data={'deck': {1}})", "its task holds {'deck': {1}}, which goes on record"),
    ],
)
def test_a_task_that_is_none_is_named(tmp_path: Path, task: str, says: str) -> None:
    path = tmp_path / "mine.py"
    lines = f"\n    def task(self, seed):\n        return {task}\n"
    text = f"{HEAD}        return Outcome(left=1, right=-1)\n{lines}".replace("View", "Task", 1)
    path.write_text(text)
    config = {"games": {f"{path}:Mine": {}}, "policy": "nano", "engine": {"device": "cpu"}}
    with pytest.raises(GameError) as caught:
        train(make_config(config), tmp_path / "run")
    assert f"mine.py:Mine ({path}:10): {says}" in str(caught.value)


def test_what_breaks_in_an_engine_is_not_blamed_on_the_game(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}        await table['left'].act('?')\n        return Outcome(left=1)\n")
    game = load_game(f"{path}:Mine")
    job = Job("1", "mine", game, game.task(0), 0, {"left": "main", "right": "main"})

    async def broken(request: object) -> object:
        return make_config({"policy": []})

    with pytest.raises(ValueError, match="policy"):
        asyncio.run(collect([job], broken))  # type: ignore[arg-type]


def test_a_game_beside_its_runs_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, away = tmp_path / "home", tmp_path / "away"
    for folder in (home / "runs" / "one", away):
        folder.mkdir(parents=True)
    (home / "mine.py").write_text(f"{HEAD}        return Outcome(left=1)\n")
    config = "policy: nano\ngames: {mine.py:Mine: {}}\n"
    (home / "runs" / "one" / "config.yaml").write_text(config)
    monkeypatch.chdir(away)
    run = RunDir.existing(home / "runs" / "one")
    assert list(run.config().games) == ["mine.py:Mine"]
    assert load_game("mine.py:Mine").seats == ("left", "right")

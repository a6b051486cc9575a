"""`sparring games` lists what is installed."""

import json
from pathlib import Path

import pytest
from lives import sparring

from sparring.cli.games import installed_games
from sparring.core import plugin
from sparring.core.plugin import Bridge, Plugin


def test_every_registered_game_has_a_line() -> None:
    listed = installed_games(None)
    names = {name for games in listed.values() for name in games}
    assert set(plugin.names("games")) <= names
    assert listed["games"]["kuhn"] and all(listed["games"].values())


def test_a_bridge_that_is_missing_is_listed_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bridge = Bridge("no_such_package", "pip install 'sparring[absent]'", game="a:b", listing="a:c")
    known = (*plugin.plugins(), Plugin("test", package=__name__, bridges={"absent": bridge}))
    monkeypatch.setattr(plugin, "plugins", lambda: known)
    assert "pip install 'sparring[absent]'" in installed_games(None)["absent"]["absent:…"]


def test_one_source_as_json_and_an_unknown_one(tmp_path: Path) -> None:
    life = sparring("games", "games", "--json", cwd=tmp_path)
    assert life.code == 0 and "tictactoe" in json.loads(life.out)["games"]
    life = sparring("games", "game", cwd=tmp_path)
    assert life.code == 2 and "did you mean 'games'?" in life.err
    life = sparring("games", "nowhere", cwd=tmp_path)  # near to none of them
    assert life.code == 2 and "there are: adversarial, code, " in life.err


def test_textarenas_ids_are_listed() -> None:
    pytest.importorskip("textarena", reason="textarena is not installed")
    assert "textarena:Nim-v0" in installed_games("textarena")["textarena"]

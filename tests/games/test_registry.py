import subprocess
import sys

import pytest

from sparring.game import Game
from sparring.games import GAMES, UnknownGame, load_game


@pytest.mark.parametrize("name", GAMES)
def test_every_registered_game_loads_in_every_style(name):
    for style in ("reason", "short", "terse"):
        game = load_game(name, style=style)
        assert isinstance(game, Game)
        assert (game.zero_sum and len(game.seats) == 2) or game.cooperative or game.runs_code
        assert game.task(5) == game.task(5)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("tictactoo", {}, "'tictactoe'"),
        ("KUHN poker", {}, "kuhn"),
        ("kuhn", {"stile": "terse"}, "'style'"),
        ("kuhn", {"style": "ters"}, "'terse'"),
        ("sparring.games.kuhn:Kuhn", {}, "'KuhnPoker'"),
        ("sparring.games.kuhm:KuhnPoker", {}, "sparring.games.kuhm"),
        ("nowhere.py:Game", {}, "nowhere.py"),
        ("sparring.games.kuhn:nash", {}, "not a subclass"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(name, options, says):
    with pytest.raises(ValueError, match=says):
        load_game(name, **options)


def test_a_game_loads_from_a_module_and_from_a_file(tmp_path):
    assert load_game("sparring.games.kuhn:KuhnPoker", invalid=-2).invalid == -2
    path = tmp_path / "pennies.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from sparring.game import Game\n"
        "@dataclass\n"
        "class Pennies(Game):\n"
        "    seats = ('even', 'odd')\n"
        "    stake: int = 1\n"
    )
    assert load_game(f"{path}:Pennies", stake=3).stake == 3
    with pytest.raises(UnknownGame, match="'stake'"):
        load_game(f"{path}:Pennies", steak=3)


def test_a_missing_import_inside_a_game_is_not_called_an_unknown_game(tmp_path, monkeypatch):
    (tmp_path / "needy.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load_game("needy:Game")


def test_the_registry_imports_no_game_and_no_game_imports_torch():
    code = (
        "import sys, sparring.games as g\n"
        "assert not [m for m in sys.modules if m.startswith('sparring.games.')]\n"
        "[g.load_game(name) for name in g.GAMES]\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

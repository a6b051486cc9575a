import subprocess
import sys

import pytest

from sparring.core.errors import ConfigError
from sparring.core.game import Game
from sparring.core.plugin import names
from sparring.run.games import BadOption, game_class, load_game, option_types


@pytest.mark.parametrize("name", names("games"))
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
        "from sparring.core.game import Game\n"
        "@dataclass\n"
        "class Pennies(Game):\n"
        "    seats = ('even', 'odd')\n"
        "    stake: int = 1\n"
    )
    assert load_game(f"{path}:Pennies", stake=3).stake == 3
    with pytest.raises(BadOption, match="'stake'"):
        load_game(f"{path}:Pennies", steak=3)
    with pytest.raises(BadOption, match=r"Pennies\.stake: .*integer"):
        load_game(f"{path}:Pennies", stake="much")


def test_a_game_for_one_has_nobody_to_be_compared_with(tmp_path):
    path = tmp_path / "alone.py"
    text = "from sparring import Game\nclass Alone(Game):\n    seats = ('one',)\n"
    path.write_text(text)
    assert load_game(f"{path}:Alone").seats == ("one",)
    other = tmp_path / "compared.py"
    other.write_text(f"{text}    zero_sum = True\n")
    with pytest.raises(ConfigError, match="has one seat: nobody is there to lose what it wins"):
        load_game(f"{other}:Alone")


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("tictactoe", "opening", -4),
        ("tictactoe", "opening", 9),
        ("tictactoe", "cap", -1),
        ("kuhn", "invalid", "abc"),
        ("kuhn", "invalid", float("nan")),
        ("kuhn", "max_tokens", 0),
        ("kuhn", "max_tokens", True),
        ("negotiation", "goods", "Wood"),
        ("negotiation", "cap", -2),
        ("matching", "penalty", "abc"),
        ("matching", "scales", [1]),
        ("code_execution", "max_tokens", -5),
        ("code_prediction", "timeout_s", float("inf")),
        ("equivalence", "inputs", -5),
        ("equivalence", "share", 7),
        ("equivalence", "targets", []),
        ("adversarial_tests", "most_tests", 0),
        ("coherent_math", "arms", "wolfram_0"),
    ],
)
def test_an_option_out_of_range_or_of_another_type_is_refused_by_name(name, option, value):
    with pytest.raises(BadOption, match=rf"^{name}\.{option}"):
        load_game(name, **{option: value})


def test_what_yaml_makes_of_a_value_becomes_the_options_type():
    game = load_game("matching", scales=[1, "2e0"], hard=2)
    assert game.scales == (1.0, 2.0) and isinstance(game.hard, float)


@pytest.mark.parametrize("name", names("games"))
def test_every_number_that_counts_or_lasts_has_a_range(name):
    """Rewards may be any number; how many, how long and how likely may not."""
    free = {"invalid", "invalid_other", "alpha", "beta", "length_penalty"}
    for option, kind in option_types(game_class(name)).items():
        assert kind not in (int, float) or option in free, f"{name}.{option} has no range"


def test_an_annotation_for_type_checkers_alone_is_no_obstacle(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from typing import TYPE_CHECKING\n"
        "from sparring.core.game import Game\n"
        "if TYPE_CHECKING:\n"
        "    from decimal import Decimal\n"
        "class Stake: ...\n"
        "@dataclass\n"
        "class Odd(Game):\n"
        "    price: Decimal = 1\n"
        "    stake: Stake | None = None\n"
        "    rounds: int = 3\n"
    )
    assert load_game(f"{path}:Odd", price=2, stake=None, rounds="4").rounds == 4
    with pytest.raises(BadOption, match=r"stake: .*Stake"):
        load_game(f"{path}:Odd", stake=5)


def test_a_missing_import_inside_a_game_is_not_called_an_unknown_game(tmp_path, monkeypatch):
    (tmp_path / "needy.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load_game("needy:Game")


def test_the_registry_imports_no_game_and_no_game_imports_torch():
    code = (
        "import sys\n"
        "from sparring.core.plugin import names\n"
        "from sparring.run.games import load_game\n"
        "known = names('games')\n"
        "assert not [m for m in sys.modules if m.startswith('sparring.games.')]\n"
        "[load_game(name) for name in known]\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""Games of other packages are found by `PREFIX:ID`."""

import pytest

from sparring.core import plugin
from sparring.core.errors import ConfigError, UnknownName
from sparring.core.game import Game
from sparring.core.plugin import Bridge, Plugin
from sparring.run.games import load_game


class Numbered(Game):
    seats = ("only",)


def numbered(game_id: str) -> type[Game]:
    if not game_id.isdigit():
        raise UnknownName(f"there is no game {game_id!r}")
    return type(f"Numbered{game_id}", (Numbered,), {"title": f"Number {game_id}"})


def listing() -> dict[str, str]:
    return {"1": "the first"}


@pytest.fixture(autouse=True)
def two_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"game": f"{__name__}:numbered", "listing": f"{__name__}:listing"}
    brings = {
        "numbers": Bridge("json", "pip install json", **here),
        "absent": Bridge("no_such_package", "pip install 'sparring[absent]'", **here),
    }
    known = (*plugin.plugins(), Plugin("test", package=__name__, bridges=brings))
    monkeypatch.setattr(plugin, "plugins", lambda: known)


def test_a_bridge_makes_the_class_of_an_id() -> None:
    assert load_game("numbers:7").title == "Number 7"
    assert plugin.bridge_function("numbers", "listing")() == {"1": "the first"}


def test_a_colon_without_a_bridge_is_a_module_as_before() -> None:
    assert isinstance(load_game(f"{__name__}:Numbered"), Numbered)


def test_a_missing_package_is_answered_with_the_command_that_adds_it() -> None:
    with pytest.raises(ConfigError, match=r"add it with: pip install 'sparring\[absent\]'"):
        load_game("absent:1")


def test_a_prefix_that_is_nearly_a_known_one_is_answered_with_that() -> None:
    with pytest.raises(UnknownName, match="did you mean 'numbers:7'"):
        load_game("number:7")


def test_an_unknown_id_is_the_bridges_to_explain() -> None:
    with pytest.raises(UnknownName, match="there is no game 'x'"):
        load_game("numbers:x")

"""Games by name, with their options checked: a registered name, `some.module:Class`, or
`path/to/file.py:Class`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparring.core import plugin
from sparring.core.errors import UnknownName
from sparring.core.game import Game
from sparring.run.game_options import BadOption, checked


def load_game(name: str, **options: Any) -> Game:
    """A game with its options.

    >>> load_game("kuhn", invalid=-2.0).seats
    ('first', 'second')
    """
    kind = game_class(name)
    try:
        return kind(**checked(kind, name, options))
    except BadOption:
        raise
    except (TypeError, ValueError) as error:  # what only the game itself can say of them
        raise BadOption(f"{name}: {error}") from error


def make_games(configured: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Game]:
    """The games of a config; `weight` says how often a game is played and is no option of it."""
    return {
        name: load_game(name, **{k: v for k, v in (options or {}).items() if k != "weight"})
        for name, options in configured.items()
    }


def game_class(name: str) -> type[Game]:
    kind = plugin.find("games", name)
    if not (isinstance(kind, type) and issubclass(kind, Game) and kind is not Game):
        raise UnknownName(f"{name} is not a subclass of sparring.Game")
    return kind

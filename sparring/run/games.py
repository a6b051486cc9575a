"""Games by name (a registered one, `some.module:Class`, `path/to/file.py:Class`), with options. A
field's annotation is its type and range: whatever a recipe or a command line gives a game is held
to it before the game is made."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from sparring.core import plugin
from sparring.core.errors import ConfigError, UnknownName, nearest
from sparring.core.game import Game
from sparring.run.yaml_values import parse_yaml

Count = Annotated[int, Field(ge=1)]
Tokens = Annotated[int, Field(ge=1)] | None  # None: as the style or the recipe's sampling says
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class BadOption(ConfigError):
    """A game has no such option, or not this value of it."""


def load_game(name: str, **options: Any) -> Game:
    """A game with its options.

    >>> load_game("kuhn", invalid=-2.0).seats
    ('first', 'second')
    """
    kind = game_class(name)
    try:
        game = kind(**checked(kind, name, options))
    except BadOption:
        raise
    except (TypeError, ValueError) as error:  # what only the game itself can say of them
        raise BadOption(f"{name}: {error}") from error
    if game.zero_sum and len(game.seats) == 1:
        raise ConfigError(
            f"{name} says zero_sum = True and has one seat: nobody is there to lose what it wins, "
            "or to be met in a match. Leave zero_sum out"
        )
    return game


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


def option_types(kind: type[Game]) -> dict[str, Any]:
    """The options of a game, each with its annotation."""
    return {f.name: _annotation(kind, f) for f in dataclasses.fields(kind) if f.init}


def checked(kind: type[Game], name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """These options as the game's own types; or an error that names all that are wrong."""
    valid = option_types(kind)
    for option in options:
        if option not in valid:
            raise BadOption(f"{name} has no option {option!r}; {nearest(str(option), valid)}")
    typed = TypedDict("typed", valid, total=False)  # type: ignore[misc]
    typed.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
        arbitrary_types_allowed=True, allow_inf_nan=False
    )
    try:
        values: dict[str, Any] = TypeAdapter[Any](typed).validate_python(dict(options))
    except ValidationError as error:
        wrong = [(".".join(map(str, e["loc"])), e) for e in error.errors()]
        lines = (f"{name}.{option}: {e['msg']} (it is {e['input']!r})" for option, e in wrong)
        raise BadOption("\n".join(lines)) from None
    for option, value in values.items():
        given = options[option]
        if isinstance(given, bool) and not isinstance(value, bool):
            raise BadOption(f"{name}.{option}: a number is wanted (it is {given!r})")
    return values


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """`option=value` as a person types it, values in YAML."""
    options = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise ConfigError(f"{text!r} is no option of a game; write option=value")
        options[key] = parse_yaml(value, repr(text))
    return options


def _annotation(kind: type[Game], field: dataclasses.Field[Any]) -> Any:
    """A field's annotation, which is text where its module has `from __future__ import
    annotations`; a name that is imported for type checkers alone says nothing at run time."""
    if not isinstance(field.type, str):
        return field.type
    owner = next(c for c in kind.__mro__ if field.name in inspect.get_annotations(c))
    try:
        return eval(field.type, vars(sys.modules[owner.__module__]))
    except NameError:
        return Any

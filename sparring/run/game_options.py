"""What a game's options may be. A field's annotation is its type and range: whatever a recipe or a
command line gives a game is held to it before the game is made."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from sparring.core.errors import ConfigError, nearest
from sparring.run.yaml_values import parse_yaml

if TYPE_CHECKING:
    from sparring.core.game import Game

Count = Annotated[int, Field(ge=1)]
Tokens = Annotated[int, Field(ge=1)] | None  # None: as the style or the recipe's sampling says
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class BadOption(ConfigError):
    """A game has no such option, or not this value of it."""


def option_types(kind: type[Game]) -> dict[str, Any]:
    """The options of a game, each with its annotation."""
    return {f.name: _annotation(kind, f) for f in dataclasses.fields(kind) if f.init}


def checked(kind: type[Game], name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """These options as the game's own types; or an error that names all that are wrong."""
    valid = option_types(kind)
    for option in options:
        if option not in valid:
            raise BadOption(f"{name} has no option {option!r}; {nearest(str(option), valid)}")
    try:
        values: dict[str, Any] = _adapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise BadOption("\n".join(_explain(name, e) for e in error.errors())) from None
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


def _adapter(kind: type[Game]) -> TypeAdapter[Any]:
    options = TypedDict("options", option_types(kind), total=False)  # type: ignore[misc]
    options.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
        arbitrary_types_allowed=True, allow_inf_nan=False
    )
    return TypeAdapter(options)


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


def _explain(name: str, error: Any) -> str:
    option = ".".join(map(str, error["loc"]))
    return f"{name}.{option}: {error['msg']} (it is {error['input']!r})"

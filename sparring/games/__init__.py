"""The games by name, so that a recipe says `kuhn` and `--help` imports none of them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from sparring.core.game import Game
from sparring.core.nearest import nearest
from sparring.run.game_options import BadOption, checked

GAMES: dict[str, str] = {
    "tictactoe": "sparring.games.tictactoe:TicTacToe",
    "kuhn": "sparring.games.kuhn:KuhnPoker",
    "negotiation": "sparring.games.negotiation:SimpleNegotiation",
    "matching": "sparring.pipelines.matching.game:MatchingGame",
    "code_execution": "sparring.pipelines.code.execution:CodeExecution",
    "code_prediction": "sparring.pipelines.code.prediction:CodePrediction",
    "equivalence": "sparring.pipelines.equivalence.game:Equivalence",
    "coherent_math": "sparring.pipelines.coherent_math.game:CoherentMath",
    "adversarial_tests": "sparring.pipelines.adversarial.game:AdversarialTests",
}


class UnknownGame(BadOption):
    """No game goes by this name."""


def load_game(name: str, **options: Any) -> Game:
    """A game by registry name, by `some.module:Class` or by `path/to/file.py:Class`."""
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
    if ":" not in name and name not in GAMES:
        raise UnknownGame(f"there is no game {name!r}; {nearest(name, GAMES)}")
    where, _, attribute = GAMES.get(name, name).rpartition(":")
    module = _module(where, name)
    found = getattr(module, attribute, None)
    if found is None:
        games = [key for key, value in vars(module).items() if _is_game(value)]
        raise UnknownGame(f"{where} has no class {attribute!r}; {nearest(attribute, games)}")
    if not _is_game(found):
        raise UnknownGame(f"{name} is not a subclass of sparring.core.game.Game")
    return found


def _module(where: str, name: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            # A game that exists but misses one of its own imports must say so itself.
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise
            raise UnknownGame(
                f"there is no module {where!r} to take the game {name!r} from"
                f"; {nearest(name, GAMES)}"
            ) from error
    path = Path(where).resolve()
    if not path.is_file():
        raise UnknownGame(f"there is no file {where!r} to take the game {name!r} from")
    key = f"sparring_game_{path.stem}_{abs(hash(str(path)))}"
    if key in sys.modules:
        return sys.modules[key]
    spec = importlib.util.spec_from_file_location(key, path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module  # dataclasses look their module up there while it loads
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    return module


def _is_game(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Game) and value is not Game

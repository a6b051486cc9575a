"""Players that are programs: random, perfect, or a function of the request. Also what tests use."""

from __future__ import annotations

import random
from collections.abc import Callable

from sparring.core.game import Game
from sparring.core.types import Request, Turn, View

RANDOM, STRONG = "random", ("perfect", "scripted")
PROGRAMS = (RANDOM, *STRONG)  # what games themselves can play
Script = Callable[[Request], str]


class ScriptedEngine:
    """Answers each request with what its policy's script says, at once."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.scripts = scripts

    async def act(self, request: Request) -> Turn:
        return Turn(
            seat=request.seat,
            policy=request.policy,
            prompt=request.messages[-1]["content"],
            text=self.scripts[request.policy](request),
            finish="scripted",
        )


def programs(game: Game) -> ScriptedEngine:
    """The players a game itself can give: random, and where it has them perfect and scripted."""
    return ScriptedEngine(
        {
            "random": play_random,
            "perfect": lambda request: game.perfect(_view(request), request.seed),
            "scripted": lambda request: game.scripted(_view(request), request.seed),
        }
    )


def strong_programs(kind: type[Game]) -> list[str]:
    """Of `perfect` and `scripted` those that a game has."""
    return [name for name in STRONG if getattr(kind, name) is not getattr(Game, name)]


def program_of(game: Game, wanted: str) -> str | None:
    """A strong program of the game: the one that is wanted, or the other of `perfect` and
    `scripted` where it has only that; None where it has neither."""
    there = strong_programs(type(game))
    return wanted if wanted in there else next(iter(there), None)


def seated_as(game: Game, player: str) -> str:
    """The name under which a player sits in a game: a strong program by that which the game has."""
    return (player in STRONG and program_of(game, player)) or player


def play_random(request: Request) -> str:
    """Any legal action, by the request's own seed."""
    return random.Random(request.seed).choice(_view(request).actions)


def _view(request: Request) -> View:
    if request.view is None or not request.view.actions:
        raise ValueError(f"the game shows seat {request.seat!r} no actions to choose from")
    return request.view

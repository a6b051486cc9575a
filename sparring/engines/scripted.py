"""Players that are programs: random, perfect, or a function of the request. Also what tests use."""

from __future__ import annotations

import random
from collections.abc import Callable

from sparring.types import Request, Turn

Script = Callable[[Request], str]


class ScriptedEngine:
    """Answers each request with what its policy's script says, at once."""

    def __init__(self, scripts: dict[str, Script]) -> None:
        self.scripts = scripts

    async def act(self, request: Request) -> Turn:
        return Turn(
            seat=request.seat,
            policy=request.policy,
            shown=request.messages[-1]["content"],
            text=self.scripts[request.policy](request),
            finish="scripted",
        )


def play_random(request: Request) -> str:
    """Any legal action, by the request's own seed."""
    if request.view is None or not request.view.actions:
        raise ValueError(f"the game shows seat {request.seat!r} no actions to choose from")
    return random.Random(request.seed).choice(request.view.actions)

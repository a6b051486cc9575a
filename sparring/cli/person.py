"""A person at the table: sees what a policy would see, and types what it would say."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

from sparring.core.table import Speak
from sparring.core.types import Request, Turn

PERSON = "person"
_TERSE = 40  # characters: a shorter prompt is written for a tiny model, not for a person


def with_person(speak: Speak, ask: Callable[[str], str], show: Callable[[Turn], None]) -> Speak:
    """Requests of the policy `person` go to the keyboard, all others on to the engine."""

    async def answer(request: Request) -> Turn:
        if request.policy != PERSON:
            turn = await speak(request)
            show(turn)
            return turn
        shown = request.messages[-1]["content"]
        state = f"\n{picture(request.view.state)}" if request.view and len(shown) < _TERSE else ""
        choices = f"{state}\n[{', '.join(request.view.actions)}]" if request.view else ""
        text = await asyncio.to_thread(ask, f"{shown}{choices}\n{request.seat}> ")
        return Turn(seat=request.seat, policy=PERSON, shown=shown, text=text, finish="person")

    return answer


def picture(state: Any) -> str:
    """A state as a person likes to see it: squares as squares, facts one to a line."""
    if isinstance(state, dict):
        return "\n".join(f"{key}: {value}" for key, value in state.items())
    text, side = str(state), math.isqrt(len(str(state)))
    if side < 3 or side * side != len(text):
        return text
    return "\n".join(" ".join(text[i : i + side]) for i in range(0, len(text), side))

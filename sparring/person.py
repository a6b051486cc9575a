"""A person at the table: sees what a policy would see, and types what it would say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparring.game import Speak
from sparring.types import Request, Turn

PERSON = "person"


def with_person(speak: Speak, ask: Callable[[str], str], show: Callable[[Turn], None]) -> Speak:
    """Requests of the policy `person` go to the keyboard, all others on to the engine."""

    async def answer(request: Request) -> Turn:
        if request.policy != PERSON:
            turn = await speak(request)
            show(turn)
            return turn
        shown = request.messages[-1]["content"]
        choices = f"\n[{', '.join(request.view.actions)}]" if request.view else ""
        text = await asyncio.to_thread(ask, f"{shown}{choices}\n{request.seat}> ")
        return Turn(seat=request.seat, policy=PERSON, shown=shown, text=text, finish="person")

    return answer

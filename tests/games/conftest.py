"""A table whose players say what a test hands them, so that games are tested without an engine."""

import asyncio
from collections.abc import Callable

import pytest

from sparring.core.game import Game, Outcome, Table
from sparring.core.types import Request, Task, Turn

Voice = Callable[[Request], str]


@pytest.fixture
def play():
    """play(game, {seat: voice}, task=, seed=) -> (outcome, requests); a list is a voice too."""

    def run(
        game: Game, voices: dict[str, Voice | list[str]], task: Task | None = None, seed: int = 0
    ) -> tuple[Outcome, list[Request]]:
        scripts = {seat: iter(v) for seat, v in voices.items() if isinstance(v, list)}
        asked: list[Request] = []

        async def speak(request: Request) -> Turn:
            asked.append(request)
            voice = voices[request.seat]
            text = next(scripts[request.seat]) if isinstance(voice, list) else voice(request)
            return Turn(request.seat, request.policy, request.messages[-1]["content"], text)

        table = Table(game.seats, {seat: "test" for seat in game.seats}, speak, seed=seed)
        return asyncio.run(game.play(task or game.task(seed), table)), asked

    return run

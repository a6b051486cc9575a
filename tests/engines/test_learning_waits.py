"""Weights move only when nobody speaks, and what a game leaves behind shares no later batch."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from sparring.core.collect import Job, collect
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Request, Sampling, Task, VoidGame
from sparring.engines.local.engine import TransformersEngine


def ask(text: str, number: int) -> Request:
    return Request(
        seat="a",
        policy="main",
        messages=[{"role": "user", "content": text}],
        sampling=Sampling(max_tokens=2),
        seed=number,
        order=(number, 0),
    )


def test_learning_waits_for_a_batch_whose_requests_were_cancelled(
    make_policies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersEngine(make_policies("full"))
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    real = engine._round

    def slow(batch: Any) -> Any:
        begun.set()
        go_on.wait(30)
        turns = real(batch)
        ended.set()
        return turns

    monkeypatch.setattr(engine, "_round", slow)

    async def play() -> None:
        speaking = asyncio.ensure_future(engine.act(ask("one", 1)))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        queued = asyncio.ensure_future(engine.act(ask("two", 2)))
        await asyncio.sleep(0)
        for task in (speaking, queued):
            task.cancel()
        await asyncio.gather(speaking, queued, return_exceptions=True)
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        async with engine.learning():
            assert ended.is_set()
            assert not engine._queue and not any(r.busy for r in engine._all_runners())
            assert all(r.cache.available == r.cache.size - 1 for r in engine._all_runners())

    asyncio.run(play())


@dataclass
class Broken(Game):
    """Two are asked at once; the first one's judge breaks while the second speaks."""

    seats = ("a", "b")

    async def play(self, task: Task, table: Table) -> Outcome:
        async def breaks() -> None:
            raise VoidGame("the judge broke")

        async def talks() -> None:
            for _ in range(50):
                await table["b"].act("go on", max_tokens=1)

        await asyncio.gather(table.judge(breaks()), talks())
        return Outcome(a=0, b=0)


def test_a_game_that_is_void_leaves_no_request_behind(make_policies: Any) -> None:
    """A gather does not stop its other tasks: they went on asking, in later games' batches."""
    engine = TransformersEngine(make_policies("full"))
    asked: list[Request] = []

    async def act(request: Request) -> Any:
        asked.append(request)
        return await engine.act(request)

    async def play() -> None:
        job = Job("1", "broken", Broken(), Task("1", "broken", {}), 0, {"a": "main", "b": "main"})
        [episode] = await collect([job], act, outside=engine.outside)
        assert episode.void == "the judge broke"
        assert all(waiting.future.done() for waiting in engine._queue)
        before = len(asked)
        await engine.act(ask("the next game", 3))
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(asked) == before
        others = asyncio.all_tasks() - {asyncio.current_task(), engine._server}
        assert not others

    asyncio.run(play())

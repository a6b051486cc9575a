"""Rows that do not fit the memory are tried in smaller groups."""

import asyncio

import pytest
import torch
from test_runner import ask, runner_of, same, talk, together

from sparring.core.types import Turn, VoidGame
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.rows import Row


class Narrow:
    """A device that has room for so many rows: more run out of memory halfway."""

    def __init__(self, engine: TransformersEngine, most: int, error: RuntimeError) -> None:
        self.most, self.error, self.sizes = most, error, []
        runner = runner_of(engine)
        self._decode, runner._decode = runner._decode, self._try

    def _try(self, rows: list[Row], steps: int) -> None:
        if len(rows) > self.most:
            self.sizes.append(len(rows))
            raise self.error
        self._decode(rows, steps)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_rows_that_run_out_of_memory_are_tried_in_halves(make_policies, error, caplog):
    policies = make_policies("full")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2))
    engine = TransformersEngine(policies)
    narrow = Narrow(engine, 2, error)
    same(asyncio.run(talk(engine, 2)), plain)
    assert narrow.sizes[:2] == [6, 3]
    assert "6 requests at once do not fit the memory: half as many are tried" in caplog.text


def test_a_request_that_does_not_fit_alone_fails_by_itself(make_policies):
    engine = TransformersEngine(make_policies("full"))
    Narrow(engine, 0, torch.OutOfMemoryError("9 GiB"))

    async def both() -> list[Turn | BaseException]:
        asked = [ask("a", 0), ask("b", 1, max_tokens=1)]
        return await asyncio.gather(*map(engine.act, asked), return_exceptions=True)

    alone, other = asyncio.run(both())
    assert isinstance(alone, VoidGame)
    assert "does not fit: the device's memory is full: 9 GiB" in str(alone)
    assert isinstance(other, Turn) and len(other.token_ids) == 1


@pytest.mark.parametrize(("broken", "when"), [("_turn", 2), ("_round", 2), ("_round", 1)])
def test_an_error_of_the_engine_itself_answers_every_request(
    make_policies, monkeypatch, broken, when
):
    engine = TransformersEngine(make_policies("full"))
    calls, working = list[int](), getattr(engine, broken)

    def fails(*args):
        calls.append(1)
        if len(calls) == when:
            raise ValueError("out of order")
        return working(*args)

    monkeypatch.setattr(engine, broken, fails)

    async def ended(texts: str) -> list[type]:
        asked = [engine.act(ask(text, i)) for i, text in enumerate(texts)]
        results = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 300)
        return [type(result) for result in results]

    kinds = asyncio.run(ended("abc"))
    assert kinds == ([Turn, ValueError, Turn] if broken == "_turn" else [ValueError] * 3)
    assert asyncio.run(ended("ab")) == [Turn] * 2, "it goes on"


def test_another_error_is_not_taken_for_memory(make_policies):
    engine = TransformersEngine(make_policies("full"))
    narrow = Narrow(engine, 0, RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        asyncio.run(together(engine, [ask("a", 0), ask("b", 1)]))
    assert len(narrow.sizes) == 1

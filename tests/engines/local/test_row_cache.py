"""Rows that a CPU draws for are held side by side: the same digits as from their blocks, whoever
comes and leaves, and the blocks hold what was drawn when a row is gone."""

import asyncio

import pytest
import torch
from test_look_ahead import looking_ahead, some_requests, staggered
from test_runner import ask, digits, make, runner_of, talk, together

from sparring.engines.local import row_cache
from sparring.engines.local.engine import TransformersEngine


@pytest.fixture
def from_blocks(monkeypatch):
    def digits_of(policies, play, engine_of=TransformersEngine):
        with monkeypatch.context() as patch:
            patch.setattr(row_cache, "_SHARE", 0)
            engine = engine_of(policies)
            turns = digits(asyncio.run(play(engine)))
            assert not runner_of(engine).row_cache.held
        return turns

    return digits_of


@pytest.mark.parametrize("kind", ["full", "lora", "wide heads"])
@pytest.mark.parametrize("ahead", [False, True])
def test_rows_side_by_side_draw_what_they_draw_from_their_blocks(
    make_policies, from_blocks, kind, ahead
):
    """Requests that come over time, replies of 1 to 40 tokens, some with stop strings: slots are
    left, taken by others and grow."""
    if kind == "wide heads":
        policies = make("qwen3", head_dim=128)
        policies.add("main")
    else:
        policies = make_policies(kind, spread=0.1)

    async def play(engine):
        return await staggered(engine, some_requests(24))

    expected = from_blocks(policies, play)
    engine = TransformersEngine(policies)
    runner = looking_ahead(engine) if ahead else runner_of(engine)
    arrange, most = runner.row_cache.arrange, list[int]()

    def count(rows, size, longest):
        held = arrange(rows, size, longest)
        assert {id(row) for row in held} == {id(row) for row in rows}
        most.append(len(held))
        return held

    runner.row_cache.arrange = count
    assert digits(asyncio.run(play(engine))) == expected
    assert most and not runner.row_cache.held
    assert not runner.row_cache.layers(), "the memory of rows that are gone is given back"


def test_a_next_turn_goes_on_from_what_was_drawn_side_by_side(make_policies, from_blocks):
    policies = make_policies("full")
    expected = from_blocks(policies, lambda engine: talk(engine, 3, max_tokens=37))
    assert digits(asyncio.run(talk(TransformersEngine(policies), 3, max_tokens=37))) == expected


def test_a_rows_blocks_hold_what_it_drew(make_policies):
    """A position has the same bits whether it was drawn or read."""
    engine = TransformersEngine(make_policies("full"))
    runner, kept = runner_of(engine), list[tuple[list[int], int, torch.Tensor]]()
    release = runner.cache.release

    def look(row, *, keep=True):
        kept.append((row.ids, row.computed, runner.memory.tensors[:, :, :, row.blocks].clone()))
        release(row, keep=keep)

    runner.cache.release = look
    (turn,) = asyncio.run(together(engine, [ask("a long story, please", 1, max_tokens=50)]))
    engine.publish()
    asyncio.run(engine.act_on(ask("", 1, max_tokens=1), turn.prompt_ids + turn.token_ids))
    (ids, count, drawn), (again, _, read) = kept
    assert again[:count] == ids[:count] and count > 50
    one, other = (x.flatten(3, 4)[:, :, :, :count] for x in (drawn, read))
    assert torch.equal(one, other)


def test_the_steps_of_a_chunk_grow_with_the_shortest_reply(make_policies):
    """So that little is drawn in vain for a row that ends within a chunk."""
    engine = TransformersEngine(make_policies("full"))
    runner, chunks = runner_of(engine), list[tuple[int, int]]()
    decode = runner._decode

    def note(rows, steps):
        chunks.append((min(len(row.token_ids) for row in rows), steps))
        decode(rows, steps)

    runner._decode = note
    asyncio.run(together(engine, [ask("a", 1, max_tokens=60), ask("b", 2, max_tokens=60)]))
    assert chunks[0] == (1, 1) and max(steps for _, steps in chunks) > 2
    assert all(steps <= 1 + shortest // 8 for shortest, steps in chunks)

"""Rows that a CPU draws for are held side by side: the same digits as from their blocks, whoever
comes and leaves, and the blocks hold what was drawn when a row is gone."""

import asyncio
from dataclasses import replace

import pytest
import torch
from test_look_ahead import looking_ahead, some_requests, staggered
from test_runner import ask, digits, runner_of, talk, together

from sparring.engines.local import row_cache, row_threads
from sparring.engines.local import runner as runner_module
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


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize("ahead", [False, True])
def test_rows_side_by_side_draw_what_they_draw_from_their_blocks(
    make_policies, from_blocks, kind, ahead
):
    """Requests that come over time, replies of 1 to 40 tokens, some with stop strings: slots are
    left, taken by others and grow."""
    policies = make_policies(kind)

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


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_rows_on_threads_of_their_own_draw_what_they_draw_together(
    make_policies, monkeypatch, kind
):
    """Replies of unlike lengths, some with stop strings, top-k or top-p."""
    policies, on_threads, parts = make_policies(kind), row_threads.on_threads, list[int]()
    cuts = {3: {"top_k": 5}, 17: {"top_p": 0.7, "temperature": 1.5}}
    requests = [
        replace(request, sampling=replace(request.sampling, **cuts.get(number, {})))
        for number, request in enumerate(some_requests(24))
    ]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = digits(asyncio.run(together(TransformersEngine(policies), requests)))
        monkeypatch.setattr(row_threads, "ROWS", 4)
        monkeypatch.setattr(
            runner_module, "on_threads", lambda tasks: (parts.append(len(tasks)), on_threads(tasks))
        )
        again = digits(asyncio.run(together(TransformersEngine(policies), requests)))
    finally:
        torch.set_num_threads(before)
    assert again == expected and parts and set(parts) == {2}


def test_one_thread_has_all_rows_where_products_round_otherwise_on_it(make_policies, monkeypatch):
    runner = runner_of(TransformersEngine(make_policies("full")))
    runner._counts.find()
    assert row_threads.same_bits_alone(runner.decoder, runner._counts.padded)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(row_threads, "same_bits_alone", lambda *_: True)
    parts = runner._threads.split(200)
    assert [part.stop - part.start for part in parts] == [68, 68, 64]
    monkeypatch.setattr(row_threads, "same_bits_alone", lambda *_: False)
    runner._threads.forget()
    assert runner._threads.split(200) == [slice(0, 200)]


def test_what_fails_on_one_thread_is_raised_once_the_others_are_done():
    done = list[int]()

    def fail():
        raise RuntimeError("no more")

    def go_on():
        done.append(torch.get_num_threads())

    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="no more"):
        row_threads.on_threads([fail, go_on, go_on])
    assert done == [1, 1] and torch.get_num_threads() == before

"""The next chunk of steps is queued before the last one's tokens are read, as on a GPU: nothing but
the time changes, whatever ends, is cancelled or runs out of memory meanwhile."""

import asyncio
import random

import pytest
import torch
from test_runner import BLOCK_GB, ask, digits, runner_of, talk

from sparring.core.types import Request, Turn
from sparring.engines.local.decoder import in_pieces
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.pages import Readback
from sparring.engines.local.runner import Runner


def looking_ahead(engine: TransformersEngine) -> Runner:
    runner = runner_of(engine)
    runner.looks_ahead = True
    return runner


def some_requests(count: int, names: tuple[str, ...] = ("main",)) -> list[Request]:
    """Prompts of which some are alike, replies of unlike lengths, some with stop strings."""
    rng = random.Random(1)
    return [
        ask(
            rng.choice(("a", "b", "tell me more", "long " * rng.randrange(1, 20))),
            i,
            names[i % len(names)],
            max_tokens=rng.choice((1, 2, 3, 5, 9, 17, 40)),
            stop=rng.choice(((), (), ("e",), ("in", "x"))),
        )
        for i in range(count)
    ]


async def staggered(
    engine: TransformersEngine, requests: list[Request], cancelled: frozenset[int] = frozenset()
) -> list[Turn | None]:
    """Requests that come over time; some are cancelled when others have been answered."""
    rng, tasks = random.Random(2), list[asyncio.Task[Turn]]()
    for request in requests:
        tasks.append(asyncio.ensure_future(engine.act(request)))
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0.001)
        for number in cancelled & {len(tasks) - 3}:
            tasks[number].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [None if task.cancelled() else task.result() for task in tasks]


def in_flight_at_most(monkeypatch: pytest.MonkeyPatch, runner: Runner) -> list[int]:
    """How many chunks were in flight after each round."""
    counts, rounds = list[int](), runner.round
    monkeypatch.setattr(
        runner, "round", lambda: (rounds(), counts.append(len(runner._in_flight)))[0]
    )
    return counts


def everything_is_free(runner: Runner) -> bool:
    cache = runner.cache
    return not runner.busy and cache.available == cache.size - 1


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_tokens_are_the_same_with_and_without_look_ahead(make_policies, monkeypatch, kind):
    names = ("main", "rival") if kind == "lora" else ("main",)
    policies = make_policies(kind, names)
    requests = some_requests(40, names)
    plain = asyncio.run(staggered(TransformersEngine(policies, max_batch=8), requests))
    engine = TransformersEngine(policies, max_batch=8)
    runner = looking_ahead(engine)
    counts = in_flight_at_most(monkeypatch, runner)
    ahead = asyncio.run(staggered(engine, requests))
    assert digits(ahead) == digits(plain)
    assert [t.finish for t in ahead] == [t.finish for t in plain]
    assert max(counts) > 0 and everything_is_free(runner)


def test_those_who_stay_draw_the_same_when_others_are_cancelled(make_policies):
    policies = make_policies("full")
    requests, gone = some_requests(40), frozenset(range(1, 37, 3))
    plain = asyncio.run(staggered(TransformersEngine(policies, max_batch=8), requests))
    engine = TransformersEngine(policies, max_batch=8)
    runner = looking_ahead(engine)
    ahead = asyncio.run(staggered(engine, requests, gone))
    asyncio.run(drained(engine))
    stayed = [i for i, turn in enumerate(ahead) if turn is not None]
    assert set(range(40)) - gone <= set(stayed)
    assert digits([ahead[i] for i in stayed]) == digits([plain[i] for i in stayed])
    assert everything_is_free(runner)


async def drained(engine: TransformersEngine) -> None:
    """Rounds until nothing is under way: the loop of a test ends with its last reply."""
    while any(runner.busy for runner in engine._all_runners()):
        await engine.act(ask("a", 0, max_tokens=1))


def test_rows_that_make_room_leave_with_all_that_they_drew(make_policies, monkeypatch):
    policies = make_policies("full")
    free = digits(asyncio.run(talk(TransformersEngine(policies), 2, max_tokens=70)))
    engine = TransformersEngine(policies, cache_gb=13 * BLOCK_GB)
    runner, preempted = looking_ahead(engine), list[int]()
    preempt = runner.scheduler._preempt
    monkeypatch.setattr(
        runner.scheduler, "_preempt", lambda: preempted.append(len(runner._in_flight)) or preempt()
    )
    assert digits(asyncio.run(talk(engine, 2, max_tokens=70))) == free
    assert preempted and set(preempted) == {0}


def test_no_row_draws_more_steps_than_it_has_blocks_for(make_policies, monkeypatch):
    """How many steps a chunk has depends on how many rows there are, and some make room."""
    engine = TransformersEngine(make_policies("full"), cache_gb=13 * BLOCK_GB)
    runner, chunks = looking_ahead(engine), list[tuple[int, int]]()
    speaking, decode = runner.scheduler.speaking, runner._decode
    monkeypatch.setattr(runner, "_steps", lambda: 17 - 2 * len(runner.scheduler.rows))
    monkeypatch.setattr(runner.scheduler, "speaking", lambda n: asked.append(n) or speaking(n))
    monkeypatch.setattr(
        runner, "_decode", lambda rows, n: chunks.append((n, asked[-1])) or decode(rows, 1)
    )
    asked = list[int]()
    asyncio.run(talk(engine, 1, max_tokens=70))
    assert len(set(asked)) > 1 and all(drawn == blocks for drawn, blocks in chunks)


def test_memory_that_runs_out_with_a_chunk_in_flight(make_policies, monkeypatch):
    policies = make_policies("full")
    free = digits(asyncio.run(talk(TransformersEngine(policies), 1, max_tokens=9)))
    engine = TransformersEngine(policies)
    runner = looking_ahead(engine)
    decode, chunks = runner._decode, list[int]()

    def narrow(rows, steps) -> None:
        chunks.append(len(rows))
        if len(chunks) > 2 and len(rows) > 3:
            assert runner._in_flight
            raise torch.OutOfMemoryError("CUDA out of memory")
        decode(rows, steps)

    monkeypatch.setattr(runner, "_decode", narrow)
    assert digits(asyncio.run(talk(engine, 1, max_tokens=9))) == free
    assert chunks[:4] == [6, 6, 6, 3] and everything_is_free(runner)


@pytest.mark.parametrize("sampling", [{"top_k": 5}, {"top_p": 0.7}])
def test_a_cut_softmax_is_drawn_without_look_ahead(make_policies, monkeypatch, sampling):
    policies = make_policies("full")
    plain = asyncio.run(talk(TransformersEngine(policies), 2, **sampling))
    engine = TransformersEngine(policies)
    counts = in_flight_at_most(monkeypatch, looking_ahead(engine))
    assert digits(asyncio.run(talk(engine, 2, **sampling))) == digits(plain)
    assert set(counts) == {0}


def test_an_adapter_that_comes_while_others_draw_moves_no_digit(make_policies):
    """Its place among the adapters is new, and with it all that was laid out on the device."""
    policies = make_policies("lora", ("main", "rival"), spread=0.1)

    async def one_after_another(engine: TransformersEngine) -> list[Turn]:
        runner = runner_of(engine)
        first = asyncio.ensure_future(engine.act(ask("tell me", 0, max_tokens=60)))
        while not runner.scheduler.rows and not first.done():
            await asyncio.sleep(0)
        second = engine.act(ask("and you", 1, "rival", max_tokens=9))
        return list(await asyncio.gather(first, second))

    plain = asyncio.run(one_after_another(TransformersEngine(policies)))
    engine = TransformersEngine(policies)
    runner = looking_ahead(engine)
    assert digits(asyncio.run(one_after_another(engine))) == digits(plain)
    assert len(runner._adapters) == 2 and everything_is_free(runner)


def test_weights_move_only_when_nothing_is_in_flight(make_policies):
    """Also when all rows of the chunk in flight are gone."""
    engine = TransformersEngine(make_policies("full"))
    runner = looking_ahead(engine)
    seen = list[int]()

    async def cancel_and_learn() -> None:
        task = asyncio.ensure_future(engine.act(ask("tell me", 0, max_tokens=200)))
        while not runner._in_flight and not task.done():
            await asyncio.sleep(0.001)
        assert runner._in_flight
        task.cancel()
        async with engine.learning():
            seen.append(len(runner._in_flight))

    asyncio.run(cancel_and_learn())
    assert seen == [0] and everything_is_free(runner)


def test_an_error_while_results_are_read_ends_every_request(make_policies, monkeypatch):
    engine = TransformersEngine(make_policies("full"))
    runner, waits = looking_ahead(engine), list[int]()
    wait = Readback.wait

    def broken(self):
        waits.append(1)
        if len(waits) == 4:
            raise RuntimeError("an illegal memory access was encountered")
        return wait(self)

    monkeypatch.setattr(Readback, "wait", broken)

    async def both() -> list[Turn | BaseException]:
        asked = [ask("a", 0, max_tokens=30), ask("b", 1, max_tokens=40)]
        return await asyncio.gather(*map(engine.act, asked), return_exceptions=True)

    assert [str(r) for r in asyncio.run(both())] == ["an illegal memory access was encountered"] * 2
    assert everything_is_free(runner)
    assert digits(asyncio.run(talk(engine, 1)))


@pytest.mark.parametrize("fewer_at", [1, 6])
def test_more_rows_than_the_largest_pass_may_have_wait_their_turn(make_policies, fewer_at):
    """As on a GPU where with adapters fewer numbers of rows give the same bits, also if those are
    laid out while others speak."""
    policies, rounds = make_policies("full"), iter(range(1, 1000))
    engine = TransformersEngine(policies)
    runner = looking_ahead(engine)
    counts = runner._counts
    counts.find()  # whose products rows are computed by on this processor, and which sizes agree
    if not counts.invariant:
        pytest.skip("on this processor no number of rows has the bits of another")
    step = counts.padded(1)
    counts.forget()
    requests = some_requests(10 * step)
    plain = asyncio.run(staggered(TransformersEngine(policies), requests))

    def find() -> None:
        fewer = next(rounds) >= fewer_at
        if fewer and counts.most > 2 * step:
            runner._read_back()
        counts.sizes = [step << n for n in range(2 if fewer else 5)]

    counts.find, counts.time = find, lambda seconds: None
    assert digits(asyncio.run(staggered(engine, requests))) == digits(plain)
    assert runner.scheduler.max_rows == 2 * step
    assert everything_is_free(runner)


def test_a_row_that_no_pass_can_hold_is_said_and_does_not_hang(make_policies, monkeypatch):
    engine = TransformersEngine(make_policies("full"))
    monkeypatch.setattr(runner_of(engine), "round", lambda: next(iter(())))
    with pytest.raises(RuntimeError, match="the engine failed: StopIteration"):
        asyncio.run(asyncio.wait_for(engine.act(ask("a", 0)), 60))


@pytest.mark.parametrize("count", [1, 4, 7, 16])
def test_pieces_of_a_product_are_the_product(count):
    x, weight = torch.randn(count, 6), torch.randn(3, 6)
    for step, most in ((4, 4), (4, 8), (2, 16)):
        torch.testing.assert_close(in_pieces(x, weight, step, most), x @ weight.T)

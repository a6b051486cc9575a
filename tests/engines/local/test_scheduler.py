"""The paged cache and its scheduler with a scripted model: nobody's blocks are lost or shared with
strangers, whatever is asked, cancelled or failed, and what is read is what was written."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from sparring.core.types import Sampling
from sparring.engines.local.paged_cache import BLOCK, PagedCache
from sparring.engines.local.rows import Row
from sparring.engines.local.scheduler import Scheduler

POLICY = ("main", 0, 0)


def row(ids: list[int], tokens: int = 4, policy: tuple[str, int, int] = POLICY) -> Row:
    return Row(policy, ids, Sampling(max_tokens=tokens), 0)


class Scripted:
    """Instead of a model: every position of a block holds a hash of the position before it and of
    its own id, so that a wrong block anywhere shows in all that follows."""

    def __init__(self, scheduler: Scheduler, read: int = 64, steps: int = 4) -> None:
        self.scheduler, self.cache = scheduler, scheduler.cache
        self.size, self.steps = read, steps
        self.cells: dict[tuple[int, int], int] = {}
        self.positions = 0

    def round(self) -> list[Row]:
        scheduler, read = self.scheduler, 0
        scheduler.admit()
        self._copy(self.cache.copies)
        self.cache.copies.clear()
        while spans := scheduler.spans(self.size):
            for span in spans:
                self._compute(span.row, span.start, span.end)
            for span in spans:
                self._check(span.row, span.end)
                if not span.draws:
                    continue
                for each in (span.row, *scheduler.followers.get(id(span.row), ())):
                    self._draw(each, 1)
                    if each is not span.row and each.blocks and len(each.prompt) % BLOCK:
                        self._copy([(span.row.blocks[len(each.blocks) - 1], each.blocks[-1])])
            scheduler.read(spans)
            read += sum(span.end - span.start for span in spans)
            if not scheduler.more_to_read(read, self.size):
                break
        ended = scheduler.settle()
        for each in scheduler.speaking(self.steps):
            for _ in range(min(self.steps, each.left)):
                self._compute(each, each.length - 1, each.length)
                self._draw(each, 1)
                each.computed = each.length - 1
                if each.finish:
                    self._check(each, each.computed)
                    break
        return ended + scheduler.settle()

    def _copy(self, pairs: list[tuple[int, int]]) -> None:
        held = {(to, i): self.cells.get((source, i)) for source, to in pairs for i in range(BLOCK)}
        self.cells.update({cell: ids for cell, ids in held.items() if ids is not None})

    def _compute(self, each: Row, start: int, end: int) -> None:
        for position in range(start, end):
            before = self.cells[_cell(each, position - 1)] if position else hash(each.policy)
            ids = each.prompt if position < len(each.prompt) else each.ids
            self.cells[_cell(each, position)] = hash((before, ids[position]))
            self.positions += 1

    def _check(self, each: Row, end: int) -> None:
        value = hash(each.policy)
        for token in each.ids[:end]:
            value = hash((value, token))
        assert self.cells[_cell(each, end - 1)] == value

    def _draw(self, each: Row, count: int) -> None:
        drawn = [hash((each.seed, each.length, i)) % 7 for i in range(count)]
        each.append(drawn, [0.0] * count, frozenset([6]), lambda ids, stops: False)


def _cell(each: Row, position: int) -> tuple[int, int]:
    return each.blocks[position // BLOCK], position % BLOCK


def serve(model: Scripted, rows: list[Row]) -> list[Row]:
    for each in rows:
        model.scheduler.add(each)
    ended = list[Row]()
    while model.scheduler.busy:
        ended += model.round()
    return ended


def everything_is_free(cache: PagedCache) -> bool:
    used = {block: n for block, n in enumerate(cache.references) if block and n}
    return cache.available == cache.size - 1 and set(used) == set(cache._nodes)


def test_a_prefix_is_computed_once_and_shared_by_block() -> None:
    model = Scripted(Scheduler(PagedCache(100), max_rows=8))
    rules = list(range(100, 180))  # two blocks and a half
    serve(model, [row([*rules, 1], 1)])
    before, model.positions = model.positions, 0
    serve(model, [row([*rules, 2], 1)])
    assert before == 81 and model.positions == 1, "the half block is copied, and written on"
    model.positions = 0
    serve(model, [row([*rules, 3], 1, ("main", 1, 0))])
    assert model.positions == 81, "other weights share nothing"


def test_a_conversation_goes_on_where_it_was() -> None:
    model = Scripted(Scheduler(PagedCache(100), max_rows=8))
    [first] = serve(model, [row(list(range(50)), 5)])
    more = [*first.prompt, *first.token_ids, 1, 2, 3]
    model.positions = 0
    serve(model, [row(more, 1)])
    assert model.positions == 4, "what is new, and the last token, which was drawn but not computed"


def test_the_same_prompt_is_read_once_however_many_ask() -> None:
    model = Scripted(Scheduler(PagedCache(100), max_rows=64))
    ended = serve(model, [row(list(range(40)), 1) for _ in range(30)])
    assert len(ended) == 30 and model.positions == 40
    assert everything_is_free(model.cache)


def test_no_two_rows_copy_to_one_block() -> None:
    """A prompt of whole blocks that was read before needs none of its own: the block that it would
    have copied to went to the next row, and on a GPU either copy could be the last."""
    cache = PagedCache(20)
    known = list(range(2 * BLOCK))
    first = row(known)
    assert cache.admit(first)
    first.computed = len(known)
    cache.computed(first)
    cache.release(first)
    again, other = row(known), row([*known[: BLOCK + 8], 99])
    assert cache.admit(again) and cache.admit(other)
    assert cache.copies == [(again.blocks[1], other.blocks[1])]
    assert again.computed == len(known) - 1 and other.computed == BLOCK + 8


def test_the_last_free_block_is_not_copied_from() -> None:
    """What it holds is known in part, and it is the only one that there is to write to."""
    cache = PagedCache(1)
    model = Scripted(Scheduler(cache, max_rows=1))
    serve(model, [row([1, 2, 3, 4], 1)])
    model.positions = 0
    [other] = serve(model, [row([1, 2, 9, 9], 1)])
    assert other.finish and model.positions == 4
    assert everything_is_free(cache)


def test_a_row_that_goes_on_has_not_computed_the_last_it_drew() -> None:
    """A block that ends with it is not whole yet: another that begins alike may not take it."""
    cache = PagedCache(20)
    first = row(list(range(BLOCK - 2)), 9)
    first.append([7, 8], [0.0, 0.0], frozenset(), lambda ids, stops: False)
    assert len(first.ids) == BLOCK and cache.admit(first)
    first.computed = first.length - 1
    cache.computed(first)
    other = row([*first.ids, 5])
    assert cache.admit(other)
    assert other.computed < BLOCK and first.blocks[0] not in other.blocks


def test_the_least_recently_used_is_given_up_first() -> None:
    cache = PagedCache(6)
    model = Scripted(Scheduler(cache, max_rows=1))
    for start in (0, 100, 200):  # two blocks each
        serve(model, [row([*range(start, start + 40)], 1)])
    serve(model, [row([*range(40)], 1)])  # used again
    serve(model, [row([*range(300, 340)], 1)])  # takes the place of the second
    model.positions = 0
    serve(model, [row([*range(40)], 1)])
    assert model.positions == 1
    serve(model, [row([*range(100, 140)], 1)])
    assert model.positions > 30
    assert everything_is_free(cache)


def test_nothing_is_given_up_while_there_is_room_to_grow() -> None:
    cache = PagedCache(6)

    def grow(blocks: int) -> bool:
        cache.grow(min(blocks, 14))
        return True

    model = Scripted(Scheduler(cache, max_rows=1, grow_to_keep=grow))
    starts = range(0, 600, 100)  # two blocks each
    for start in starts:
        serve(model, [row([*range(start, start + 40)], 1)])
    assert cache.size > 12
    model.positions = 0
    for start in starts:
        serve(model, [row([*range(start, start + 40)], 1)])
    assert model.positions == len(starts)  # but for the last id of each
    serve(model, [row([*range(900, 990)], 1)])  # no more room: the oldest makes some
    assert everything_is_free(cache)


def test_a_long_prompt_does_not_hold_up_those_who_are_drawn_for() -> None:
    scheduler = Scheduler(PagedCache(400), max_rows=8)
    model = Scripted(scheduler, read=64)
    short = [row([i, 5], 40) for i in range(4)]
    for each in short:
        scheduler.add(each)
    model.round()
    long = row(list(range(1000)), 2)
    scheduler.add(long)
    counts = []
    while long.computed + 64 < 1000 and not any(each.finish for each in short):
        model.round()
        counts.append((long.computed, len(short[0].token_ids)))
    reads = [b[0] - a[0] for a, b in pairwise(counts)]
    assert reads and all(0 < read <= 128 for read in reads)
    assert all(b[1] > a[1] for a, b in pairwise(counts))


def test_rows_are_admitted_in_the_order_they_came() -> None:
    scheduler = Scheduler(PagedCache(100), max_rows=2)
    rows = [row([i] * 3, 3) for i in range(6)]
    ended = serve(Scripted(scheduler), rows)
    assert [rows.index(each) for each in ended] == sorted(rows.index(each) for each in ended)


def test_rows_make_room_and_go_on_with_what_they_drew() -> None:
    """Five rows that need all of the cache each."""
    model = Scripted(Scheduler(PagedCache(8), max_rows=5))
    rows = [row([i, i], 200) for i in range(5)]
    for number, each in enumerate(rows):
        each.seed = 1000 + number
    ended = serve(model, rows)
    assert len(ended) == 5 and not any(each.error for each in ended)
    alone = [row([i, i], 200) for i in range(5)]
    for number, each in enumerate(alone):
        each.seed = 1000 + number
        serve(Scripted(Scheduler(PagedCache(8), max_rows=1)), [each])
    assert [each.token_ids for each in rows] == [each.token_ids for each in alone]
    assert everything_is_free(model.cache)


def test_what_cannot_fit_fails_by_itself() -> None:
    model = Scripted(Scheduler(PagedCache(4), max_rows=5))
    rows = [row([1, 2]), row(list(range(200))), row([3, 4])]
    ended = serve(model, rows)
    assert len(ended) == 3 and [bool(each.error) for each in rows] == [False, True, False]
    assert "does not fit: the cache has 128 positions" in str(rows[1].error)
    assert everything_is_free(model.cache)


def test_a_pass_that_runs_out_of_memory_is_tried_with_fewer_rows() -> None:
    scheduler = Scheduler(PagedCache(50), max_rows=8)
    model = Scripted(scheduler)
    rows = [row([i] * 40, 30) for i in range(8)]
    for each in rows:
        scheduler.add(each)
    model.round()
    assert len(scheduler.rows) == 8
    scheduler.start_over("full")
    assert everything_is_free(scheduler.cache) and not scheduler.cache._nodes
    model.round()
    assert len(scheduler.rows) == 4
    scheduler.start_over("full")
    model.round()
    scheduler.start_over("full")
    model.round()
    assert len(scheduler.rows) == 1
    scheduler.start_over("full")
    [failed] = [each for each in model.round() if each.error]
    assert "does not fit: full" in str(failed.error)
    while scheduler.busy:
        model.round()
    assert sum(each.finish != "" for each in rows) == 7
    assert everything_is_free(scheduler.cache)


def test_rows_that_ended_in_the_pass_that_ran_out_of_memory_count_among_those_tried() -> None:
    scheduler = Scheduler(PagedCache(50), max_rows=8)
    model = Scripted(scheduler)
    [last] = rows = [row([1] * 40, 30)]
    scheduler.add(last)
    model.round()
    scheduler.start_over("full", tried=8)  # seven of them are gone: this one was never alone
    while scheduler.busy:
        assert not any(each.error for each in model.round())
    assert all(each.finish for each in rows)


def test_every_block_is_free_after_10_000_random_requests_with_cancellations() -> None:
    """Prompts that begin alike, go on with earlier ones, repeat, are too long; cancelled while they
    wait, are read or drawn for; weights that move; a cache too small for all at once."""
    rng = random.Random(0)
    cache = PagedCache(40)
    scheduler = Scheduler(cache, max_rows=12)
    model = Scripted(scheduler, read=48)
    gone: set[int] = set()
    talks: list[list[int]] = [[]]
    counts = dict.fromkeys(("ended", "failed", "cancelled"), 0)
    asked = 0
    while asked < 10_000 or scheduler.busy:
        for _ in range(rng.randrange(8) if asked < 10_000 else 0):
            ids = [*rng.choice(talks), *(rng.randrange(5) for _ in range(rng.randrange(1, 30)))]
            if rng.random() < 0.01:
                ids += [9] * 1300
            each = Row(
                ("main", asked // 3000, 0), ids, Sampling(max_tokens=rng.choice((1, 2, 20))), asked
            )
            each.cancelled = lambda number=asked: number in gone  # type: ignore[misc]
            scheduler.add(each)
            asked += 1
        held = [each.seed for each in (*scheduler.waiting, *scheduler.rows.values())]
        for number in held:
            if rng.random() < 0.03:
                gone.add(number)
                counts["cancelled"] += 1
        for each in model.round():
            counts["failed" if each.error else "ended"] += 1
            if not each.error:
                talks = [*talks[-20:], each.ids[:150]]
        assert cache.available + len({b for r in scheduler.rows.values() for b in r.blocks}) == 40
    assert everything_is_free(cache)
    cache.clear()
    assert sorted(cache.free) == list(range(1, 41)) and not cache._nodes
    assert min(counts.values()) > 50, counts


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1])
def test_prompts_around_the_size_of_a_block(length: int) -> None:
    model = Scripted(Scheduler(PagedCache(50), max_rows=8))
    rows = [row(list(range(length)), 40) for _ in range(3)] + [row(list(range(length + 1)), 3)]
    for number, each in enumerate(rows):
        each.seed = number
    assert len(serve(model, rows)) == 4
    assert everything_is_free(model.cache)

"""Who is served next, decided anew between any two chunks of decode steps.

The rule: rows are admitted in the order they came, those that had to make room for others first.
Between two chunks of steps only so many tokens of prompts are read, so that rows that are drawn for
do not stall behind long prompts, unless more rows wait to be read than are drawn for. When blocks
run out, the row that was admitted last makes room; it goes on later from where it was.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import NamedTuple

from sparring.core.types import VoidGame
from sparring.engines.local.paged_cache import BLOCK, PagedCache
from sparring.engines.local.rows import Row

REPLY = 1024  # tokens of a reply that blocks are asked for ahead, where the cache can still grow


class Span(NamedTuple):
    """Positions of a row to compute in one pass."""

    row: Row
    start: int
    end: int

    @property
    def draws(self) -> bool:
        """Whether the reply's first token is drawn from the last of these positions."""
        return self.end == len(self.row.prompt) and not self.row.token_ids


class Scheduler:
    def __init__(
        self,
        cache: PagedCache,
        *,
        max_rows: int,
        grow: Callable[[int], bool] = lambda blocks: False,
        grow_to_keep: Callable[[int], bool] = lambda blocks: False,
        capacity: Callable[[], int] | None = None,
        on_release: Callable[[Row], None] = lambda row: None,
    ) -> None:
        """`grow` is asked for so many blocks in all and says whether there are more than before,
        `grow_to_keep` likewise, before cached blocks are given up; `capacity` says how many there
        can ever be; `on_release` is called before a row's blocks may be another's."""
        self.cache, self.max_rows = cache, max_rows
        self.waiting: deque[Row] = deque()
        self.rows: dict[int, Row] = {}  # admitted, oldest first, by identity
        self.followers: dict[int, list[Row]] = {}  # with the prompt of a row that is being read
        self._readers: dict[Hashable, Row] = {}
        self._failed: list[Row] = []
        self._at_once = max_rows  # fewer after memory ran out
        self._grow, self._grow_to_keep, self._on_release = grow, grow_to_keep, on_release
        self._capacity = capacity or (lambda: cache.size - 1)

    def add(self, row: Row) -> None:
        """Queue a row; one that can never fit the cache fails by itself."""
        needed = self.cache.blocks_for(row.needs)
        if needed < self.cache.size or needed <= self._capacity():
            self.waiting.append(row)
        else:
            self._fail(row, f"the cache has {self._capacity() * BLOCK} positions")

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.rows or self._failed)

    def admit(self) -> None:
        """Admit who waits, as far as there are blocks, and drop who was cancelled. A cancelled row
        that is being read goes on until it has been: others may hold its blocks already."""
        self.waiting = deque(row for row in self.waiting if not row.cancelled())
        for row in [row for row in self.rows.values() if row.cancelled() and not row.unread]:
            self._release(row)
        if not self.rows and not self.waiting:
            self._at_once = self.max_rows
        while self.waiting and len(self.rows) < min(self._at_once, self.max_rows):
            row = self.waiting[0]
            if not self._allocate(row):
                wanted = self.cache.size + sum(map(self._wish, self.waiting))
                if self._grow(wanted):
                    continue
                if self.rows:
                    break
                self._fail(row, "no memory is left for a larger cache")
                self.waiting.popleft()
                continue
            self.rows[id(row)] = self.waiting.popleft()

    def spans(self, most: int) -> list[Span]:
        """What to read in one pass of at most so many positions, oldest rows first."""
        spans = list[Span]()
        following = {id(row) for rows in self.followers.values() for row in rows}
        for row in self.rows.values():
            if row.unread and most and id(row) not in following:
                length = min(row.unread, most)
                spans.append(Span(row, row.computed, row.computed + length))
                most -= length
        return spans

    def read(self, spans: list[Span]) -> None:
        """These spans have been computed, and first tokens drawn where that was possible."""
        for row, _, end in spans:
            row.computed = end
            if row.unread:
                continue
            self.cache.computed(row)
            self._readers.pop(self._key(row), None)
            for follower in self.followers.pop(id(row), ()):
                follower.computed = len(follower.prompt)

    def more_to_read(self, tokens: int, most: int) -> bool:
        """Whether to read on before those who speak get their next tokens."""
        unread = sum(row.unread > 0 for row in self.rows.values())
        return unread > 0 and (tokens < most or 2 * unread > len(self.rows))

    def speaking(self, steps: int) -> list[Row]:
        """The rows that draw, with blocks for so many steps each."""
        rows = self._drawing()
        for row in rows:
            self._keep(self.cache.blocks_for(positions_after(row, steps)) - len(row.blocks))
            while id(row) in self.rows and not self.cache.extend(row, positions_after(row, steps)):
                if not self._grow(self.cache.size + len(self.rows)):
                    self._preempt()
        return [row for row in rows if id(row) in self.rows]

    def lacks_blocks(self, steps: int) -> bool:
        """Whether the cache has to grow, or a row to make room, before so many steps."""
        ends = ((row, positions_after(row, steps)) for row in self._drawing())
        missing = (self.cache.blocks_for(end) - len(row.blocks) for row, end in ends)
        return sum(max(0, blocks) for blocks in missing) > self.cache.available

    def _drawing(self) -> list[Row]:
        rows = self.rows.values()
        drawing = [row for row in rows if row.undrawn and not (row.unread or row.finish)]
        return drawing[: self.max_rows]

    def settle(self) -> list[Row]:
        """Rows that have ended, one way or another, leave."""
        ended = [row for row in self.rows.values() if row.finish]
        for row in ended:
            self._release(row)
        failed, self._failed = self._failed, []
        return ended + failed

    def start_over(self, reason: str, tried: int | None = None) -> None:
        """A pass of so many rows, some of which may have ended since, ran out of memory: what is
        cached is dropped, and half as many are tried at once; a row that was alone fails with the
        reason."""
        waiting, left = self.waiting, len(self.rows)
        tried = left if tried is None else tried
        self.waiting = deque()
        self.waiting = deque([*self.drop_all(), *waiting])
        self._at_once = max(1, tried // 2)
        if tried == left == 1:
            self._fail(self.waiting.popleft(), reason)

    def drop_all(self) -> list[Row]:
        """Take every row away, with its blocks and all that is cached."""
        rows = [*self.rows.values(), *self.waiting]
        self.rows, self.followers, self._readers, self.waiting = {}, {}, {}, deque()
        for row in rows:
            self.cache.release(row, keep=False)
            row.computed = row.queued = 0
        self.cache.clear()
        return rows

    def _allocate(self, row: Row) -> bool:
        """Blocks for a row, or it waits for one with the same prompt that is being read."""
        leader = None if row.token_ids else self._readers.get(self._key(row))
        if leader is None:
            self._keep(self.cache.blocks_for(row.length))
            if not self.cache.admit(row, spare=len(self.rows)):
                return False
            if not row.token_ids:
                self._readers[self._key(row)] = row
            return True
        if row.sampling.max_tokens > 1 and not self.cache.follow(row, leader):
            return False
        self.followers.setdefault(id(leader), []).append(row)
        return True

    def _keep(self, blocks: int) -> None:
        """Have so many free blocks, if that is to be had, rather than those that are cached."""
        if blocks > len(self.cache.free):
            self._grow_to_keep(self.cache.size + blocks)

    def _preempt(self) -> None:
        """The youngest that speaks makes room, and waits to go on; one that is alone fails."""
        youngest = next(row for row in reversed(self.rows.values()) if not row.unread)
        alone = len(self.rows) == 1
        self._release(youngest)
        if alone:
            self._fail(youngest, "no memory is left for a larger cache")
        else:
            self.waiting.appendleft(youngest)

    def _release(self, row: Row) -> None:
        del self.rows[id(row)]
        self._on_release(row)
        self.cache.release(row)
        row.computed = row.queued = 0

    def _fail(self, row: Row, reason: str) -> None:
        row.error = VoidGame(
            f"a prompt of {len(row.prompt)} tokens with a reply of up to "
            f"{row.sampling.max_tokens} does not fit: {reason}"
        )
        self._failed.append(row)

    def _wish(self, row: Row) -> int:
        return self.cache.blocks_for(row.length + min(row.left, REPLY))

    def _key(self, row: Row) -> Hashable:
        return row.policy, tuple(row.prompt)


def positions_after(row: Row, steps: int) -> int:
    """Positions that a row has after so many more steps."""
    return min(row.length - 1 + row.queued + steps, row.needs - 1)

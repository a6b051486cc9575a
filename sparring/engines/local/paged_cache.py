"""Which block of the cache holds which positions of which rows. Keys and values are kept in blocks
of 32 positions; rows whose ids begin alike hold the same blocks, and what no row holds any more is
kept until its block is needed, least recently used first.

This is bookkeeping only: the tensors are the runner's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from sparring.engines.local.rows import Row

BLOCK = 32  # positions
SCRATCH = 0  # the block that padding is written to; no row holds it


@dataclass(eq=False, slots=True)
class _Node:
    """One block of a prefix: `ids` after those of all its parents."""

    ids: tuple[int, ...]
    block: int
    parent: _Node | None
    ready: bool = False  # whether its keys and values have been computed
    children: dict[tuple[int, ...], _Node] = field(default_factory=dict)
    recent: dict[int, _Node] = field(default_factory=dict)  # the latest child by its first id


class PagedCache:
    """Blocks, their reference counts, and a radix tree of what they hold."""

    def __init__(self, blocks: int) -> None:
        self.size = 1
        self.free: list[int] = []
        self.references: list[int] = [1]  # by rows, and one by the tree
        self.copies: list[tuple[int, int]] = []  # blocks to copy before anything is computed
        self._roots: dict[Hashable, _Node] = {}
        self._nodes: dict[int, _Node] = {}  # by block
        self._idle: OrderedDict[int, None] = OrderedDict()  # held by the tree alone, oldest first
        self.grow(blocks)

    def grow(self, blocks: int) -> None:
        """Have so many blocks, and the one for padding."""
        added = range(self.size, blocks + 1)
        self.free += reversed(added)
        self.references += [0] * len(added)
        self.size = max(self.size, blocks + 1)

    def shrink(self) -> None:
        """Have no blocks but the one for padding; none may be held."""
        assert len(self.free) == self.size - 1
        self.size, self.free, self.references = 1, [], [1]

    @property
    def available(self) -> int:
        """Blocks that are free, or that only the tree holds."""
        return len(self.free) + len(self._idle)

    def blocks_for(self, positions: int) -> int:
        return -(-positions // BLOCK)

    def admit(self, row: Row, spare: int = 0) -> bool:
        """Blocks for all ids of a row, shared as far as its beginning is known; `spare` blocks must
        be left over. The last id is never taken for known: what follows it is still to be drawn."""
        ids = row.ids
        shared, tail = self._match(row.policy, ids[: len(ids) - 1])
        held = sum(node.block in self._idle for node in shared)
        needed = self.blocks_for(len(ids)) - len(shared)
        if self.available - held < needed + spare:
            return False
        for node in shared:
            self._hold(node.block)
        row.blocks = [node.block for node in shared]
        row.computed = len(shared) * BLOCK
        copy: tuple[int, int] | None = None
        # In the last free block there is nothing to copy from: it is the very one that would be.
        if tail is not None and self.available > (tail[0].block in self._idle):
            source, common = tail
            # Held while room is made: it must not be given away before it has been copied.
            self._hold(source.block)
            row.blocks.append(self._allocate())
            self._release(source.block)
            copy = source.block, row.blocks[-1]
            row.computed += common
        while len(row.blocks) < self.blocks_for(len(ids)):
            row.blocks.append(self._allocate())
        # The last id of a row that goes on is computed only when the next is drawn.
        known = len(ids) - bool(row.token_ids)
        self._insert(row, ids[: known // BLOCK * BLOCK], ready=False)
        # A whole block that the tree has already takes the place of the copy, whose block another
        # row may get now and copy to: a device does two copies to one block in any order.
        if copy is not None and copy[1] in row.blocks:
            self.copies.append(copy)
        return True

    def follow(self, row: Row, leader: Row) -> bool:
        """Blocks for a row with the very prompt of another that is being read: the last, which both
        go on to write to, is copied when that has been computed."""
        whole = len(row.ids) // BLOCK
        if whole < len(leader.blocks) and not self.available:
            return False
        row.blocks = leader.blocks[:whole]
        for block in row.blocks:
            self._hold(block)
        if whole < len(leader.blocks):
            row.blocks.append(self._allocate())
        return True

    def extend(self, row: Row, positions: int) -> bool:
        """Blocks for so many positions of a row in all."""
        missing = self.blocks_for(positions) - len(row.blocks)
        if missing > self.available:
            return False
        row.blocks += [self._allocate() for _ in range(missing)]
        return True

    def computed(self, row: Row) -> None:
        """All positions of the row's prompt are there: others may copy from them."""
        for block in row.blocks:
            if block in self._nodes:
                self._nodes[block].ready = True

    def release(self, row: Row, *, keep: bool = True) -> None:
        """Let go of a row's blocks; the tree keeps what may be used again."""
        if keep and row.computed and row.blocks:
            self._insert(row, row.ids[: row.computed], ready=True)
        for block in reversed(row.blocks):  # a block before the one it follows
            self._release(block)
        row.blocks = []

    def clear(self) -> None:
        """Forget whatever no row holds."""
        while self._idle:
            self._evict()
        self._roots = {key: root for key, root in self._roots.items() if root.children}

    # ── the tree ────────────────────────────────────────────────────────────────────────────────

    def _match(
        self, key: Hashable, ids: Sequence[int]
    ) -> tuple[list[_Node], tuple[_Node, int] | None]:
        """The nodes that hold the beginning of `ids`, and one that holds some of what follows."""
        node, shared = self._roots.get(key), list[_Node]()
        if node is None:
            return [], None
        while (child := node.children.get(tuple(ids[:BLOCK]))) and len(child.ids) == BLOCK:
            shared.append(child)
            node, ids = child, ids[BLOCK:]
        for length in range(min(len(ids), BLOCK), 0, -1):  # one that goes on where a row ended
            child = node.children.get(tuple(ids[:length]))
            if child is not None and child.ready:
                return shared, (child, length)
        child = node.recent.get(ids[0]) if ids else None
        if child is None or not child.ready:
            return shared, None
        return shared, (child, _common(child.ids, ids))

    def _insert(self, row: Row, ids: Sequence[int], *, ready: bool) -> None:
        """Put the blocks that hold `ids` into the tree, but for those that it has already."""
        node = self._roots.setdefault(row.policy, _Node((), SCRATCH, None, True))
        for number in range(self.blocks_for(len(ids))):
            part = tuple(ids[number * BLOCK : (number + 1) * BLOCK])
            child, block = node.children.get(part), row.blocks[number]
            if child is None:
                child = _Node(part, block, node, ready)
                node.children[part] = node.recent[part[0]] = child
                self._nodes[block] = child
                self.references[block] += 1
            elif child.block == block:
                child.ready = child.ready or ready
            elif not child.ready:
                return
            else:  # the same was computed twice: the row takes the other's, so that a row that
                # holds a block holds all that come before it
                self._hold(child.block)
                self._release(block)
                row.blocks[number] = child.block
            node = child

    def _remove(self, block: int) -> None:
        """Take a block without successors out of the tree."""
        node = self._nodes.pop(block)
        parent = node.parent
        assert parent is not None and not node.children
        del parent.children[node.ids]
        if parent.recent.get(node.ids[0]) is node:
            del parent.recent[node.ids[0]]
        self.references[block] -= 1

    # ── blocks ──────────────────────────────────────────────────────────────────────────────────

    def _hold(self, block: int) -> None:
        self.references[block] += 1
        self._idle.pop(block, None)

    def _release(self, block: int) -> None:
        self.references[block] -= 1
        if not self.references[block]:
            self.free.append(block)
        elif self.references[block] == 1 and block in self._nodes:
            self._idle[block] = None

    def _allocate(self) -> int:
        if not self.free:
            self._evict()
        block = self.free.pop()
        self.references[block] = 1
        return block

    def _evict(self) -> None:
        """Give up the least recently used block that no other follows."""
        block, _ = self._idle.popitem(last=False)  # released after those that follow it: a leaf
        self._remove(block)
        self.free.append(block)


def _common(some: Sequence[int], others: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(some, others, strict=False)) if a != b),
        min(len(some), len(others)),
    )

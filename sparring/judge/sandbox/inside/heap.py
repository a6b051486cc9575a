"""A heap without holes. A fork copies every page that it writes to, if only to count a reference,
so what forks need is allocated side by side, and what they allocate comes from whole pages."""

from __future__ import annotations

import ctypes
from typing import Any

LIBC = ctypes.CDLL(None)
MALLOC, FREE = LIBC.malloc, LIBC.free
MALLOC.restype, MALLOC.argtypes, FREE.argtypes = (
    ctypes.c_void_p, (ctypes.c_size_t,), (ctypes.c_void_p,)
)  # fmt: skip
HEADER = b"".__sizeof__()
STREAK = 12  # as many neighbours as this are no longer a hole
LARGE = 1 << 40  # a number of 32 bytes, which no text is as short as
LARGEST = 512  # of Python's own allocator; beyond it, libc's
MOST = 1 << 17  # bytes spent on the holes of one size; where that is not enough, it is not a heap
#                 as this knows it, and is left as it is

plugs: list[Any] = [None]  # kept for ever


def plug() -> None:
    """Fill the holes that importing has left."""
    for size in range(HEADER + 16 & ~15, LARGEST + 1, 16):
        streak, before = 0, len(plugs)
        while streak < STREAK and (len(plugs) - before) * size < MOST:
            plugs.append(bytes(size - HEADER))
            streak = streak + 1 if id(plugs[-1]) - id(plugs[-2]) == size else 0
        del plugs[-STREAK if streak == STREAK else before :]
    end = MALLOC(100_000)
    for size in (*range(65_536, 4_096, -4_096), *range(4_096, 16, -16)):
        for _ in range(MOST // size + 1):
            one = MALLOC(size)
            if not one or one > end:  # from the end of the heap: no hole of this size is left
                FREE(one)
                break
    FREE(end)


def shift(seed: int) -> None:
    """Let what forks allocate begin elsewhere in its page than in the jail of another seed: the
    lowest digits of an address are not drawn by the kernel. By an odd number of blocks, for no
    size of block makes pages of so few."""
    for n in range(seed and 2 * seed + 1):
        plugs.extend((object(), LARGE + n))
        plugs.extend(bytes(size - HEADER) for size in range(HEADER + 16 & ~15, LARGEST + 1, 16))

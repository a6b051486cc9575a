"""After the holes are filled, what is allocated lies side by side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sparring.judge.sandbox

HERE = Path(sparring.judge.sandbox.__file__).parent
SCRIPT = """
import sys; sys.path.insert(0, sys.argv[1])
import re, typing, decimal, json
from inside import heap

def pages(size):
    kept = [bytes(size - heap.HEADER) for _ in range(20)]
    return len({id(one) >> 12 for one in kept})

def scattered(size):
    kept = [bytes(size - heap.HEADER) for _ in range(400)]
    holes = kept[::7]
    del kept[::7]
    del holes
    return kept

kept = [scattered(size) for size in (64, 128, 256)]
before = [pages(size) for size in (64, 128, 256)]
heap.plug()
after = [pages(size) for size in (64, 128, 256)]
print(sum(before), sum(after), sum(map(len, filter(None, heap.plugs))))
"""


def test_the_holes_of_the_heap_are_filled() -> None:
    words = [sys.executable, "-S", "-c", SCRIPT, str(HERE)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    before, after, spent = map(int, done.stdout.split())
    least = sum(-(-20 * size // 4096) for size in (64, 128, 256))
    assert after <= least + 3 < before  # one page more where a row begins in the middle of one
    assert spent < 2 << 20

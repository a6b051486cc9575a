"""Which of the processes that learn together this one is, by the launcher's variables."""

from __future__ import annotations

import os


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))

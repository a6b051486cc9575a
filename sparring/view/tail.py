"""Follows a run's logs as they grow. A torn line is not passed on until it is whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from sparring.view.rundata import parse_object

EVERY_S = 0.4
_KEEP_ALIVE = 30  # looks without news before a line that keeps the connection open


class Tail:
    """What was appended to a file since the last look; `restarted` where it was cut back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = self._size()
        self.restarted = False

    def _size(self) -> int:
        """Up to the end of the last whole line."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return 0
        return data.rfind(b"\n") + 1

    def read(self) -> list[dict[str, Any]]:
        try:
            size = self.path.stat().st_size
        except OSError:
            return []
        if size < self.offset:
            self.restarted, self.offset = True, self._size()
            return []
        if size == self.offset:
            return []
        with self.path.open("rb") as file:
            file.seek(self.offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        return [row for line in whole.split(b"\n") if (row := parse_object(line)) is not None]


async def server_sent_events(run: Path) -> AsyncIterator[str]:
    """New lines of both logs as server-sent events named `metrics`, `events` and `reset`."""
    tails = {"metrics": Tail(run / "metrics.jsonl"), "events": Tail(run / "events.jsonl")}
    quiet = 0
    yield ": connected\n\n"
    while True:
        quiet += 1
        for name, tail in tails.items():
            rows = tail.read()
            if tail.restarted:
                tail.restarted = False
                yield "event: reset\ndata: {}\n\n"
            for row in rows:
                quiet = 0
                yield f"event: {name}\ndata: {json.dumps(finite(row))}\n\n"
        if quiet >= _KEEP_ALIVE:
            quiet = 0
            yield ": still here\n\n"
        await asyncio.sleep(EVERY_S)


def finite(value: Any) -> Any:
    """The same, with null where JSON for browsers has no number."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value

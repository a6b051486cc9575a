"""A request that waits for its turn, and how it is answered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from sparring.core.types import Request, Turn
from sparring.engines.local.masking import Trie


@dataclass(slots=True)
class Waiting:
    request: Request
    prompt_ids: list[int]
    future: asyncio.Future[Turn]
    trie: Trie | None = None

    def answer(self, result: Turn | Exception) -> None:
        """Unless it was cancelled."""
        if self.future.done():
            return
        if isinstance(result, StopIteration):  # a future cannot hold one, and would never be done
            result = RuntimeError(f"the engine failed: {result!r}")
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

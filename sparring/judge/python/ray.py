"""The judge of Python programs as Ray tasks: any node with a free core rules. A ruling depends on
nothing but its program, so one that was lost with its node is made again elsewhere."""

from __future__ import annotations

import asyncio
import atexit
from typing import Any

from sparring.core.types import Verdict
from sparring.judge.python.judge import Execution, Judge

_RETRIES = 3  # nodes that may die under one ruling
_warm: dict[tuple[tuple[str, Any], ...], tuple[asyncio.AbstractEventLoop, Judge]] = {}


class RayJudge(Judge):
    """A judge whose rulings are made somewhere in the cluster; its own pool is never started."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._options = tuple(sorted(options.items()))

    async def __aenter__(self) -> RayJudge:
        import ray

        self._rule: Any = ray.remote(rule).options(num_cpus=1, max_retries=_RETRIES)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Nothing to stop: tasks end by themselves."""

    async def run(self, code: str, **words: Any) -> Execution:
        from ray.exceptions import RayError

        try:
            done: Execution = await self._rule.remote(self._options, "run", (code,), words)
            return done
        except RayError as error:
            return Execution("void", "ray", str(error)[:200])

    async def tests(self, code: str, tests: Any, **words: Any) -> Verdict:
        from ray.exceptions import RayError

        try:
            ruled: Verdict = await self._rule.remote(self._options, "tests", (code, tests), words)
            return ruled
        except RayError as error:
            return Verdict("void", "ray", str(error)[:200])


def rule(
    options: tuple[tuple[str, Any], ...], method: str, args: tuple[Any, ...], words: dict[str, Any]
) -> Any:
    """In a worker of Ray's: rule with this process's judge, which stays warm."""
    if options not in _warm:
        loop, judge = asyncio.new_event_loop(), Judge(1, **dict(options))
        loop.run_until_complete(judge.__aenter__())
        _warm[options] = loop, judge
        atexit.register(lambda: loop.run_until_complete(judge.__aexit__()))
    loop, judge = _warm[options]
    return loop.run_until_complete(getattr(judge, method)(*args, **words))

"""Where the time of collecting goes: an engine speaks, a judge rules, or neither is at work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager


class Clock:
    """Wall-clock time, split by who was at work. However many speak or rule at once, a second is
    one second. For the event loop's thread alone."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._working = {"generate": 0, "judge": 0}
        self._last = now()
        self._spent = _nothing_yet()

    def generating(self) -> AbstractContextManager[None]:
        return self._at_work("generate")

    def judging(self) -> AbstractContextManager[None]:
        return self._at_work("judge")

    @contextmanager
    def _at_work(self, who: str) -> Iterator[None]:
        self._tick()
        self._working[who] += 1
        try:
            yield
        finally:
            self._tick()
            self._working[who] -= 1

    def _tick(self) -> None:
        now = self._now()
        passed, self._last = now - self._last, now
        if self._working["generate"]:
            self._spent["generate"] += passed
            if self._working["judge"]:
                self._spent["judge_meanwhile"] += passed
        else:
            self._spent["judge" if self._working["judge"] else "wait"] += passed

    def add_workers(self, laps: Sequence[Mapping[str, float]]) -> None:
        """Replace this process's waiting by how workers spent that time, on average."""
        self._tick()
        for key in self._spent if laps else ():
            mean = sum(lap[key] for lap in laps) / len(laps)
            self._spent[key] += mean
            if key != "judge_meanwhile":
                self._spent["wait"] -= mean

    def lap(self) -> dict[str, float]:
        """Seconds since this was last asked. `generate`, `judge` (while no engine spoke) and `wait`
        (neither: games, prompts, the event loop) add up to the whole; `judge_meanwhile` is the
        part of `generate` in which a judge was at work too."""
        self._tick()
        spent, self._spent = self._spent, _nothing_yet()
        return spent


def _nothing_yet() -> dict[str, float]:
    return dict.fromkeys(("generate", "judge", "wait", "judge_meanwhile"), 0.0)

"""A worker in a second process: the same episodes, a clean end, and a kill that costs nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_workers import Words, request

from sparring.core.collect import Job
from sparring.core.types import Episode, Request, Turn
from sparring.engines.pool import WorkerPool
from sparring.engines.process import ProcessTransport, WorkerExited
from sparring.run.games import load_game


class Stalling(Words):
    """Answers thirty requests, which end at least five games, and others once there is a file."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file, self.asked = file, 0

    async def act(self, asked: Request) -> Turn:
        self.asked += 1
        while self.asked > 30 and not self.file.exists():
            await asyncio.sleep(0.01)
        return await super().act(asked)


def fail() -> Any:
    raise ValueError("no such model")


@contextmanager
def pool(make: Any = Words) -> Iterator[WorkerPool]:
    transport = ProcessTransport(lambda: make, "bubblewrap", {"MARK": "here"})
    workers = WorkerPool(Words(), transport, patience_s=300)
    try:
        yield workers
    finally:
        workers.kill()


def jobs() -> list[Job]:
    game = load_game("kuhn", style="terse")
    seating = dict.fromkeys(game.seats, "base")  # whose weights never travel
    return [Job(str(i), "kuhn", game, game.task(i), i, seating) for i in range(48)]


def words(episodes: Sequence[Episode]) -> list[Any]:
    return [(e.id, e.rewards, e.void, [t.text for t in e.turns]) for e in episodes]


def gone(pid: int) -> bool:
    """Whether a process is no more, which is waited for as long as it takes."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def test_a_killed_process_is_replaced_and_every_episode_arrives_once(tmp_path: Path) -> None:
    expected = words(asyncio.run(Words().collect(jobs())))
    done: list[str] = []
    killed = tmp_path / "killed"

    def kill(episode: Episode) -> None:
        done.append(episode.id)
        if len(done) == 5:
            os.kill(int(episode.turns[0].prompt.split()[0]), signal.SIGKILL)
            killed.touch()

    with pool(partial(Stalling, killed)) as workers:
        played = asyncio.run(workers.collect(jobs(), concurrency=8, on_episode=kill))
        assert words(played) == expected
        assert sorted(done, key=int) == [job.id for job in jobs()]
        assert workers.replaced == 1 and workers.replayed > 0
        pids = {int(t.prompt.split()[0]) for e in played for t in e.turns}
        assert len(pids) == 2 and os.getpid() not in pids
        # Another event loop goes on with the same worker, and then it stops by itself.
        asked = replace(request(), policy="base")
        last = int(asyncio.run(workers.act(asked)).prompt.split()[0])
        assert last in pids
        asyncio.run(workers.close())
    assert all(gone(pid) for pid in pids)


def test_what_fails_in_the_other_process_is_said_here() -> None:
    with pool(fail) as workers:
        with pytest.raises(ValueError, match="no such model") as raised:
            asyncio.run(workers.act(replace(request(), policy="base")))
        assert any("in fail" in note for note in raised.value.__notes__)  # where it was raised
        worker = workers._slots[0].worker
        worker.kill()
        with pytest.raises(WorkerExited, match="exit code"):
            asyncio.run(asyncio.wait_for(_ready(worker), 120))


async def _ready(worker: Any) -> Any:
    return await worker.ready.remote()

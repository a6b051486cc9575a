"""Runs programs in forks of warm jails, so many at a time, each with a clock over it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from sparring.judge.sandbox import bwrap, procfs
from sparring.judge.sandbox.inside.protocol import KILL, LOOK
from sparring.judge.sandbox.outcome import Execution, Exit, Files, Limits, execution
from sparring.judge.sandbox.zygotes import Running, Zygote

__all__ = ["Execution", "Limits", "Pool"]

SLOW_S = 0.25  # after this long an execution no longer holds up the queue
PATROL_S = 0.2
FORKS = 4  # of one jail under way, before there is another one


class Pool:
    """Runs programs, `workers` at a time, each in a fork of a warm jail.

    `sandbox="unsafe"` runs them as plain processes with the caller's own rights.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        limits: Limits | None = None,
        sandbox: str = "bubblewrap",
        python: str | None = None,
        packages: Sequence[str] = ("numpy",),
    ) -> None:
        if sandbox not in ("bubblewrap", "unsafe"):
            raise ValueError(f"sandbox is 'bubblewrap' or 'unsafe', not {sandbox!r}")
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 2
        self.workers = workers or max(4, 6 * cores)
        self.slow_slots = max(2, 2 * cores)
        # A program kept from a processor gets this many times its limit before that is a void:
        # more than a pool full of endless loops would keep it waiting.
        self.stretch = 4 + 2 * (self.workers + self.slow_slots) / cores
        self.limits = limits or Limits()
        self.jailed = sandbox == "bubblewrap"
        self.python, self.packages = python, tuple(packages)
        self.width = max(1, min(cores, self.workers, 8))
        self._zygotes: dict[tuple[int, int], Zygote] = {}
        self._starting: dict[tuple[int, int], asyncio.Lock] = {}
        self._fast = asyncio.Semaphore(self.workers)
        self._slow = 0  # executions that have left the queue's way and still run
        self._slow_jobs: set[Running] = set()
        self._patrol: asyncio.Task[None] | None = None
        self._null = os.open(os.devnull, os.O_RDONLY)

    async def __aenter__(self) -> Pool:
        await self._zygote(0)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._patrol:
            self._patrol.cancel()
            with suppress(asyncio.CancelledError):
                await self._patrol
            self._patrol = None
        for zygote in self._zygotes.values():
            zygote.stop()
        self._zygotes.clear()
        if self._null >= 0:
            os.close(self._null)
            self._null = -1

    async def _zygote(self, hash_seed: int) -> Zygote:
        key = (hash_seed, 0 if hash_seed else self._least_busy())
        ready = self._zygotes.get(key)
        if ready is not None and ready.alive:
            return ready
        async with self._starting.setdefault(key, asyncio.Lock()):
            zygote = self._zygotes.get(key)
            if zygote is None or not zygote.alive:
                self._retire()
                zygote = self._zygotes[key] = await self._started(hash_seed)
        return zygote

    def _least_busy(self) -> int:
        """Which jail forks next: the one with the fewest forks, or a new one where all have some to
        do. To start one takes as long as dozens of forks."""
        ready = {n: len(z.jobs) for (seed, n), z in self._zygotes.items() if not seed and z.alive}
        least = min(ready, key=lambda n: (ready[n], n), default=0)
        if len(ready) == self.width or ready.get(least, FORKS) < FORKS:
            return least
        return next(n for n in range(self.width) if n not in ready)

    async def _started(self, hash_seed: int) -> Zygote:
        """A jail that is ready; one that died as it started is replaced, once."""
        with suppress(bwrap.SandboxMissing):
            zygote = Zygote(self, hash_seed)
            await zygote.ready()
            return zygote
        zygote = Zygote(self, hash_seed)
        await zygote.ready()
        return zygote

    def _retire(self) -> None:
        """Jails of hash seeds long unused make room for new ones."""
        idle = [k for k, z in self._zygotes.items() if k[0] and not z.jobs]
        for key in idle[: max(0, len(self._zygotes) - self.width - 6)]:
            self._zygotes.pop(key).stop()

    async def execute(
        self,
        request: dict[str, Any],
        *,
        timeout_s: float | None = None,
        stdin: bytes = b"",
        hash_seed: int = 0,
        whole: bool = False,
    ) -> Execution:
        """Run one request to its end. Waits for a free slot first; that wait is not counted."""
        async with _Slot(self) as slot:
            for _ in range(2):
                done = await self._run(
                    request, timeout_s, stdin, hash_seed, whole, announce=slot.attach
                )
                if done.kind != "jail":
                    break  # a jail that died is replaced and asked again, once
            return done

    async def execute_pair(
        self, program: dict[str, Any], tests: dict[str, Any], *, timeout_s: float | None = None
    ) -> tuple[Execution, Execution]:
        """A program and the tests that call it, in two jails with a link between them."""
        left, right = socket.socketpair()
        under_way: dict[str, Running] = {}

        def announce(side: str, job: Running) -> None:
            under_way[side] = job
            if side == "tests":
                slot.attach(job)
            if len(under_way) == 2:
                one, other = under_way.values()
                one.partner, other.partner = other, one

        async with _Slot(self) as slot:
            serving = asyncio.ensure_future(
                self._run(program, timeout_s, peer=left, announce=partial(announce, "program"))
            )
            try:
                checked = await self._run(
                    tests, timeout_s, peer=right, announce=partial(announce, "tests")
                )
            finally:
                if "program" in under_way:
                    under_way["program"].kill("ended")
                else:
                    serving.cancel()
            return await serving, checked

    async def _run(
        self,
        request: dict[str, Any],
        timeout_s: float | None,
        stdin: bytes = b"",
        hash_seed: int = 0,
        whole: bool = False,
        *,
        peer: socket.socket | None = None,
        announce: Callable[[Running], None],
    ) -> Execution:
        timeout_s = timeout_s or self.limits.timeout_s
        try:
            zygote = await self._zygote(hash_seed)
        except OSError as error:
            return Execution("void", "jail", f"the jail could not be started: {error}")
        request = {"files": False, **request, "cpu_s": int(timeout_s) + 2}
        files = _files(request, whole)
        feed = _memory("stdin", stdin) if stdin else self._null
        try:
            link = peer.fileno() if peer else self._null
            fds = [feed, files.out, files.err, files.request, files.result, link]
            job = await zygote.start(timeout_s, fds)
            if peer:
                peer.close()  # the jail has its own by now, and only its end counts
            announce(job)
            exit = await self._wait(job)
            seconds = time.perf_counter() - job.started
            limits = replace(self.limits, timeout_s=timeout_s)
            return execution(exit, job.killed, files, limits, seconds, whole)
        finally:
            files.close()
            if stdin:
                os.close(feed)

    async def _wait(self, job: Running) -> Exit | None:
        loop = asyncio.get_running_loop()
        # One timer for the many that are soon done; only the slow need a deadline as well.
        timer = loop.call_later(min(SLOW_S, job.timeout_s), self._look, job)
        try:
            return await job.done
        except asyncio.CancelledError:
            job.zygote.send(KILL, job.number)
            raise
        finally:
            timer.cancel()
            self._slow_jobs.discard(job)

    def _look(self, job: Running) -> None:
        left = job.timeout_s - SLOW_S
        if left <= 0:
            job.deadline()
            return
        asyncio.get_running_loop().call_later(left, job.deadline)
        if job.slow:
            job.slow()
        self._slow_jobs.add(job)
        job.zygote.send(LOOK, job.number)
        if self._patrol is None or self._patrol.done():
            self._patrol = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
        """Several processes together may not use what one may not."""
        while self._slow_jobs:
            await asyncio.sleep(PATROL_S)
            watched = {job.pid: job for job in self._slow_jobs if job.pid}
            if not watched:
                continue
            for pid, used in procfs.usage(list(watched)).items():
                if used.bytes > self.limits.memory_mb << 20:
                    watched[pid].kill("memory")


class _Slot:
    """A slot of the pool. A slow execution releases it early, so that others need not wait."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.held = False
        self.slow = False

    async def __aenter__(self) -> _Slot:
        await self.pool._fast.acquire()
        self.held = True
        return self

    def attach(self, job: Running) -> None:
        job.slow = self._give_way

    def _give_way(self) -> None:
        if self.pool._slow < self.pool.slow_slots and self.held:
            self.pool._slow += 1
            self.slow = True
            self._release()

    def _release(self) -> None:
        if self.held:
            self.held = False
            self.pool._fast.release()

    async def __aexit__(self, *error: object) -> None:
        if self.slow:
            self.pool._slow -= 1
        self._release()


def _memory(name: str, content: bytes = b"") -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    if content:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _files(request: dict[str, Any], whole: bool) -> Files:
    body = _memory("request", b"?" + json.dumps(request).encode())
    out = _memory("stdout")
    return Files(body, _memory("result"), out, _memory("stderr") if whole else out)

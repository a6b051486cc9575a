"""Warm zygotes, the executions they fork, and the clock over each: the host's side of the jail."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sparring.judge.sandbox import bwrap, procfs
from sparring.judge.sandbox.inside.protocol import EXIT, HEAD, KILL, LOOK, START, TAIL
from sparring.judge.sandbox.outcome import Execution, Exit, Files, Limits, execution

__all__ = ["Execution", "Limits", "Pool"]

SLOW_S = 0.25  # after this long an execution no longer holds up the queue
PATROL_S = 0.2
GRACE_S = 10.0  # a zygote that cannot even kill within this is broken


@dataclass(eq=False)
class Job:
    """One execution under way."""

    zygote: Zygote
    number: int
    timeout_s: float
    stretch: float
    done: asyncio.Future[Exit | None]
    started: float = field(default_factory=time.perf_counter)
    killed: str = ""
    pid: int = 0
    slow: Callable[[], None] | None = None  # called when it turns out to take long
    partner: Job | None = None  # at the other end of its link, where one waits while the other runs

    def kill(self, why: str) -> None:
        if self.zygote.process.poll() is not None:
            self.zygote.stop()  # the jail is dead: that is no fault of the program
        if not self.killed and not self.done.done():
            self.killed = why
            self.zygote.tell(KILL, self.number)
            asyncio.get_running_loop().call_later(GRACE_S, self._insist)

    def _insist(self) -> None:
        if not self.done.done():
            self.zygote.stop()

    def deadline(self) -> None:
        """Time spent waiting for a processor is the machine's fault and is not counted, be it
        this one or the partner it waits for that had to."""
        if self.done.done() or self.killed:
            return
        wall = time.perf_counter() - self.started
        pids = [job.pid for job in (self, self.partner) if job and job.pid]
        waited = min(sum(map(procfs.waited, pids)), wall)
        left = self.timeout_s - (wall - waited)
        if left > 0.01 and wall < self.stretch * self.timeout_s:
            asyncio.get_running_loop().call_later(max(left, 0.05), self.deadline)
            return
        self.kill("starved" if left > 0.01 and not self._self_made() else f"{self.timeout_s:g}")

    def _self_made(self) -> bool:
        """Whether a program that had to wait for a processor waited for itself."""
        used = procfs.usage([self.pid]).get(self.pid)
        return used is None or used.tasks > 4 or used.cpu_s > self.timeout_s / 2


class Zygote:
    """One warm jail."""

    def __init__(self, pool: Pool, hash_seed: int) -> None:
        self.stretch = pool.stretch
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self.jobs: dict[int, Job] = {}
        self.next = 0
        self.alive = True
        self.process, self.control = bwrap.launch(
            hash_seed=hash_seed,
            errors=self.errors.fileno(),
            python=pool.python,
            packages=pool.packages,
            jailed=pool.jailed,
            limits=pool.limits,
        )
        self.control.setblocking(False)

    async def ready(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = await asyncio.wait_for(loop.sock_recv(self.control, 64), 30)
        except (OSError, TimeoutError):
            answer = b""
        if not answer:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip()[-400:]
            self.stop()
            raise bwrap.SandboxMissing(f"the jail did not start: {said or 'it said nothing'}")
        loop.add_reader(self.control.fileno(), self._hear)

    def tell(self, what: bytes, job: int) -> None:
        with suppress(OSError):  # a dead zygote is noticed by _hear
            self.control.send(HEAD.pack(what, job))

    async def start(self, timeout_s: float, fds: Sequence[int]) -> Job:
        self.next = (self.next + 1) & 0xFFFFFFFF
        job = Job(
            self, self.next, timeout_s, self.stretch, asyncio.get_running_loop().create_future()
        )
        self.jobs[job.number] = job
        while self.alive:
            try:
                socket.send_fds(self.control, [HEAD.pack(START, job.number)], list(fds))
                break
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except OSError:
                self.stop()
        job.started = time.perf_counter()
        return job

    def _hear(self) -> None:
        while self.alive:
            try:
                message, fds, _, _ = socket.recv_fds(self.control, TAIL.size, 1)
            except BlockingIOError:
                return
            except OSError:
                message, fds = b"", []
            if not message:
                self.stop()
                return
            if message[:1] == EXIT:
                _, number, status, error, peak, cpu = TAIL.unpack(message)
                job = self.jobs.pop(number, None)
                if job and not job.done.done():
                    job.done.set_result(Exit(status, error, peak, cpu))
            elif message[:1] == LOOK and fds:
                found = self.jobs.get(HEAD.unpack(message)[1])
                if found:
                    found.pid = procfs.pid_of(fds[0])
                os.close(fds[0])

    def stop(self) -> None:
        """End it and everything in it; what it was running is void."""
        if not self.alive:
            return
        self.alive = False
        with suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().remove_reader(self.control.fileno())
        self.control.close()
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.errors.close()
        for job in self.jobs.values():
            if not job.done.done():
                job.done.set_result(None)
        self.jobs.clear()


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
        self.slow_places = max(2, 2 * cores)
        # A program kept from a processor gets this many times its limit before that is a void:
        # more than a pool full of endless loops would keep it waiting.
        self.stretch = 4 + 2 * (self.workers + self.slow_places) / cores
        self.limits = limits or Limits()
        self.jailed = sandbox == "bubblewrap"
        self.python, self.packages = python, tuple(packages)
        self.width = max(1, min(cores, self.workers, 8))
        self._zygotes: dict[tuple[int, int], Zygote] = {}
        self._starting: dict[tuple[int, int], asyncio.Lock] = {}
        self._fast = asyncio.Semaphore(self.workers)
        self._slow = 0  # executions that have left the queue's way and still run
        self._slow_jobs: set[Job] = set()
        self._turn = 0
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
        self._turn += 1
        key = (hash_seed, self._turn % (self.width if hash_seed == 0 else 1))
        ready = self._zygotes.get(key)
        if ready is not None and ready.alive:
            return ready
        async with self._starting.setdefault(key, asyncio.Lock()):
            zygote = self._zygotes.get(key)
            if zygote is None or not zygote.alive:
                self._retire()
                zygote = self._zygotes[key] = await self._started(hash_seed)
        return zygote

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
        """Run one request to its end. Waits for a free place first; that wait is not counted."""
        async with _Place(self) as place:
            for _ in range(2):
                done = await self._run(
                    request, timeout_s, stdin, hash_seed, whole, announce=place.holds
                )
                if done.kind != "jail":
                    break  # a jail that died is replaced and asked again, once
            return done

    async def execute_pair(
        self, program: dict[str, Any], tests: dict[str, Any], *, timeout_s: float | None = None
    ) -> tuple[Execution, Execution]:
        """A program and the tests that call it, in two jails with a link between them."""
        left, right = socket.socketpair()
        under_way: dict[str, Job] = {}

        def announce(side: str, job: Job) -> None:
            under_way[side] = job
            if side == "tests":
                place.holds(job)
            if len(under_way) == 2:
                one, other = under_way.values()
                one.partner, other.partner = other, one

        async with _Place(self) as place:
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
        announce: Callable[[Job], None],
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
            return execution(exit, job.killed, files, self.limits, seconds, whole)
        finally:
            files.close()
            if stdin:
                os.close(feed)

    async def _wait(self, job: Job) -> Exit | None:
        loop = asyncio.get_running_loop()
        # One timer for the many that are soon done; only the slow need a deadline as well.
        timer = loop.call_later(min(SLOW_S, job.timeout_s), self._look, job)
        try:
            return await job.done
        except asyncio.CancelledError:
            job.zygote.tell(KILL, job.number)
            raise
        finally:
            timer.cancel()
            self._slow_jobs.discard(job)

    def _look(self, job: Job) -> None:
        left = job.timeout_s - SLOW_S
        if left <= 0:
            job.deadline()
            return
        asyncio.get_running_loop().call_later(left, job.deadline)
        if job.slow:
            job.slow()
        self._slow_jobs.add(job)
        job.zygote.tell(LOOK, job.number)
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


class _Place:
    """A place in the queue. A slow execution gives it up early, so that others need not wait."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.held = False
        self.slow = False

    async def __aenter__(self) -> _Place:
        await self.pool._fast.acquire()
        self.held = True
        return self

    def holds(self, job: Job) -> None:
        job.slow = self._give_way

    def _give_way(self) -> None:
        if self.pool._slow < self.pool.slow_places and self.held:
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

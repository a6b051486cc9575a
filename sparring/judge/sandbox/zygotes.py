"""The host's side of one warm jail and of the executions that it forks."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparring.judge.sandbox import bwrap, procfs
from sparring.judge.sandbox.inside.protocol import EXIT, HEAD, KILL, LOOK, START, TAIL
from sparring.judge.sandbox.outcome import Exit

if TYPE_CHECKING:
    from sparring.judge.sandbox.pool import Pool

GRACE_S = 10.0  # a zygote that cannot even kill within this is broken


@dataclass(eq=False)
class Running:
    """One execution that is running."""

    zygote: Zygote
    number: int
    timeout_s: float
    stretch: float
    done: asyncio.Future[Exit | None]
    started: float = field(default_factory=time.perf_counter)
    killed: str = ""
    pid: int = 0
    slow: Callable[[], None] | None = None  # called when it turns out to take long
    partner: Running | None = None  # the process at the other end of its link

    def kill(self, why: str) -> None:
        if self.zygote.process.poll() is not None:
            self.zygote.stop()  # the jail is dead: that is no fault of the program
        if not self.killed and not self.done.done():
            self.killed = why
            self.zygote.send(KILL, self.number)
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
        self.jobs: dict[int, Running] = {}
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
            answer = await asyncio.wait_for(self._first_message(), bwrap.START_S)
        except (OSError, TimeoutError):
            answer = b""
        if not answer:
            self.errors.seek(0)
            stderr = self.errors.read().decode(errors="replace").strip()[-400:]
            self.stop()
            raise bwrap.SandboxMissing(f"the jail did not start: {stderr or 'no output'}")
        loop.add_reader(self.control.fileno(), self._on_message)

    async def _first_message(self) -> bytes:
        """Nothing if it ended: what is left of one killed as it started keeps the socket open."""
        message = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(self.control, 64))
        try:
            while not (await asyncio.wait([message], timeout=0.1))[0]:
                if bwrap.exited(self.process):
                    return b""
            return message.result()
        finally:
            message.cancel()

    def send(self, what: bytes, job: int) -> None:
        with suppress(OSError):  # a dead zygote is noticed by _on_message
            self.control.send(HEAD.pack(what, job))

    async def start(self, timeout_s: float, fds: Sequence[int]) -> Running:
        self.next = (self.next + 1) & 0xFFFFFFFF
        job = Running(
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

    def _on_message(self) -> None:
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
                looked_at = self.jobs.get(HEAD.unpack(message)[1])
                if looked_at:
                    looked_at.pid = procfs.pid_of(fds[0])
                os.close(fds[0])

    def stop(self) -> None:
        """End it and everything in it; what it was running is void."""
        if not self.alive:
            return
        self.alive = False
        with suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().remove_reader(self.control.fileno())
        self.control.close()
        bwrap.end(self.process)
        self.errors.close()
        for job in self.jobs.values():
            if not job.done.done():
                job.done.set_result(None)
        self.jobs.clear()

"""The warm process that forks once per execution, and the lock each fork puts on itself.

It is handed descriptors and passes them on unread, so it holds nothing of any request or result
that a later fork could find in its memory.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

from . import runner, wire
from .protocol import EXIT, HEAD, KILL, LOOK, READY, START, TAIL

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID_NODEV = 2 | 4
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
PRCTL, CAPSET, UNSHARE, SETNS, MOUNT = (
    LIBC.prctl, LIBC.capset, LIBC.unshare, LIBC.setns, LIBC.mount
)  # fmt: skip
HIGH = 64  # the zygote's own descriptors lie above this
SLOTS = range(6)  # what a fork starts with: the three streams, 3 request, 4 result, 5 a peer
M_ARENA_MAX = -8
CAPABILITY_VERSION_3 = 0x20080522
REQUEST = SLOTS[3]
FDS = list(SLOTS[3:])
SETRLIMIT = resource.setrlimit
RLIMIT_NPROC, RLIMIT_CPU = resource.RLIMIT_NPROC, resource.RLIMIT_CPU
LOCKED = b"L"  # from here on a failure is the program's own


def _check(result: int, what: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def main() -> None:
    """Fork a child for every START until the other end of the control socket closes."""
    config = json.loads(sys.argv[1])
    sys.path[:] = [p for p in sys.path[1:] if p] + config["paths"]
    for name in config["preload"]:
        importlib.import_module(name)
    runner.rehearse()
    LIBC.mallopt(M_ARENA_MAX, 2)  # each arena takes 64 MB of a program's address space
    control = socket.socket(fileno=fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, HIGH))
    config["null"] = fcntl.fcntl(os.open("/dev/null", os.O_RDWR), fcntl.F_DUPFD_CLOEXEC, HIGH)
    filters = [Filter(base64.b64decode(text)) for text in config["filters"]]
    if filters:
        config["late"] = filters[1]
        _check(PRCTL(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _check(PRCTL(PR_SET_SECCOMP, 2, filters[0].array, 0, 0), "seccomp")
    config["own"] = fcntl.fcntl(os.pidfd_open(os.getpid()), fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.closerange(3, HIGH)
    for slot in SLOTS:
        os.dup2(config["null"], slot)
    limit(config["limits"])
    if config["jailed"]:
        _try_out(config)
    del sys.argv[1:]
    gc.collect()
    gc.freeze()
    control.send(HEAD.pack(READY, 0))
    _serve(control, config)


def _try_out(config: dict[str, Any]) -> None:
    """Lock one fork down before saying READY: a jail that cannot is no jail, and says so now."""
    _check(UNSHARE(NEWPID), "unshare")
    pid = os.fork()
    if pid == 0:
        try:
            _own_world(True)
            _lock(config)
            os._exit(0)
        except BaseException as failure:
            os.write(2, repr(failure).encode())
            os._exit(71)
    _check(SETNS(config["own"], NEWPID), "setns")
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("a fork could not be locked down")


def _serve(control: socket.socket, config: dict[str, Any]) -> None:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    pids: dict[int, tuple[int, int]] = {}  # pidfd -> (job, pid)
    jobs: dict[int, int] = {}  # job -> pidfd
    while True:
        for fd, _ in poll.poll():
            if fd != control.fileno():
                poll.unregister(fd)
                job, pid = pids.pop(fd)
                del jobs[job]
                os.close(fd)
                _reap(control, job, pid)
                continue
            message, fds, _, _ = socket.recv_fds(control, HEAD.size, 8)
            if not message:
                os._exit(0)
            what, job = HEAD.unpack(message)
            if what == START:
                pid = _start(control, job, fds, config)
                if pid:
                    jobs[job] = pidfd = os.pidfd_open(pid)
                    pids[pidfd] = (job, pid)
                    poll.register(pidfd, select.POLLIN)
            elif job in jobs and what == KILL:
                _kill(pids[jobs[job]][1], config["jailed"])
            elif job in jobs and what == LOOK:
                socket.send_fds(control, [HEAD.pack(LOOK, job)], [jobs[job]])


def _start(control: socket.socket, job: int, fds: list[int], config: dict[str, Any]) -> int:
    pid, error = 0, 0
    try:
        if config["jailed"]:
            _check(UNSHARE(NEWPID), "unshare")
        _lay_out(fds, config["null"])
        try:
            pid = os.fork()
        finally:
            if config["jailed"] and os.getpid() != 1:
                _check(SETNS(config["own"], NEWPID), "setns")
        if pid == 0:
            _child(config)
    except OSError as failure:
        error = failure.errno or -1
    _lay_out([], config["null"])
    for fd in fds:
        os.close(fd)
    if error:
        control.send(TAIL.pack(EXIT, job, 0, error, 0, 0.0))
    return pid


def _kill(pid: int, jailed: bool) -> None:
    if not jailed:
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def _reap(control: socket.socket, job: int, pid: int) -> None:
    _, status, used = os.wait4(pid, 0)
    cpu = used.ru_utime + used.ru_stime
    control.send(TAIL.pack(EXIT, job, status, 0, used.ru_maxrss, cpu))


def _lay_out(fds: list[int], null: int) -> None:
    """Put what a fork is to have where it will look for it; with nothing, take it all away."""
    request, result, out, err, stdin, *peer = fds or [null] * 6
    wanted = (stdin, out, err, request, result, *(peer or [null]))
    for slot, fd in zip(SLOTS, wanted, strict=True):
        os.dup2(fd, slot, inheritable=slot < 3)


def _child(config: dict[str, Any]) -> None:
    """Never returns. Whatever goes wrong before LOCKED is the jail's fault, not the program's."""
    try:
        os.closerange(len(SLOTS), 1024)
        os.setsid()
        request = wire.load_own(os.pread(REQUEST, os.lseek(REQUEST, 0, os.SEEK_END), 1))
        if config["jailed"]:
            _own_world(request["files"])
            most = config["limits"]["processes"]  # outside a jail it would count all of the user's
            SETRLIMIT(RLIMIT_NPROC, (most, most))
        SETRLIMIT(RLIMIT_CPU, (request["cpu_s"], request["cpu_s"]))
        if config["jailed"]:
            _lock(config)
    except BaseException as failure:
        os.write(2, repr(failure).encode())
        os._exit(71)
    os.pwrite(REQUEST, LOCKED, 0)
    runner.run(request, FDS)
    os._exit(0)


def _own_world(files: bool) -> None:
    """Places to write of its own where it needs them, and a user namespace of its own, so that
    its processes are counted apart from all others'."""
    if files:
        _check(UNSHARE(NEWNS), "unshare mounts")
        for place, size in ((b"/tmp", b"size=64m,mode=777"), (b"/dev/shm", b"size=16m,mode=777")):
            _check(MOUNT(b"tmpfs", place, b"tmpfs", MS_NOSUID_NODEV, size), "mount tmpfs")
        os.chdir("/tmp")
    _check(UNSHARE(NEWUSER), "unshare user")


def _lock(config: dict[str, Any]) -> None:
    """No capabilities, and the filter over what the zygote's own left open."""
    late = config["late"]
    _check(CAPSET(late.header, late.none), "capset")
    _check(PRCTL(PR_SET_SECCOMP, 2, late.array, 0, 0), "seccomp")


def limit(limits: dict[str, int]) -> None:
    """What all forks have in common, set once, before them."""
    wanted = {
        resource.RLIMIT_AS: limits["memory"],
        resource.RLIMIT_NOFILE: limits["files"],
        resource.RLIMIT_FSIZE: limits["output"],
        resource.RLIMIT_STACK: 64 << 20,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
    }
    for what, most in wanted.items():
        hard = resource.getrlimit(what)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (value, value))
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY:
        limits["processes"] = min(limits["processes"], hard)


class Filter:
    """The filter in the form the kernel takes, laid out once, before any fork."""

    def __init__(self, program: bytes) -> None:
        self.steps = ctypes.create_string_buffer(program, len(program))
        self.array = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(self.steps))
        self.header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
        self.none = bytes(24)

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

from . import runner

LIBC = ctypes.CDLL(None, use_errno=True)
NEWNS, NEWUSER, NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_NOSUID_NODEV = 2 | 4
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
HIGH = 100  # descriptors are parked above this while the low ones are laid out
CAPABILITY_VERSION_3 = 0x20080522
START, KILL, LOOK, READY, EXIT = b"S", b"K", b"P", b"R", b"X"
HEAD = struct.Struct("=cI")  # what, job
TAIL = struct.Struct("=cIiiQd")  # EXIT, job, wait status, errno, peak KiB, cpu seconds
LOCKED = b"L"  # from here on a failure is the program's own


def _check(result: int, what: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def main() -> None:
    """Fork a child for every START until the other end of the control socket closes."""
    config = json.loads(sys.argv[1])
    sys.path[:] = [p for p in sys.path if not p.startswith("/jail")] + config["paths"]
    for name in config["preload"]:
        importlib.import_module(name)
    runner.site_names()
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    config["filter"] = base64.b64decode(config["filter"])
    config["own"] = os.pidfd_open(os.getpid())
    del sys.argv[1:]
    gc.collect()
    gc.freeze()
    control.send(HEAD.pack(READY, 0))
    _serve(control, wake_read, config)


def _serve(control: socket.socket, wake: int, config: dict[str, Any]) -> None:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake, select.POLLIN)
    jobs: dict[int, int] = {}  # job -> pid
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if wake in ready:
            os.read(wake, 4096)
            _reap(control, jobs)
        if control.fileno() in ready:
            message, fds, _, _ = socket.recv_fds(control, HEAD.size, 8)
            if not message:
                os._exit(0)
            what, job = HEAD.unpack(message)
            if what == START:
                _start(control, job, fds, jobs, config)
            elif job in jobs and what == KILL:
                _kill(jobs[job], config["jailed"])
            elif job in jobs and what == LOOK:
                pidfd = os.pidfd_open(jobs[job])
                socket.send_fds(control, [HEAD.pack(LOOK, job)], [pidfd])
                os.close(pidfd)


def _start(
    control: socket.socket, job: int, fds: list[int], jobs: dict[int, int], config: dict[str, Any]
) -> None:
    error = 0
    try:
        if config["jailed"]:
            _check(LIBC.unshare(NEWPID), "unshare")
        try:
            pid = os.fork()
        finally:
            if config["jailed"] and os.getpid() != 1:
                _check(LIBC.setns(config["own"], NEWPID), "setns")
        if pid == 0:
            _child(fds, config)
        jobs[job] = pid
    except OSError as failure:
        error = failure.errno or -1
    for fd in fds:
        os.close(fd)
    if error:
        control.send(TAIL.pack(EXIT, job, 0, error, 0, 0.0))


def _kill(pid: int, jailed: bool) -> None:
    if not jailed:
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


def _reap(control: socket.socket, jobs: dict[int, int]) -> None:
    while jobs:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if not pid:
            return
        for job, owner in list(jobs.items()):
            if owner == pid:
                del jobs[job]
                cpu = used.ru_utime + used.ru_stime
                control.send(TAIL.pack(EXIT, job, status, 0, used.ru_maxrss, cpu))


def _child(fds: list[int], config: dict[str, Any]) -> None:
    """Never returns. Whatever goes wrong before LOCKED is the jail's fault, not the program's."""
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        fds = _tidy(fds)
        request = json.loads(os.pread(fds[0], os.fstat(fds[0]).st_size, 1))
        if config["jailed"]:
            _own_world(request["files"])
        _limit(request["limits"])
        if config["jailed"]:
            _lock(config["filter"])
    except BaseException as failure:
        os.write(2, repr(failure).encode())
        os._exit(71)
    os.pwrite(fds[0], LOCKED, 0)
    config.clear()
    runner.run(request, fds)
    os._exit(0)


def _tidy(fds: list[int]) -> list[int]:
    """Descriptors as every child has them: 0-2 the streams, 3 request, 4 result, 5 a peer."""
    request, result, out, err, stdin, *peer = [fcntl.fcntl(fd, fcntl.F_DUPFD, HIGH) for fd in fds]
    for number, fd in enumerate((stdin, out, err)):
        os.dup2(fd, number)
    os.closerange(3, HIGH)
    kept = [request, result, *peer]
    for number, fd in enumerate(kept, 3):
        os.dup2(fd, number, inheritable=False)
    os.closerange(HIGH, HIGH + 16)
    return list(range(3, 3 + len(kept)))


def _own_world(files: bool) -> None:
    """A user namespace of its own, so that its processes are counted apart from all others'."""
    _check(LIBC.unshare(NEWUSER | (NEWNS if files else 0)), "unshare user")
    if files:
        for place, size in ((b"/tmp", b"size=64m,mode=777"), (b"/dev/shm", b"size=16m,mode=777")):
            _check(LIBC.mount(b"tmpfs", place, b"tmpfs", MS_NOSUID_NODEV, size), "mount tmpfs")
        os.chdir("/tmp")


def _limit(limits: dict[str, int]) -> None:
    wanted = {
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_AS: limits["memory"],
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_NOFILE: limits["files"],
        resource.RLIMIT_FSIZE: limits["output"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
        resource.RLIMIT_SIGPENDING: 256,
    }
    stack = resource.getrlimit(resource.RLIMIT_STACK)[1]
    deep = 256 << 20
    if stack == resource.RLIM_INFINITY or stack > deep:
        resource.setrlimit(resource.RLIMIT_STACK, (deep, deep))
    for what, most in wanted.items():
        hard = resource.getrlimit(what)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (value, value))


def _lock(program: bytes) -> None:
    """No capabilities, no way to new ones, and the filter over what is left."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    _check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    _check(LIBC.capset(header, bytes(24)), "capset")
    steps = ctypes.create_string_buffer(program, len(program))
    array = struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    _check(LIBC.prctl(PR_SET_SECCOMP, 2, array, 0, 0), "seccomp")

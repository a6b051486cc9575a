"""The warm process that forks once per execution, and the lock each fork puts on itself.

It is handed descriptors and passes them on unread, so it holds nothing of any request or result
that a later fork could find in its memory.
"""

from __future__ import annotations

import _socket
import ctypes
import errno
import gc
import os
import resource
import select
import struct
from contextlib import suppress
from os import (
    SEEK_END,
    _exit,
    close,
    closerange,
    lseek,
    pidfd_open,
    pread,
    pwrite,
    set_inheritable,
    setsid,
    wait4,
)  # fmt: skip
from sys import modules
from typing import Any, NamedTuple

from . import heap, runner, wire
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
CAPABILITIES, NONE = struct.pack("=Ii", 0x20080522, 0), bytes(24)  # version 3, of oneself
KEPT: list[Any] = []  # buffers whose address the kernel has
REQUEST = SLOTS[3]
PLACES = struct.pack(f"={len(SLOTS)}i", *SLOTS)
FDS = list(SLOTS[3:])
SETRLIMIT = resource.setrlimit
RLIMIT_NPROC, RLIMIT_CPU = resource.RLIMIT_NPROC, resource.RLIMIT_CPU
SIGKILL = 9
LOCKED = b"L"  # from here on a failure is the program's own


def _fork() -> int:
    """Python's fork, answering as libc's does."""
    try:
        return os.fork()
    except OSError as failure:
        ctypes.set_errno(failure.errno or 0)
        return -1


# libc's bare fork, where it has one. Python's own calls handlers that mend locks and threads and
# seed random anew: a dozen pages to copy, and nothing to do in a zygote that has none of these.
FORK = (
    _fork
    if {"threading", "random"} & modules.keys()
    else getattr(ctypes.PyDLL(None, use_errno=True), "_Fork", _fork)
)


def _check(result: int, what: str) -> None:
    if result:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


class Jail(NamedTuple):
    """What the loop and its forks need to know, in one place: a look elsewhere is a page more."""

    jailed: bool
    own: int  # a descriptor of the zygote itself, to come back to its namespace
    most: tuple[int, int]  # processes
    late: bytes  # the filter of forks


def main(config: dict[str, Any]) -> None:
    """Fork a child for every START until the other end of the control socket closes."""
    runner.rehearse()
    LIBC.mallopt(M_ARENA_MAX, 2)  # each arena takes 64 MB of a program's address space
    control = _socket.socket(fileno=os.dup2(0, HIGH, inheritable=False))
    own = os.dup2(pidfd_open(os.getpid()), HIGH + 1, inheritable=False)
    filters = [_laid_out(bytes.fromhex(text)) for text in config["filters"]]
    if filters:
        _check(PRCTL(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
        _check(PRCTL(PR_SET_SECCOMP, 2, filters[0], 0, 0), "seccomp")
    most = limit(config["limits"])
    jail = Jail(config["jailed"], own, (most, most), filters[1] if filters else b"")
    if jail.jailed:
        _try_out(jail)
    gc.collect()
    heap.plug()
    gc.freeze()
    closerange(0, HIGH)
    control.send(HEAD.pack(READY, 0))
    _serve(control, jail)


def _try_out(jail: Jail) -> None:
    """Lock one fork down before saying READY: a jail that cannot is no jail, and says so now."""
    _check(UNSHARE(NEWPID), "unshare")
    pid = os.fork()
    if pid == 0:
        try:
            _own_world(True)
            _lock(jail.late)
            _exit(0)
        except BaseException as failure:
            os.write(2, repr(failure).encode())
            _exit(71)
    _check(SETNS(jail.own, NEWPID), "setns")
    if os.waitpid(pid, 0)[1]:
        raise SystemExit("a fork could not be locked down")


def _serve(control: _socket.socket, jail: Jail) -> None:
    """The loop touches as little as it can: every fork makes each page it writes to dear again."""
    poll, recv = select.poll(), control.recvmsg
    own, room = control.fileno(), _socket.CMSG_SPACE(len(PLACES))
    poll.register(own, select.POLLIN)
    pids: dict[int, tuple[int, int]] = {}  # pidfd -> (job, pid)
    jobs: dict[int, int] = {}  # job -> pidfd
    while True:
        for fd, _ in poll.poll():
            if fd != own:
                poll.unregister(fd)
                job, pid = pids.pop(fd)
                del jobs[job]
                close(fd)
                _reap(control, job, pid)
                continue
            message, handed, _, _ = recv(HEAD.size, room, _socket.MSG_CMSG_CLOEXEC)
            if not message:
                _exit(0)
            what, job = HEAD.unpack(message)
            if what == START:
                pid, pidfd = _start(control, job, handed, jail)
                if pid:
                    jobs[job] = pidfd
                    pids[pidfd] = (job, pid)
                    poll.register(pidfd, select.POLLIN)
            elif job in jobs and what == KILL:
                _kill(pids[jobs[job]][1], jail.jailed)
            elif job in jobs and what == LOOK:
                rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("=i", jobs[job]))
                control.sendmsg([HEAD.pack(LOOK, job)], [rights])


def _start(control: _socket.socket, job: int, handed: list[Any], jail: Jail) -> tuple[int, int]:
    """What was handed over lies in the slots already: the kernel takes the lowest free numbers,
    and those are the slots, for they are empty but for the time of this function."""
    pid = pidfd = error = 0
    jailed, own, _, _ = jail
    if not handed or handed[0][2] != PLACES:
        error = errno.EBADF
    elif jailed and UNSHARE(NEWPID):
        error = ctypes.get_errno() or -1
    else:
        pid = FORK()
        if pid == 0:
            _child(jail)
        if pid < 0:
            pid, error = 0, ctypes.get_errno() or -1
        else:
            pidfd = pidfd_open(pid)  # before the slots are free, so that it takes none of them
        if jailed:
            _check(SETNS(own, NEWPID), "setns")
    closerange(0, len(SLOTS))
    if error:
        control.send(TAIL.pack(EXIT, job, 0, error, 0, 0.0))
    return pid, pidfd


def _kill(pid: int, jailed: bool) -> None:
    if not jailed:
        with suppress(OSError):
            os.killpg(pid, SIGKILL)
    os.kill(pid, SIGKILL)


def _reap(control: _socket.socket, job: int, pid: int) -> None:
    _, status, used = wait4(pid, 0)
    cpu = used.ru_utime + used.ru_stime
    control.send(TAIL.pack(EXIT, job, status, 0, used.ru_maxrss, cpu))


def _child(jail: Jail) -> None:
    """Never returns. Whatever goes wrong before LOCKED is the jail's fault, not the program's."""
    jailed, _, most, late = jail
    try:
        closerange(len(SLOTS), 1024)
        for stream in SLOTS[:3]:
            set_inheritable(stream, True)
        setsid()
        request = wire.load_own(pread(REQUEST, lseek(REQUEST, 0, SEEK_END), 1))
        if jailed:
            _own_world(request["files"])
            SETRLIMIT(RLIMIT_NPROC, most)  # outside a jail it would count all of the user's
        SETRLIMIT(RLIMIT_CPU, (request["cpu_s"], request["cpu_s"]))
        if jailed:
            _lock(late)
    except BaseException as failure:
        os.write(2, repr(failure).encode())
        _exit(71)
    pwrite(REQUEST, LOCKED, 0)
    runner.run(request, FDS)
    _exit(0)


def _own_world(files: bool) -> None:
    """Places to write of its own where it needs them, and a user namespace of its own, so that
    its processes are counted apart from all others'."""
    if files:
        _check(UNSHARE(NEWNS), "unshare mounts")
        for folder, size in ((b"/tmp", b"size=64m,mode=777"), (b"/dev/shm", b"size=16m,mode=777")):
            _check(MOUNT(b"tmpfs", folder, b"tmpfs", MS_NOSUID_NODEV, size), "mount tmpfs")
        os.chdir("/tmp")
    _check(UNSHARE(NEWUSER), "unshare user")


def _lock(late: bytes) -> None:
    """No capabilities, and the filter over what the zygote's own left open."""
    _check(CAPSET(CAPABILITIES, NONE), "capset")
    _check(PRCTL(PR_SET_SECCOMP, 2, late, 0, 0), "seccomp")


def limit(limits: dict[str, int]) -> int:
    """What all forks have in common, set once, before them; how many processes each may have."""
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
    most = limits["processes"]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


def _laid_out(program: bytes) -> bytes:
    """The filter in the form the kernel takes, laid out once, before any fork."""
    steps = ctypes.create_string_buffer(program, len(program))
    KEPT.append(steps)
    return struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(steps))

"""What the host's /proc says of running executions: memory, time used, time spent waiting."""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import suppress
from typing import NamedTuple

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    bytes: int
    cpu_s: float
    tasks: int  # threads of all its processes


def pid_of(pidfd: int) -> int:
    """The process of a pidfd as this side numbers it; 0 when it is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}") as lines:
        for line in lines:
            if line.startswith("Pid:"):
                return max(0, int(line.split()[1]))
    return 0


def usage(roots: list[int]) -> dict[int, Usage]:
    """Memory and processor time of each root with all its descendants, in one walk of /proc."""
    children: dict[int, list[int]] = defaultdict(list)
    own: dict[int, Usage] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            pid = int(name)
            children[int(fields[1])].append(pid)
            cpu = (int(fields[11]) + int(fields[12])) / TICK
            own[pid] = Usage(int(fields[21]) * PAGE, cpu, int(fields[17]))
    return {root: _sum(root, children, own) for root in roots if root in own}


def _sum(root: int, children: dict[int, list[int]], own: dict[int, Usage]) -> Usage:
    total, stack = Usage(0, 0.0, 0), [root]
    while stack:
        pid = stack.pop()
        one = own.get(pid, Usage(0, 0.0, 0))
        total = Usage(total.bytes + one.bytes, total.cpu_s + one.cpu_s, total.tasks + one.tasks)
        stack += children.get(pid, [])
    return total


def waited(pid: int) -> float:
    """Seconds a process was ready to run and was not let; 0 where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0


def _kills() -> int:
    with suppress(OSError, ValueError, IndexError), open("/proc/vmstat") as lines:
        for line in lines:
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


_seen = [_kills()]


def out_of_memory() -> bool:
    """Whether the kernel has killed for want of memory since this was last asked. A program can
    have itself killed in other ways, and must not get off with a void for it."""
    before, _seen[0] = _seen[0], _kills()
    return _seen[0] > before

"""What became of one execution, read from what the kernel and the jail say, not the program."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sparring.judge.sandbox import procfs
from sparring.judge.sandbox.inside import wire
from sparring.judge.sandbox.inside.link import READY


@dataclass(frozen=True, slots=True)
class Limits:
    """What one execution may use."""

    timeout_s: float = 5.0
    memory_mb: int = 1024
    processes: int = 64
    files: int = 128
    output_bytes: int = 16 << 20

    def inside(self) -> dict[str, int]:
        return {
            "memory": self.memory_mb << 20,
            "processes": self.processes,
            "files": self.files,
            "output": self.output_bytes,
        }


class Exit(NamedTuple):
    """The zygote's wait4 result."""

    status: int
    error: int
    peak_kib: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Execution:
    """One finished run. `fail` is the program's doing; `void` is the jail's."""

    status: Literal["ok", "fail", "void"]
    kind: str = ""
    detail: str = ""
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    result: Any = None


class Files(NamedTuple):
    """The memory files of one execution, as descriptors on the host."""

    request: int
    result: int
    out: int
    err: int

    def close(self) -> None:
        for fd in set(self):
            os.close(fd)


RESULT_BYTES = 8 << 20  # what is parsed here, outside the jail
LARGE: dict[str, Any] = {"large": True}  # known by its identity, which no result can have


def execution(
    exit: Exit | None, killed: str, files: Files, limits: Limits, seconds: float, whole: bool
) -> Execution:
    """The ruling of the evidence. `whole` means a whole program, whose output is wanted."""
    if exit is None:
        return Execution("void", "jail", "the jail died", seconds=seconds)
    if exit.error:
        why = os.strerror(exit.error) if exit.error > 0 else "unknown"
        return Execution("void", "jail", f"the jail could not fork: {why}", seconds=seconds)
    progress = os.pread(files.request, 1, 0)
    if progress not in (b"L", b"C") and not killed:
        stderr = os.pread(files.err, 400, 0).decode(errors="replace")
        return Execution("void", "jail", f"the jail could not be locked: {stderr}", seconds=seconds)
    stdout = _text(files.out, limits.output_bytes) if whole else ""
    stderr = _text(files.err, limits.output_bytes) if whole else ""
    status, kind, detail, result = _ruling(exit, killed, files, limits, progress)
    code = os.waitstatus_to_exitcode(exit.status)
    return Execution(status, kind, detail, stdout, stderr, code, seconds, exit.cpu_s, result)


def _ruling(
    exit: Exit, killed: str, files: Files, limits: Limits, progress: bytes
) -> tuple[Literal["ok", "fail", "void"], str, str, Any]:
    if killed == "starved":
        return "void", "overloaded", "the machine gave the program no time to run", None
    size = os.fstat(files.result).st_size
    printed = max(os.fstat(fd).st_size for fd in {files.out, files.err})
    if printed >= limits.output_bytes:
        return "fail", "output limit", f"more than {limits.output_bytes} bytes of output", None
    if killed == "memory":
        return "fail", "memory", f"its processes used more than {limits.memory_mb} MB", None
    if killed and killed != "ended":
        idle_tests = os.pread(files.result, len(READY), 0) == READY
        return "fail", "time-out", f"not done after {killed} s", {"idle_tests": idle_tests}
    if size > RESULT_BYTES:
        return "fail", "output limit", f"a result of more than {RESULT_BYTES} bytes", LARGE
    result = None
    if size:
        try:
            result = wire.load(os.pread(files.result, size, 0))
        except wire.WireError as error:
            return "fail", "exception", f"the program's result is not data: {error}", None
        if type(result) is not dict:
            return "fail", "exception", "the program's result is not data", None
    if os.WIFSIGNALED(exit.status) and killed != "ended":
        return (*_signalled(os.WTERMSIG(exit.status), exit, limits), result)
    if result and "kind" in result:
        kind, detail = str(result["kind"])[:40], str(result.get("detail", ""))[:600]
        kind = kind if kind in KINDS else "exception"
        if kind == "syntax" and progress == b"C":  # it compiled; only the program can say this
            kind = "exception"
        return "fail", kind, detail, result
    if os.WIFEXITED(exit.status) and os.WEXITSTATUS(exit.status):
        code = os.WEXITSTATUS(exit.status)
        return "fail", "exception", f"the program ended with status {code}", result
    return "ok", "", "", result


KINDS = {"exception", "memory", "forbidden call", "output limit", "syntax"}


def _signalled(
    number: int, exit: Exit, limits: Limits
) -> tuple[Literal["ok", "fail", "void"], str, str]:
    if number == signal.SIGSYS:
        return "fail", "forbidden call", "a system call that the jail forbids"
    if number == signal.SIGXFSZ:
        return "fail", "output limit", f"more than {limits.output_bytes} bytes of output"
    if number in (signal.SIGXCPU, signal.SIGKILL) and exit.cpu_s >= limits.timeout_s:
        return "fail", "time-out", f"used {exit.cpu_s:.1f} s of processor time"
    if number == signal.SIGKILL and procfs.out_of_memory():
        if exit.peak_kib < (limits.memory_mb << 10) // 4:
            return "void", "overloaded", "the machine ran out of memory"
        return "fail", "memory", f"killed at {exit.peak_kib >> 10} MB"
    return "fail", "exception", f"the program died of {signal.Signals(number).name}"


def _text(fd: int, most: int) -> str:
    size = min(os.fstat(fd).st_size, most)
    return os.pread(fd, size, 0).decode("utf-8", errors="replace")

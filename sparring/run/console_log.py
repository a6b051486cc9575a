"""Keeps what a person saw of a run in its `console.log`: lines, warnings, errors and tracebacks of
all its lives. Progress bars are left out; their figures are there as lines."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

NAME = "console.log"
_CODES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BAR = "━"
_early: list[str] = []  # lines from before any run was known
_logs: dict[Path, _Log] = {}


class _Log:
    """The log of one folder. Nothing is written before the folder is known to be the run's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: TextIO | None = None
        self.waiting: list[str] = []

    def line(self, text: str) -> None:
        if self.file is None:
            self.waiting.append(text)
        else:
            self.file.write(f"{text}\n")
            self.file.flush()

    def begin(self) -> None:
        self.file = self.path.open("a", encoding="utf-8", errors="replace")
        command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
        waiting, self.waiting = self.waiting, []
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        for text in (f"── {now} · process {os.getpid()} · {command}", *waiting):
            self.line(text)


class _Tee:
    """A stream that passes everything on, and every whole line to the logs."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.begun = stream, ""

    def write(self, text: str) -> int:
        written: int = self.stream.write(text)
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            plain = _CODES.sub("", line).rpartition("\r")[2].rstrip()
            if plain and _BAR not in plain:
                note(plain)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def note(line: str) -> None:
    """A line for the logs alone."""
    for log in _logs.values():
        log.line(line)
    if not _logs and isinstance(sys.stdout, _Tee):
        _early.append(line)
        del _early[:-1000]


def install() -> None:
    """From now on, what is printed is seen by the logs."""
    for name in ("stdout", "stderr"):
        if not isinstance(getattr(sys, name), _Tee):
            setattr(sys, name, _Tee(getattr(sys, name)))


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """What is printed while this lasts is kept in the folder, once `begin` says that it may be."""
    key = Path(os.path.abspath(folder))
    if key in _logs:
        yield
        return
    streams = sys.stdout, sys.stderr
    install()
    log = _logs[key] = _Log(folder / NAME)
    log.waiting += _early
    _early.clear()
    try:
        yield
    except BaseException as error:
        _explain(log, error)
        raise
    finally:
        del _logs[key]
        sys.stdout, sys.stderr = streams
        if log.file is not None:
            log.file.close()


def begin(folder: Path) -> None:
    """The folder is the run's own: what was printed so far may be written there."""
    log = _logs.get(Path(os.path.abspath(folder)))
    if log is not None and log.file is None:
        log.begin()


def _explain(log: _Log, error: BaseException) -> None:
    """What ended the run: in a line where it was foreseen, with a traceback where it was not."""
    from sparring.core.errors import ConfigError
    from sparring.run.checkpoint import CheckpointError
    from sparring.run.rundir import RunError

    expected = (ConfigError, RunError, CheckpointError, OSError, KeyboardInterrupt, SystemExit)
    foreseen = isinstance(error, expected)
    lines = [f"sparring: {error}"] if foreseen else traceback.format_exception(error)
    for line in "".join(lines).splitlines():
        log.line(line)

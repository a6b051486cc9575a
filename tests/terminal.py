"""A command on a pseudo-terminal: what it prints, what is typed, Ctrl-C as a keyboard sends it."""

from __future__ import annotations

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fcntl import ioctl
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lives


class Terminal:
    def __init__(self, process: Any, fd: int) -> None:
        self.process, self.fd = process, fd
        self.text = ""

    def read(self, seconds: float) -> bool:
        """Take in what there is; whether anything may follow."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            part = os.read(self.fd, 1 << 16)
        except OSError:  # the other end is closed
            part = b""
        self.text += part.decode(errors="replace")
        return bool(part)

    def wait_for(self, words: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, f"{words!r} did not come:\n{self.text}"
            assert self.read(0.2) or words in self.text, f"it ended:\n{self.text}"

    def type(self, words: str) -> None:
        os.write(self.fd, words.encode())

    def press_control_c(self) -> None:
        self.type("\x03")

    def exit_code(self, seconds: float = 120) -> int:
        deadline = time.monotonic() + seconds
        while self.read(0.2) and time.monotonic() < deadline:
            pass
        return self.process.wait(max(1, deadline - time.monotonic()))


def _take_the_terminal() -> None:
    """So that Ctrl-C reaches the command, also where whoever started the tests ignores it."""
    ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _live_on(terminal: Connection, variables: dict[str, str]) -> None:
    """The `first` of a life whose streams are a terminal."""
    os.environ.update(variables)
    os.setsid()
    for number in range(3):
        os.dup2(terminal.fileno(), number)
    terminal.close()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    _take_the_terminal()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # as Python begins


@contextmanager
def on_terminal(words: Sequence[str], cwd: Path, columns: int = 80) -> Iterator[Terminal]:
    """A command of its own; `sparring …` is a life, which has nothing to import."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    variables = {"TERM": "xterm", "COLUMNS": str(columns)}
    if words[0] == "sparring":
        with Connection(os.dup(theirs)) as terminal:
            first = partial(_live_on, terminal, variables)
            process: Any = lives.begin(*words[1:], cwd=cwd, first=first)
    else:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, **variables},
            start_new_session=True,
            preexec_fn=_take_the_terminal,
        )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        os.close(ours)

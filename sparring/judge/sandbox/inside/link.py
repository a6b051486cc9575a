"""The wire between the process that holds the tests and the one that holds the program."""

from __future__ import annotations

import _thread
import os
import struct
from collections.abc import Callable
from typing import Any

from . import wire

SIZE = struct.Struct("=I")
MOST = 256 << 20  # bytes of a message; the memory of either side ends sooner as a rule
CHUNK = 1 << 16
# How far tests came, for when they do not end. Shorter than any result, so that none keeps an end.
READY, ASKED = b'{"asked":0}', b'{"asked":1}'


class TooLarge(Exception):
    """A message that would be longer than MOST."""


class LinkLost(BaseException):
    """The other side is gone or talks nonsense; no `except Exception` in a test may hide it."""


class Link:
    """Frames of JSON over a socket. Either side may ask while the other waits for an answer."""

    def __init__(self, fd: int, serve: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.fd, self.serve = fd, serve
        self.asked = 0
        self.mark = -1  # a descriptor to leave ASKED in when the first question is asked
        self.lock = _thread.RLock()
        self.ahead = b""  # bytes of the next message that came along with the last one

    def send(self, message: dict[str, Any]) -> None:
        raw = wire.dump(message)
        if len(raw) > MOST:
            raise TooLarge(f"a message of {len(raw)} bytes; the most is {MOST}")
        view = memoryview(SIZE.pack(len(raw)) + raw)
        try:
            while view:
                view = view[os.write(self.fd, view) :]
        except OSError as error:
            raise LinkLost(f"the other side is gone ({error})") from None

    def receive(self) -> dict[str, Any]:
        raw = self.ahead or self._read()
        while len(raw) < SIZE.size:
            raw += self._read()
        end = SIZE.size + SIZE.unpack_from(raw)[0]
        if end > MOST:
            raise LinkLost(f"a message of {end} bytes; the most is {MOST}")
        if len(raw) < end:
            parts, have = [raw], len(raw)
            while have < end:
                parts.append(self._read(min(end - have, 1 << 20)))
                have += len(parts[-1])
            raw = b"".join(parts)
        self.ahead = raw[end:]
        try:
            message = wire.load(raw[SIZE.size : end])
        except wire.WireError as error:
            raise LinkLost(str(error)) from None
        if type(message) is not dict:
            raise LinkLost("a message that is no object")
        return message

    def _read(self, size: int = CHUNK) -> bytes:
        try:
            part = os.read(self.fd, max(CHUNK, size))
        except OSError as error:
            raise LinkLost(str(error)) from None
        if not part:
            raise LinkLost("the other side ended")
        return part

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        with self.lock:  # threads take turns; who serves may ask in its turn
            self.asked += 1
            if self.mark >= 0:
                os.pwrite(self.mark, ASKED, 0)
                self.mark = -1
            self.send(message)
            while "op" in (answer := self.receive()):
                self.send(self.serve(answer))
            return answer

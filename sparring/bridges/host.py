"""Environments of other packages live in worker processes: they share global random state, print,
and may hang, and none of that may reach the run or another game."""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

Message = dict[str, Any]
WORKERS = max(1, min(4, os.cpu_count() or 1))
_START = 300.0  # seconds for a worker to import its package on a busy machine


class EnvironmentFailed(Exception):
    """An environment raised, or did not answer in time; the message says which."""


class Worker:
    """One process that answers one message at a time. `life` counts its starts: an environment
    that was opened in an earlier life has to be opened again."""

    def __init__(self, module: str) -> None:
        self.module, self.life = module, 0
        self.lock = threading.Lock()
        self.closed: list[int] = []  # environments that are no longer needed
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.life += 1
        self.closed.clear()
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        self.ask({"call": "hello"}, _START)

    def ask(self, message: Message, seconds: float) -> Any:
        """One answer. A worker that does not give it is killed."""
        assert self._process is not None and self._process.stdin and self._process.stdout
        closed, self.closed = self.closed, []
        try:
            self._process.stdin.write(json.dumps({**message, "closed": closed}).encode() + b"\n")
            self._process.stdin.flush()
            hung = not select.select([self._process.stdout], [], [], seconds)[0]
            line = b"" if hung else self._process.stdout.readline()
        except BrokenPipeError:
            hung, line = False, b""
        if not line:
            self.stop()
            raise EnvironmentFailed(f"hung for {seconds:g} s" if hung else "ended its process")
        answer = json.loads(line)
        if "error" in answer:
            raise EnvironmentFailed(answer["error"])
        return answer["result"]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@cache
def _workers(module: str) -> list[Worker]:
    return [Worker(module) for _ in range(WORKERS)]


_numbers = itertools.count()


class Environment:
    """One environment in a worker. If another one takes their worker down, the calls so far are
    made again in the next: environments are deterministic, so the result is the same."""

    def __init__(self, module: str, seconds: float, worker: int | None = None) -> None:
        self.number, self.seconds = next(_numbers), seconds
        chosen = self.number if worker is None else worker
        self._worker = _workers(module)[chosen % WORKERS]
        self._calls: list[Message] = []
        self._life = 0

    async def call(self, name: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self.call_now, name, **arguments)

    def call_now(self, name: str, **arguments: Any) -> Any:
        message = {"call": name, "environment": self.number, **arguments}
        with self._worker.lock:
            self._worker.start()
            if self._life != self._worker.life:
                for earlier in self._calls:
                    self._worker.ask(earlier, self.seconds)
                self._life = self._worker.life
            result = self._worker.ask(message, self.seconds)
            self._calls.append(message)
        return result

    def close(self) -> None:
        """The worker forgets the environment with the next message it gets."""
        self._worker.closed.append(self.number)


def serve(handlers: Mapping[str, Callable[..., Any]], close: Callable[[int], None]) -> None:
    """The worker's side: answers messages from its standard input until that ends. What an
    environment prints or asks its terminal for goes nowhere."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    for line in requests:
        message = json.loads(line)
        for number in message.pop("closed"):
            close(number)
        try:
            name = message.pop("call")
            answer = {"result": handlers[name](**message) if name != "hello" else None}
        except BaseException as error:  # SystemExit of an environment is its failure, not ours
            answer = {"error": f"{type(error).__name__}: {str(error).strip()[:500]}"}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()

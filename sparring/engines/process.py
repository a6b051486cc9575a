"""A worker in a second process of this machine, so that playing and learning do not share the
interpreter's lock. It is called as an actor of Ray's is, over a pair of sockets."""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from sparring.engines.engine import settle
from sparring.engines.worker import Make, Worker, portable

Arguments = Callable[[], tuple[Any, ...]]  # of a worker, as they are when it starts
_STOP_S = 10.0  # for judges and engine to stop, once nobody is there to play for


class WorkerExited(ConnectionError):
    """The worker's process has ended, or was never well."""


class Call:
    """What a worker will answer: awaited in an event loop, or waited for outside of one."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # an answer may come after nobody waits for it

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self.future).__await__()


class ProcessWorker:
    """A worker's process as it is seen from outside: `worker.NAME.remote(…)` calls a method. It is
    started by the first call: a run that is refused before has left nothing behind."""

    def __init__(self, arguments: Arguments, environment: Mapping[str, str]) -> None:
        self._arguments, self._environment = arguments, environment
        self._process: subprocess.Popen[bytes] | None = None
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._gone: WorkerExited | None = None
        # Messages may be larger than what a socket holds: nobody who computes waits for that.
        self._sender = ThreadPoolExecutor(1, "to-worker")

    def _start(self) -> subprocess.Popen[bytes]:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "sparring.engines.process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is the run's to answer
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **self._environment},
            )
        self._connection = Connection(ours.detach())
        self._sender.submit(self._send, pickle.dumps(self._arguments()))
        self._reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._reader.start()
        return process

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _Method(partial(self._call, name))

    def _call(self, method: str, *arguments: Any) -> Call:
        self._process = self._process or self._start()
        call = Call()
        message = pickle.dumps((number := next(self._numbers), method, arguments), protocol=5)
        with self._lock:
            if self._gone is not None:
                call.future.set_exception(self._gone)
                return call
            self._calls[number] = call
        self._sender.submit(self._send, message)
        return call

    def _send(self, message: bytes) -> None:
        try:
            self._connection.send_bytes(message)
        except OSError:  # the thread that reads says so to all who wait
            return

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        try:
            while True:
                number, answer = pickle.loads(self._connection.recv_bytes())
                settle(self._calls.pop(number).future, answer)
        except (EOFError, OSError):
            gone = WorkerExited(f"its process ended with exit code {process.wait()}")
        with self._lock:
            self._gone, calls, self._calls = gone, self._calls, {}
        for call in calls.values():
            call.future.set_exception(gone)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._reader.join()
        self._sender.shutdown()


class _Method:
    def __init__(self, remote: Any) -> None:
        self.remote = remote


class ProcessTransport:
    """One worker in one process."""

    lost: tuple[type[Exception], ...] = (WorkerExited,)
    host = "127.0.0.1"

    def __init__(self, make: Callable[[], Make], jail: str, environment: Mapping[str, str]) -> None:
        self._make, self._jail, self._environment = make, jail, environment

    def start(self, index: int) -> Any:
        folder = os.getcwd()
        return ProcessWorker(lambda: (self._make(), self._jail, folder), self._environment)

    def start_all(self) -> list[Any]:
        return [self.start(0)]

    def get(self, call: Any) -> Any:
        return call.future.result()

    def close(self, workers: Sequence[Any]) -> None:
        for worker in workers:
            worker.kill()


async def _serve(connection: Connection) -> None:
    """Answer calls until the other side is gone."""
    loop, sender = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    closed = asyncio.Event()
    worker: Worker | Exception
    try:
        worker = Worker(*pickle.loads(connection.recv_bytes()))
    except Exception as error:
        worker = portable(error)

    async def answer(number: int, method: str, arguments: tuple[Any, ...]) -> None:
        try:
            if isinstance(worker, Exception):
                raise worker
            result = getattr(worker, method)(*arguments)
            result = await result if asyncio.iscoroutine(result) else result
        except Exception as error:
            result = portable(error)
        sender.submit(connection.send_bytes, pickle.dumps((number, result), protocol=5))

    tasks: set[asyncio.Task[None]] = set()

    def begin(call: tuple[int, str, tuple[Any, ...]]) -> None:
        tasks.add(task := loop.create_task(answer(*call)))
        task.add_done_callback(tasks.discard)

    def read() -> None:
        try:
            while True:
                loop.call_soon_threadsafe(begin, pickle.loads(connection.recv_bytes()))
        except (EOFError, OSError):
            # Whatever does not stop in time is stopped by the end of this process.
            threading.Timer(_STOP_S, os._exit, (1,)).start()
            loop.call_soon_threadsafe(closed.set)

    threading.Thread(target=read, daemon=True).start()
    await closed.wait()
    if isinstance(worker, Worker):
        await worker.close()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve(Connection(int(sys.argv[1]))))

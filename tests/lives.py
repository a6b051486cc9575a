"""Runs as processes of their own, so that they can die. They are forked from a server that has the
heavy imports behind it, which makes a life cost a fraction of a second instead of many."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sparring as package
from sparring.run.rundir import RunDir, read_lines

# Of no use to a command: they belong to other processes. The server passes over what needs Triton.
ELSEWHERE = ("sparring.bridges.", "sparring.judge.sandbox.inside")
PRELOADED = [
    name
    for _, name, _ in pkgutil.walk_packages(package.__path__, "sparring.")
    if not name.startswith(ELSEWHERE) and not name.endswith(("__main__", "_inside"))
] + [
    "pytest",  # the main module of the tests, which multiprocessing imports in each life
    *("hypothesis.strategies", "rich._emoji_codes", "peft.utils.transformers_weight_conversion"),
    *("pandas", "pyarrow.parquet", "scipy.stats", "torch.utils.tensorboard"),
    "warm",
]
SMALL = (  # a run of Kuhn poker in a second or two, which begins to learn
    *("iterations=6", "collect.episodes=24", "learn.lr=3e-3", "checkpoint.every=2"),
    *("checkpoint.keep=2", "evaluate.every=3", "evaluate.games=4", "evaluate.final=0"),
    *("evaluate.ladder=0", "tracking.tensorboard=false", "guard.enabled=false"),
)


@dataclass(frozen=True)
class Moment:
    """The `count`-th time that the process touches a path with `part` in it."""

    part: str
    count: int = 1


@dataclass(frozen=True)
class Life:
    code: int  # as subprocess has it: minus the signal, if one ended it
    out: str
    err: str
    cpu_s: float  # processor time, children included; 0 where it was killed


class Begun:
    """A life under way: it has a pid, to be sent signals; `end` waits for it."""

    def __init__(self, process: Any, streams: tempfile.TemporaryDirectory[str]) -> None:
        self.process, self._streams = process, streams

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def line(self, start: str, seconds: float = 240) -> str:
        """The first line that it prints which begins so, once it is there."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.exitcode is None:
            for line in Path(self._streams.name, "stdout").read_text().splitlines(keepends=True):
                if line.startswith(start) and line.endswith("\n"):
                    return line.strip()
            time.sleep(0.02)
        raise AssertionError(self.end(0))

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float = 240) -> int:
        return self.end(seconds).code

    def end(self, seconds: float = 240) -> Life:
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        with self._streams as streams:
            out, err = (Path(streams, name).read_text() for name in ("stdout", "stderr"))
            cpu = Path(streams, "cpu_s")
            cpu_s = float(cpu.read_text()) if cpu.exists() else 0.0
        return Life(self.process.exitcode, out, err, cpu_s)


def begin(
    *words: object,
    cwd: Path,
    die_at: Moment | None = None,
    first: Callable[[], Any] | None = None,
    stdin: str = "",
    program: Path | None = None,
) -> Begun:
    """What `sparring words…` does, or `python program words…`, in a process; `first` is called in
    it before anything else."""
    streams = tempfile.TemporaryDirectory()
    for name, text in (("stdin", stdin), ("stdout", ""), ("stderr", "")):
        Path(streams.name, name).write_text(text)
    args = ([str(word) for word in words], str(cwd), streams.name, die_at, first, program)
    process = _server().Process(target=_live, args=args)
    process.start()
    return Begun(process, streams)


def sparring(*words: object, **options: Any) -> Life:
    """The same, to its end."""
    return begin(*words, **options).end()


class ForkedHelper:
    """In place of the Popen of a helper of `--processes`: a fork, which has nothing to import."""

    def __init__(self, command: Sequence[str], env: dict[str, str], **_: Any) -> None:
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=_help, args=(command[3:], env), daemon=True)
        self.process.start()
        self.terminate, self.kill = self.process.terminate, self.process.kill

    def wait(self, seconds: float | None = None) -> None:
        self.process.join(seconds)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("sparring", seconds or 0)


def _help(words: Sequence[str], env: dict[str, str]) -> None:
    os.setsid()
    os.environ.update(env)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from sparring.cli.app import main

    sys.argv = ["sparring", *words]
    main()


def helpers_are_forks() -> None:
    """The `first` of a life with `--processes`."""
    from sparring.launch import processes

    kept = {"DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
    processes.subprocess = SimpleNamespace(Popen=ForkedHelper, **kept)  # type: ignore[assignment]


def packages_of(site: Path) -> None:
    """The `first` of a life that finds the packages which are installed in this folder, too."""
    from sparring.core.plugin import plugins
    from sparring.run.config import config_class

    sys.path.insert(0, str(site))
    plugins.cache_clear()
    config_class.cache_clear()


def train(
    recipe: str,
    run: Path,
    *overrides: str,
    resume: bool = False,
    die_at: Moment | None = None,
    first: Callable[[], Any] | None = None,
) -> Life:
    """`sparring train --smoke`, small."""
    words = ["train", recipe, "--smoke", "--run", run, *(["--resume"] if resume else [])]
    return sparring(*words, *SMALL, *overrides, cwd=run.parent, die_at=die_at, first=first)


def facts(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run, less what is of one life: the clock, the memory, what workers got."""
    return [
        {k: v for k, v in line.items() if not k.endswith(("_s", "_gb")) and "pool/" not in k}
        for line in read_lines(run / "metrics.jsonl")
    ]


def whole(run: Path) -> dict[str, Any]:
    """Everything of a run that must not depend on how often it died: metrics, games, and the
    checksums of all it has learned."""
    folder = RunDir.existing(run)
    lines = facts(run)
    return {
        "metrics": lines,
        "episodes": [folder.read_episodes(line["iteration"]) for line in lines],
        "checkpoints": {
            p.parent.name: p.read_text() for p in folder.checkpoints.glob("step_*/manifest.json")
        },
        "best": os.path.realpath(folder.checkpoints / "best").rpartition("/")[2],
    }


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    return [e for e in read_lines(run / "events.jsonl") if e["event"] == kind]


COMMAND = str(Path(sys.executable).with_name("sparring"))


@cache
def _server() -> Any:
    start_server()
    return multiprocessing.get_context("forkserver")


def start_server() -> None:
    """It imports everything, which takes seconds, and is not waited for before it is needed."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    here, paths = str(Path(__file__).parent), os.environ.get("PYTHONPATH")
    sys.path.insert(0, here)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *([paths] if paths else [])])
    forkserver._forkserver.ensure_running()  # type: ignore[attr-defined]
    del os.environ["PYTHONPATH"]
    if paths is not None:
        os.environ["PYTHONPATH"] = paths


def fork_server() -> None:
    """The same server as a fork of this process, which has most of it imported."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    resource_tracker.ensure_running()
    with socket.socket(socket.AF_UNIX) as listener:
        address = connection.arbitrary_address("AF_UNIX")
        listener.bind(address)
        listener.listen()
        ended, alive = os.pipe()  # the server ends when nobody is left who could write into it
        server._forkserver_pid = os.fork()
        if server._forkserver_pid == 0:
            try:
                server._forkserver_pid = None
                os.close(alive)
                _without_pytest()
                forkserver.main(listener.fileno(), ended, PRELOADED)
            finally:
                os._exit(1)
        os.close(ended)
    server._forkserver_address, server._forkserver_alive_fd = address, alive


def _without_pytest() -> None:
    """What it has put in place of the interpreter's own, put back."""
    logging.root.handlers.clear()
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__


def share_server() -> None:
    """In a fork of the process that started it, which would ask whether its child still lives."""
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]


def _live(
    words: Sequence[str],
    cwd: str,
    streams: str,
    die_at: Moment | None = None,
    first: Callable[[], Any] | None = None,
    program: Path | None = None,
) -> None:
    os.chdir(cwd)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(f"{streams}/{name}", os.O_CREAT | os.O_WRONLY), number)
    sys.stdin = open(f"{streams}/stdin")  # noqa: SIM115
    if first is not None:
        first()
    if die_at is not None:
        sys.addaudithook(_death(die_at))
    from sparring.cli.app import main

    sys.argv = [str(program or "sparring"), *words]
    try:
        runpy.run_path(str(program), run_name="__main__") if program else main()
    finally:
        Path(streams, "cpu_s").write_text(str(sum(os.times()[:4])))


def _death(moment: Moment) -> Callable[[str, tuple[Any, ...]], None]:
    touched = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal touched
        if event == "open" or (event.startswith(("os.", "shutil.")) and event != "os.kill"):
            touched += any(moment.part in str(arg) for arg in args)
            if touched >= moment.count:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook

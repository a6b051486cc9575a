"""`pytest --workers N`: files of tests in N processes that are forked from the one which collected
them. Torch, transformers and the tests are imported once, where pytest-xdist's processes import all
of it each: ten seconds of processor time apiece, and as much again for the server of `lives.py`."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import lives
import pytest

FORK: Any = multiprocessing.get_context("fork")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="N", help="files in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    files: dict[Path, list[pytest.Item]] = {}
    for item in session.items:
        files.setdefault(item.path, []).append(item)
    queue = Queue(list(files.values()))
    gc.collect()
    gc.freeze()  # what was imported and collected stays: no process has to look through it again
    lives.fork_server()
    workers = [Worker(session, queue) for _ in range(min(count, len(files)))]
    try:
        while workers:
            wait([at for worker in workers for at in (worker.reports, worker.process.sentinel)])
            for worker in [*workers]:
                worker.pass_on()
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if worker.process.exitcode is not None:
                    worker.pass_on()
                    workers.remove(worker)
                    if not worker.done:
                        worker.report_death()
                        workers.append(Worker(session, queue))
    finally:
        for worker in workers:
            worker.process.kill()
    return True


class Queue:
    """Files in their order, each of them taken by one process."""

    def __init__(self, files: list[list[pytest.Item]]) -> None:
        self.files, self._taken = files, FORK.Value("i", 0)

    def take(self) -> list[pytest.Item]:
        with self._taken.get_lock():
            at = self._taken.value
            self._taken.value += 1
        return self.files[at] if at < len(self.files) else []


class Worker:
    """A process, seen from the one that prints."""

    started = 0

    def __init__(self, session: pytest.Session, queue: Queue) -> None:
        Worker.started += 1
        self.config, self.running, self.done = session.config, "", False
        factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        folder = factory.getbasetemp() / f"worker-{Worker.started}"
        self.reports, other = FORK.Pipe(duplex=False)
        self.process = FORK.Process(target=_work, args=(session, queue, other, folder))
        self.process.start()
        other.close()

    def pass_on(self) -> None:
        """What its tests came to, to whatever prints and counts."""
        while self.reports.poll():
            try:
                kind, data = self.reports.recv()
            except EOFError:
                return
            if kind != "report":
                self.running, self.done = data, kind == "done"
                continue
            hook = self.config.hook
            report = hook.pytest_report_from_serializable(config=self.config, data=data)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)

    def report_death(self) -> None:
        if not self.running:
            raise RuntimeError("a process died between two tests; its errors are above")
        path = self.running.partition("::")[0]
        told = f"the process of this test died (exit code {self.process.exitcode}); "
        told += f"the tests after it in {path} were not run"
        location = (path, None, self.running)
        report = pytest.TestReport(self.running, location, {}, "failed", told, "call")
        self.config.hook.pytest_runtest_logreport(report=report)


class Reports:
    """The plug-in of a worker that hands on its reports."""

    def __init__(self, config: pytest.Config, to: Connection) -> None:
        self.config, self.to = config, to

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.to.send(("running", nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.to.send(("report", data))


def _work(session: pytest.Session, queue: Queue, to: Connection, folder: Path) -> None:
    config: Any = session.config
    lives.share_server()
    reporter = config.pluginmanager.getplugin("terminalreporter")
    reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115 (the first process prints)
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # a file that all of them would write into
    capture.start_global_capturing()
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder
    config.pluginmanager.register(Reports(config, to))
    while items := queue.take():
        for item, following in zip(items, [*items[1:], None], strict=True):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    to.send(("done", ""))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)  # what tests have left behind is not waited for longer
    atexit._run_exitfuncs()
    os._exit(0)

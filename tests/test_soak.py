"""The soak at its shortest: each disturbance once, then the run must be the one left alone. With
SPARRING_FULL=1 it takes three minutes, as `make soak` does."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from lives import _live, _server

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "soak.py"
SMALL = (
    "games={kuhn: {style: terse}, code_execution: {style: terse, timeout_s: 5, max_tokens: 2}}",
    *("collect.episodes=8", "opponents.every=1", "evaluate.every=2", "evaluate.games=2"),
    *("evaluate.final=0", "engine.max_batch=8"),
)
FULL = os.environ.get("SPARRING_FULL") == "1"
pytestmark = pytest.mark.timeout(1800 if FULL else 300)


class Forked:
    """A command in a process forked from one that has the imports behind it, used like a Popen."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        streams = log.with_suffix(f".{len(list(log.parent.glob('*.streams')))}.streams")
        streams.mkdir()
        (streams / "stdin").touch()
        log.unlink(missing_ok=True)
        log.symlink_to(streams / "stdout")
        args = ([str(word) for word in words], str(log.parent), str(streams))
        self.process = _server().Process(target=_live, args=args)
        self.process.start()
        self.pid: int = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None) -> None:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("sparring", timeout or 0)


def test_disturbed_run_comes_to_what_one_left_alone_does(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if FULL:
        report = module.soak(tmp_path, 180)
    else:
        report = module.soak(tmp_path, 0, gap_s=0.2, changes=SMALL, start=Forked)
    assert report["passed"], report
    assert {"kill", "judge"} <= set(report["disturbances"])
    assert report["games"] == report["iterations"] * (48 if FULL else 8)
    assert report["view"]["answers"][200] > 4

"""Nodes of a job on Ray: who outlives a signal, and who leaves with whom. A job of two nodes is run
in test_slurm.py."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sparring.engines.ray import connect
from sparring.launch import ray_node
from sparring.run.interrupt import SIGNALS
from sparring.run.sections import RayConfig


def test_ray_outlives_the_signals_that_ask_a_job_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm sends them to every process, and the run still needs its replicas to leave in order."""
    stand_in = tmp_path / "ray"
    stand_in.write_text("#!/bin/sh\nexec sleep 600\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    process = ray_node._start([])
    for number in SIGNALS:
        process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    ray_node._stop(process)
    assert process.returncode == -signal.SIGKILL


def test_a_node_leaves_when_the_first_one_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    started, words = list[subprocess.Popen[bytes]](), list[str]()
    first = socket.create_server(("127.0.0.1", 0))
    port = str(first.getsockname()[1])

    def start(asked: list[str]) -> subprocess.Popen[bytes]:
        words.extend(asked)
        started.append(subprocess.Popen(["sleep", "600"], process_group=0))
        first.close()  # joined; and the first node leaves
        return started[0]

    monkeypatch.setattr(ray_node, "_start", start)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        assert ray_node.main(["--head", "127.0.0.1", "--port", port]) == 0
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert words == [f"--address=127.0.0.1:{port}"]
    assert started[0].returncode == -signal.SIGKILL


def test_the_handlers_of_a_run_outlive_those_that_ray_puts_in_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray = pytest.importorskip("ray", reason="pip install 'sparring[ray]'")
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **words: signal.signal(signal.SIGTERM, signal.SIG_DFL))

    def leave(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, leave)
    try:
        connect(RayConfig(), gpus=0)
        assert signal.getsignal(signal.SIGTERM) is leave
    finally:
        signal.signal(signal.SIGTERM, before)

"""One node of a job that runs on Ray: the first starts the cluster, waits for the others and runs
the command; the others join and stay until the first has left."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run.interrupt import SIGNALS

_WAIT_S = 300.0  # for all nodes to join


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    command = [word for word in asked.command if word != "--"]
    if asked.head.split(".")[0] != socket.gethostname().split(".")[0]:
        return _join(asked)
    with _started(["--head", f"--port={asked.port}", "--include-dashboard=false"]):
        address = f"{socket.gethostbyname(socket.gethostname())}:{asked.port}"
        try:
            _wait_for_nodes(address, asked.nodes)
        except ConfigError as error:
            print(f"sparring: {error}", file=sys.stderr)
            return 2
        replicas = asked.nodes * max(1, asked.gpus)
        command = [*command, f"ray.address={address}", f"ray.replicas={replicas}"]
        process = subprocess.Popen([sys.executable, "-m", "sparring", *command])
        for number in SIGNALS:  # they are for the run, which leaves in good order
            signal.signal(number, lambda n, frame: process.send_signal(_passed_on(n)))
        return process.wait()


def _passed_on(number: int) -> int:
    """Ctrl-C reaches the run by itself; passed on as SIGTERM it is the same request, as a second
    SIGINT it would be another."""
    return signal.SIGTERM if number == signal.SIGINT else number


def _join(asked: Any) -> int:
    """Stay while the first node does; a signal is its business, not this node's."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        joined = subprocess.run(_start([f"--address={asked.head}:{asked.port}", "--block"]))
        if joined.returncode == 0:
            break
        time.sleep(2)  # the first node is not up yet, or has left
    return 0


@contextmanager
def _started(words: list[str]) -> Iterator[None]:
    """The time in which Ray runs on this node."""
    process = subprocess.Popen(_start([*words, "--block"]), stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(words: list[str]) -> list[str]:
    return [os.path.join(os.path.dirname(sys.executable), "ray"), "start", *words]


def _wait_for_nodes(address: str, nodes: int) -> None:
    import ray

    until = time.monotonic() + _WAIT_S
    joined = 0
    while time.monotonic() < until:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            joined = sum(node["Alive"] for node in ray.nodes())
            ray.shutdown()
        except (ConnectionError, RuntimeError, ValueError):
            joined = 0
        if joined >= nodes:
            return
        time.sleep(1)
    raise ConfigError(
        f"{joined} of {nodes} nodes joined the Ray cluster at {address} within {_WAIT_S:.0f} s: is "
        "the port open between the nodes?"
    )


if __name__ == "__main__":
    sys.exit(main())

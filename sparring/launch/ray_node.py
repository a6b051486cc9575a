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
from contextlib import suppress
from typing import Any

from sparring.core.errors import ConfigError
from sparring.launch.node import own_name
from sparring.run.interrupt import SIGNALS

_WAIT_S = 300.0  # for all nodes to join
_ABSENCES = 3  # times in a row that the first node does not answer, after which it has left


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--head", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    command = [word for word in asked.command if word != "--"]
    if asked.head.split(".")[0] != own_name():
        return _join(asked)
    ray = _start(["--head", f"--port={asked.port}", "--include-dashboard=false"])
    try:
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
    finally:
        _stop(ray)


def _passed_on(number: int) -> int:
    """Ctrl-C reaches the run by itself; passed on as SIGTERM it is the same request, as a second
    SIGINT it would be another."""
    return signal.SIGTERM if number == signal.SIGINT else number


def _join(asked: Any) -> int:
    """Stay while the first node does; a signal is its business, not this node's."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    until, absences = time.monotonic() + _WAIT_S, 0
    ray: subprocess.Popen[bytes] | None = None
    while absences < _ABSENCES and (ray is not None or time.monotonic() < until):
        if _reachable(asked.head, asked.port):
            absences = 0
            if ray is None or ray.poll() is not None:
                ray = _start([f"--address={asked.head}:{asked.port}"])
        elif ray is not None:  # before it has been seen, the first node is not up yet
            absences += 1
        time.sleep(1)
    if ray is not None:
        _stop(ray)
    return 0


def _reachable(head: str, port: int) -> bool:
    try:
        socket.create_connection((head, port), timeout=10).close()
    except OSError:
        return False
    return True


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    """Ray on this node. Slurm signals every process of a job, and Ray's would leave at once, in the
    middle of what the run ends first: to them the signals that ask to leave are blocked."""
    command = [os.path.join(os.path.dirname(sys.executable), "ray"), "start", "--block", *words]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stop(ray: subprocess.Popen[bytes]) -> None:
    """Workers end with the processes that are killed here."""
    with suppress(ProcessLookupError):
        os.killpg(ray.pid, signal.SIGKILL)
    ray.wait()


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

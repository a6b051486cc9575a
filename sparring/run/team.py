"""Starts the processes that learn beside the first one, and tells which of them this is."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from pathlib import Path

from sparring.run.config import Config, ConfigError

_KEYS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def helps() -> bool:
    """Whether this process is one that a launcher started beside the first."""
    return int(os.environ.get("RANK", "0")) > 0


def help_learn(config: Config, folder: Path) -> None:
    from sparring.learn.team import help_learn as learn

    learn(config, folder)


def start_helpers(processes: int, config: Config) -> None:
    """Run this very command in further processes; they end with this one."""
    several = processes > 1 or int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and config.pipeline != "loop":
        raise ConfigError(f"{config.pipeline} learns in one process; leave --processes out")
    if processes == 1:
        return
    if os.environ.get("WORLD_SIZE"):
        raise ConfigError(
            "a launcher has started this process already (WORLD_SIZE is set): say how many "
            "processes there, not with --processes"
        )
    values = ("0", "0", str(processes), "127.0.0.1", str(_free_port()))
    os.environ |= dict(zip(_KEYS, values, strict=True))
    started = []
    for rank in range(1, processes):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        words = _without_processes(sys.argv[1:])
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "sparring", *words],
                env=os.environ | place,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        )
    atexit.register(_end, started)


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """They leave when they are told; those that were not told, because this one fell, are ended."""
    for process in started:
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _without_processes(words: list[str]) -> list[str]:
    kept, skip = [], False
    for word in words:
        if not skip and word != "--processes" and not word.startswith("--processes="):
            kept.append(word)
        skip = word == "--processes"
    return kept


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

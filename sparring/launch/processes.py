"""Starts the processes that learn beside the first one, and tells which of them this is."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # every command looks here, and --help must answer at once
    from sparring.run.config import Config

_PARENT = "SPARRING_PARENT"
_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def refuse_several(command: str) -> None:
    """Refuse to be one of several copies of a command that works in one process."""
    sizes = {name: os.environ.get(name, "") for name in _SIZES}
    several = next((n for n, v in sizes.items() if v.isdigit() and int(v) > 1), "")
    if several:
        from sparring.core.errors import ConfigError

        raise ConfigError(
            f"`sparring {command}` works in one process, and a launcher has started "
            f"{sizes[several]} ({several} is set): start it without the launcher"
        )


def helps() -> bool:
    """Whether this process is one that a launcher started beside the first. One that another run
    of this command started dies with it, however that ends."""
    if os.environ.get(_PARENT) and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != int(os.environ[_PARENT]):
            sys.exit(1)
    return int(os.environ.get("RANK", "0")) > 0


def help_learn(config: Config, folder: Path) -> None:
    from sparring.learn.distributed.distributed_learner import help_learn as learn

    with _ends_with_the_first():
        learn(config, folder)


def help_fit(device: str) -> None:
    from sparring.training.finetune import help_fit as fit

    with _ends_with_the_first():
        fit(device)


@contextmanager
def _ends_with_the_first() -> Iterator[None]:
    """A helper that loses the first process says so in a line: that one has said why it left."""
    from torch.distributed import DistError

    try:
        yield
    except DistError as error:
        reason = str(error).partition(".")[0]
        sys.exit(f"sparring: process {os.environ['RANK']} lost the first one: {reason}")


def start_helpers(processes: int) -> None:
    """Run this very command in further processes, which `helps` tells apart by their rank; they end
    with this one."""
    if processes == 1:
        return
    from sparring.core.errors import ConfigError
    from sparring.run.outputs import listen

    if os.environ.get("WORLD_SIZE"):
        raise ConfigError(
            "a launcher has started this process already (WORLD_SIZE is set): say how many "
            "processes there, not with --processes"
        )
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(processes)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = []
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # frames of C++ when the first one leaves
    for rank in range(1, processes):
        position = {"RANK": str(rank), "LOCAL_RANK": str(rank), _PARENT: str(os.getpid())}
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "sparring", *sys.argv[1:]],
                env=os.environ | position,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the first process
            )
        )
    atexit.register(_end, started)


@contextmanager
def process_group(processes: int, device: str) -> Iterator[bool]:
    """Fitting to demonstrations or pairs by so many processes; whether this one is the first, which
    does the rest of the work."""
    if helps():
        help_fit(device)
        yield False
        return
    start_helpers(processes)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield True
        return
    from sparring.training.finetune import leading

    with leading(device):
        yield True


def _end(started: list[subprocess.Popen[bytes]]) -> None:
    """Helpers at work ignore the signal and leave when the first process says so; those that are
    still starting end by it, and those that were never told, because this one fell, are killed."""
    for process in started:
        process.terminate()
    for process in started:
        try:
            process.wait(5)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.kill()
            process.wait()

"""Looks at one node of a job before anything is written: the same package, the GPUs that were asked
for, a port that is free. `python -m sparring.launch.node` runs it on every node."""

from __future__ import annotations

import argparse
import os
import socket
import sys
from importlib import metadata

from sparring.core.errors import ConfigError
from sparring.run.outputs import listen


def problems(version: str, gpus: int, visible_gpus: int, port_in_use: int | None) -> list[str]:
    """What stands in the way here, each with what to do."""
    reasons = []
    here = metadata.version("sparring")
    if here != version:
        reasons.append(
            f"sparring {here} is installed here and the job was made with {version}: install the "
            "same on all nodes, or keep the environment on a disk they share"
        )
    if visible_gpus < gpus:
        reasons.append(
            f"{gpus} GPUs were asked for and torch sees {visible_gpus}: choose another "
            "--partition, or install a torch that fits the driver"
        )
    if port_in_use is not None:
        reasons.append(f"port {port_in_use} is in use by something else: submit again")
    return reasons


def port_is_free(port: int) -> bool:
    try:
        listen("", port).close()
    except ConfigError:
        return False
    return True


def own_name() -> str:
    """This node as Slurm calls it, which need not be how the machine calls itself."""
    return (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).split(".")[0]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--head", default="")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args(words)
    gpus = 0
    if asked.gpus:
        import torch

        gpus = torch.cuda.device_count()
    here = own_name()
    is_head = asked.head.split(".")[0] == here
    taken = asked.port if asked.port and is_head and not port_is_free(asked.port) else None
    reasons = problems(asked.version, asked.gpus, gpus, taken)
    for problem in reasons:
        print(f"sparring: on {here}: {problem}", file=sys.stderr)
    return 2 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())

"""A real Slurm of one node, in a folder of its own, for as long as a test lasts."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
# cred_expire is also how long a requeued job must wait: two minutes by default.
_CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=100000
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
KillWait=30
InactiveLimit=0
MinJobAge=300
ReturnToService=2
SlurmdTimeout=300
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=low Nodes={host} Default=YES PriorityTier=1 MaxTime=60 OverSubscribe=NO GraceTime=30
PartitionName=high Nodes={host} PriorityTier=10 MaxTime=60 OverSubscribe=NO PreemptMode=off
"""


def missing() -> str:
    """Why there can be no Slurm here, or nothing."""
    found = [name for name in NEEDED if _which(name) is None]
    if found:
        return f"{', '.join(found)} missing: apt-get install slurm-wlm munge"
    return ""


@contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` and its kin speak to this cluster."""
    import getpass

    host, cores = socket.gethostname().split(".")[0], os.cpu_count() or 1
    for name in ("state", "spool"):
        (folder / name).mkdir()
    folder.chmod(0o755)  # munged looks at every folder above its socket
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    config = folder / "slurm.conf"
    text = _CONFIG.format(
        host=host, folder=folder, user=getpass.getuser(), ports=_ports(2), cores=cores
    )
    config.write_text(text)
    environment = {**os.environ, "SLURM_CONF": str(config)}
    munge = [f"--{n}-file={folder}/munge.{n}" for n in ("key", "log", "pid", "seed")]
    with ExitStack() as stack:
        for command in (
            ["munged", "-F", "--force", f"--socket={folder}/munge.socket", *munge],
            ["slurmctld", "-D", "-i", "-f", str(config)],
            ["slurmd", "-D", "-N", host, "-f", str(config)],
        ):
            stack.enter_context(_daemon(command, folder, environment))
            if command[0] == "munged":
                _until(lambda: (folder / "munge.socket").exists(), "munged", folder)
        _until(lambda: "idle" in _say(["sinfo", "-h", "-o", "%T"], environment), "Slurm", folder)
        try:
            yield environment
        finally:
            _say(["scancel", "--full", "-u", getpass.getuser()], environment)
            _until(lambda: not _say(["squeue", "-h"], environment).strip(), "squeue", folder, 40)


@contextmanager
def _daemon(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[None]:
    name = command[0]
    with (folder / f"{name}.out").open("w") as out:
        process = subprocess.Popen(
            [_which(name) or name, *command[1:]], stdout=out, stderr=out, env=environment
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _say(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=30
    ).stdout


def _until(done: object, what: str, folder: Path, seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        if time.monotonic() > until:
            logs = "\n".join(p.read_text()[-800:] for p in folder.glob("*.out"))
            raise RuntimeError(f"{what} did not come up: {logs}")
        time.sleep(0.1)


def _ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found

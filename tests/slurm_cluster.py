"""A real Slurm in a folder of its own, for as long as a test lasts: of one node, which is this
machine, or of several, each in namespaces of its own with its own name, address, /dev/shm and
/tmp/ray."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

CLIENTS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
NEEDED = ("munged", "slurmctld", "slurmd", *CLIENTS)
NETWORK = "10.213.97"  # that of several nodes, which nothing outside can reach
# cred_expire is also how long a requeued job must wait: two minutes by default.
_CONFIG = """\
ClusterName=tests
SlurmctldHost={host}({address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
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
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 MaxTime=60 OverSubscribe=NO GraceTime=30
PartitionName=high Nodes=ALL PriorityTier=10 MaxTime=60 OverSubscribe=NO PreemptMode=off
"""


_UNSHARE = ("unshare", "--net", "--mount", "--uts", "sh", "-ec")


def missing(nodes: int = 1) -> str:
    """Why there can be no Slurm of so many nodes here, or nothing."""
    absent = [name for name in NEEDED if _which(name) is None]
    if absent:
        return f"{', '.join(absent)} missing: apt-get install slurm-wlm munge"
    if nodes > 1:
        script = "ip link add b0 type bridge; ip link add v0 type veth; mount -t tmpfs t /mnt"
        try:
            subprocess.run([*_UNSHARE, script], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", "") or str(error)
            return f"several nodes need root, iproute2 and namespaces: {reason.strip()}"
    return ""


@contextmanager
def cluster(folder: Path, nodes: int = 1) -> Iterator[dict[str, str]]:
    """The environment in which `sbatch` and its kin speak to this cluster."""
    several = nodes > 1
    host = "head" if several else socket.gethostname().split(".")[0]
    names = [f"node{n}" for n in range(1, nodes + 1)] if several else [host]
    addresses = [f"{NETWORK}.{n + 1}" if several else "127.0.0.1" for n in range(nodes + 1)]
    _write_files(folder, host, names, addresses)
    config = folder / "slurm.conf"
    environment = {**os.environ, "SLURM_CONF": str(config)}
    munge = [f"--{n}-file={folder}/munge.{n}" for n in ("key", "log", "pid", "seed")]
    with ExitStack() as stack:

        def start(command: list[str], within: Sequence[str] = (), name: str = "") -> int:
            daemon = _daemon([*within, *command], folder / f"{command[0]}{name}.out", environment)
            return stack.enter_context(daemon)

        start(["munged", "-F", "--force", f"--socket={folder}/munge.socket", *munge])
        _until(lambda: (folder / "munge.socket").exists(), "munged", folder)
        enter: list[list[str]] = [[] for _ in addresses]
        if several:
            enter = _machines(start, folder, [host, *names], addresses)
            environment["PATH"] = f"{_clients(folder, enter[0])}:{environment['PATH']}"
        start(["slurmctld", "-D", "-i", "-f", str(config)], enter[0])
        for name, within in zip(names, enter[1:], strict=True):
            start(["slurmd", "-D", "-N", name, "-f", str(config)], within, name)
        idle = ["sinfo", "-h", "-N", "-p", "low", "-t", "idle", "-o", "%N"]
        _until(lambda: len(_say(idle, environment).split()) == nodes, "Slurm", folder)
        try:
            yield environment
        finally:
            _say(["scancel", "--full", "-u", getpass.getuser()], environment)
            _until(lambda: not _say(["squeue", "-h"], environment).strip(), "squeue", folder, 90)


def _write_files(folder: Path, host: str, names: list[str], addresses: list[str]) -> None:
    (folder / "state").mkdir()
    folder.chmod(0o755)  # munged looks at every folder above its socket
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    known = zip(["localhost", host, *names], ["127.0.0.1", *addresses], strict=True)
    (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in known))
    nodes = [
        f"NodeName={name} NodeAddr={address} CPUs={os.cpu_count() or 1} State=UNKNOWN"
        for name, address in zip(names, addresses[1:], strict=True)
    ]
    text = _CONFIG.format(
        host=host, address=addresses[0], folder=folder, user=getpass.getuser(), ports=_ports(2),
        nodes="\n".join(nodes),
    )  # fmt: skip
    (folder / "slurm.conf").write_text(text)


def _machines(
    start: Callable[..., int], folder: Path, names: list[str], addresses: list[str]
) -> list[list[str]]:
    """Namespaces that stand for machines on one network, whose switch is in the first; for each,
    what a command begins with that is to run there."""
    script = f"""
        mount --bind {shlex.quote(str(folder))}/hosts /etc/hosts
        mount -t tmpfs tmpfs /dev/shm
        mkdir -p /tmp/ray
        mount -t tmpfs tmpfs /tmp/ray
        ip link set lo up
        hostname $0
        touch {shlex.quote(str(folder))}/$0.up
        exec sleep infinity"""
    pids = [start([*_UNSHARE, script, name], (), f".{name}") for name in names]
    _until(lambda: all((folder / f"{name}.up").exists() for name in names), "namespaces", folder)
    enter = [["nsenter", "-t", str(pid), "--net", "--mount", "--uts"] for pid in pids]
    links = ["ip link add lan type bridge", f"ip addr add {addresses[0]}/24 dev lan"]
    links += ["ip link set lan up"]
    for n, pid in enumerate(pids[1:], 1):
        links += [
            f"ip link add port{n} type veth peer name eth0 netns {pid}",
            f"ip link set port{n} master lan up",
        ]
    subprocess.run([*enter[0], "sh", "-ec", "\n".join(links)], check=True)
    for within, address in zip(enter[1:], addresses[1:], strict=True):
        own = f"ip addr add {address}/24 dev eth0; ip link set eth0 up"
        subprocess.run([*within, "sh", "-ec", own], check=True)
    return enter


def _clients(folder: Path, enter: list[str]) -> Path:
    """Slurm's commands, run where the controller can be reached."""
    (folder / "bin").mkdir()
    for name in CLIENTS:
        path = folder / "bin" / name
        command = shlex.join([*enter, f"--wd={os.sep}", _which(name) or name])
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)
    return folder / "bin"


@contextmanager
def _daemon(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[int]:
    with log.open("w") as out:
        command[0] = _which(command[0]) or command[0]
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        try:
            yield process.pid
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


def _until(done: Callable[[], bool], what: str, folder: Path, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not done():
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

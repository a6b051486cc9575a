"""Runs on a Slurm cluster: one batch script that starts a recipe on its nodes, leaves in good order
before the limit or when it is preempted, and goes on by itself when it is started again."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal, get_args

from sparring.core.errors import ConfigError
from sparring.run.config import Config
from sparring.run.interrupt import AGAIN

Launcher = Literal["plain", "accelerate", "ray"]
LAUNCHERS = get_args(Launcher)
_TIME = re.compile(r"(\d+-)?\d+(:\d{1,2}){0,2}")
_PORTS = (20000, 20000)  # the first, and how many: each job has one of its own


@dataclass(frozen=True)
class BatchJob:
    """What is asked of Slurm, and what is to run there."""

    recipe: str
    run: Path
    overrides: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int = 0  # per node
    time: str = "24:00:00"
    partition: str = ""
    account: str = ""
    cpus: int = 0  # per node; 0: what the cluster gives
    launcher: Launcher = "plain"
    warn_s: int = 300  # how long before the limit the run gets a signal to stop
    smoke: bool = False
    more: tuple[str, ...] = field(default_factory=tuple)  # further words for #SBATCH

    @property
    def tasks(self) -> int:
        """Per node: one for each GPU that learns, or one that starts the rest."""
        return max(1, self.gpus) if self.launcher == "accelerate" else 1

    @property
    def logs(self) -> Path:
        """Beside the run, whose folder is its own."""
        return self.run.with_name(f"{self.run.name}.slurm")


def check(job: BatchJob) -> None:
    if not _TIME.fullmatch(job.time):
        raise ConfigError(
            f"--time {job.time!r} is no time of Slurm's; write minutes, HH:MM:SS or D-HH:MM:SS"
        )
    if job.launcher == "plain" and job.nodes > 1:
        raise ConfigError(
            f"{job.nodes} nodes need something that starts on all of them: "
            "--launcher accelerate (the learner on many GPUs) or ray (rollouts on many machines)"
        )


def check_recipe(job: BatchJob, config: Config) -> None:
    """Refuse what the job's launcher cannot run, before it waits in a queue to be refused."""
    several = job.launcher == "accelerate" and job.nodes * job.tasks > 1
    reason = ""
    if config.pipeline != "loop" and job.launcher == "ray":
        reason = f"{config.pipeline} has no replicas to spread: say --launcher accelerate"
    elif config.pipeline != "loop" and config.learn.shard:
        reason = "learn.shard is for the loop: leave it out"
    elif several and config.collect.ahead:
        reason = "collect.ahead is for one process that learns: leave it out, or say --gpus 1"
    elif several and config.bases:
        reason = "bases of their own are for one process: say --gpus 1"
    elif config.learn.shard and not several:
        reason = "learn.shard shards weights over processes: say --gpus"
    if reason:
        raise ConfigError(f"{job.recipe} cannot run that way: {reason}")


def script(job: BatchJob, python: str = sys.executable) -> str:
    """The batch script, which can be read, kept and submitted by hand."""
    head = [f"#SBATCH {line}" for line in _directives(job)]
    return "\n".join(["#!/bin/bash", *head, "", *_prologue(job, python), *_body(job), *_EPILOGUE])


def _directives(job: BatchJob) -> list[str]:
    directives = [
        f"--job-name=sparring-{job.run.name}",
        f"--nodes={job.nodes}",
        f"--ntasks-per-node={job.tasks}",
        f"--time={job.time}",
        "--requeue",  # preempted, it goes back to the queue
        "--open-mode=append",  # and its later lives write on in the same log
        f"--signal=B:USR1@{job.warn_s}",
        f"--output={job.logs.resolve()}/%j.log",
    ]
    if job.gpus:
        directives.append(f"--gpus-per-node={job.gpus}")
    if job.cpus:
        directives.append(f"--cpus-per-task={job.cpus}")
    directives += [f"--partition={job.partition}"] if job.partition else []
    directives += [f"--account={job.account}"] if job.account else []
    return [*directives, *job.more]


def _prologue(job: BatchJob, python: str) -> list[str]:
    """Find the first node and a port, and look at every node before anything is written."""
    words = ["train", job.recipe, *job.overrides, "--run", str(job.run.resolve()), "--resume"]
    words += ["--smoke"] if job.smoke else []
    first, many = _PORTS
    return [
        "set -u",
        f"cd {shlex.quote(str(Path.cwd()))}",
        f"python={shlex.quote(python)}",
        f"words=({shlex.join(words)})",
        f"port=$(({first} + SLURM_JOB_ID % {many}))",
        'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        'echo "job $SLURM_JOB_ID, life $((${SLURM_RESTART_COUNT:-0} + 1)), on $SLURM_JOB_NODELIST"',
        f'srun --ntasks-per-node=1 --ntasks={job.nodes} "$python" -m sparring.launch.node '
        f"--version {metadata.version('sparring')} --gpus {job.gpus} "
        '--head "$head" --port "$port" || exit 2',
        "",
    ]


def _body(job: BatchJob) -> list[str]:
    """Start it in the background: bash hears a signal only while it waits."""
    if job.launcher == "accelerate":
        # A task of Slurm's per process: it hears signals itself, and its exit code is kept.
        return [
            "export MASTER_ADDR=$head MASTER_PORT=$port WORLD_SIZE=$SLURM_NTASKS",
            "export learn='RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec \"$@\"'",
            'srun bash -c "$learn" sparring "$python" -m sparring "${words[@]}" &',
        ]
    if job.launcher == "ray":
        return [
            # Ray asks for a token where it finds one in the user's home, and only there: the job
            # has its own, for all of its nodes.
            '[ -n "${RAY_AUTH_MODE:-}" ] || export RAY_AUTH_MODE=token '
            'RAY_AUTH_TOKEN="$(od -An -N32 -tx1 /dev/urandom | tr -dc 0-9a-f)"',
            'srun "$python" -m sparring.launch.ray_node --head "$head" --port "$port" '
            f'--nodes {job.nodes} --gpus {job.gpus} -- "${{words[@]}}" &',
        ]
    return ['srun "$python" -m sparring "${words[@]}" &']


_EPILOGUE = [
    "step=$!",
    # Before the limit Slurm tells this shell, which tells the step; a job that is preempted or
    # cancelled reaches all its steps.
    """trap 'scancel --signal=USR1 "$SLURM_JOB_ID"' USR1""",
    "trap : TERM",
    'wait "$step"; code=$?',
    # A signal ends the wait, not the step, which is then waited for again.
    'while [ "$code" -gt 128 ] && kill -0 "$step" 2>/dev/null; do wait "$step"; code=$?; done',
    'if [ "$code" -gt 128 ]; then wait "$step" 2>/dev/null; last=$?; fi',
    '[ "${last:-127}" = 127 ] || code=$last',
    # Slurm puts back what it had to kill, but not what left by itself; and never what a person
    # has cancelled, which is no longer running when it gets here.
    'state=$(squeue -h -j "$SLURM_JOB_ID" -o %T)',
    f'if [ "$code" = {AGAIN} ] && [ "$state" = RUNNING ]; then',
    '  echo "left in good order; back to the queue"',
    '  scontrol requeue "$SLURM_JOB_ID"',
    "fi",
    'exit "$code"',
    "",
]


def submit(job: BatchJob) -> str:
    """Submit it; the job's number. What Slurm refuses raises before anything is written."""
    check(job)
    text = script(job)
    need_slurm()
    _sbatch(text, "--test-only")
    job.logs.mkdir(parents=True, exist_ok=True)
    (job.logs / "job.sh").write_text(text)
    return _sbatch(text, "--parsable").split(";")[0].strip()


def need_slurm() -> None:
    if shutil.which("sbatch") is None:
        raise ConfigError(
            "there is no sbatch here: submit from a machine of the cluster, or write the script "
            "with --dry-run and take it there"
        )


def _sbatch(text: str, *words: str) -> str:
    done = subprocess.run(
        ["sbatch", *words], input=text, capture_output=True, text=True, timeout=60
    )
    if done.returncode:
        reason = done.stderr.strip().replace("sbatch: ", "").replace("error: ", "")
        raise ConfigError(
            f"Slurm refuses the job: {reason}. `sinfo` shows what there is; --partition, --gpus, "
            "--time and --account say what is asked for"
        )
    return done.stdout

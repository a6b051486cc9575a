"""Jobs of Slurm's: the script that is written, and a real Slurm that runs it, of one node and of
two."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import slurm_cluster
from lives import COMMAND, SMALL, begin, events, facts, sparring, train

from sparring.core.errors import ConfigError
from sparring.launch import node
from sparring.launch.slurm import BatchJob, check, script, submit
from sparring.run import interrupt

ITERATIONS = 60  # some seconds, so that a signal finds the run at work
LONG = (
    f"iterations={ITERATIONS}",
    "collect.episodes=8",
    "checkpoint.every=100",
    "evaluate.every=100",
)


def bash_accepts(text: str) -> bool:
    return subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_the_script_asks_for_what_was_asked_and_resumes_by_itself(tmp_path: Path) -> None:
    job = BatchJob(
        "kuhn", tmp_path / "run", ("seed=3", "games={kuhn: {style: terse}}"), gpus=4,
        time="2-00:00:00", partition="long", account="lab", cpus=32, warn_s=120,
        more=("--constraint=a100",),
    )  # fmt: skip
    text = script(job, "/env/bin/python")
    for line in (
        *("--nodes=1", "--gpus-per-node=4", "--time=2-00:00:00", "--partition=long"),
        *("--account=lab", "--cpus-per-task=32", "--requeue", "--signal=B:USR1@120"),
        *("--constraint=a100", f"--output={tmp_path}/run.slurm/%j.log"),
    ):
        assert f"#SBATCH {line}\n" in text
    assert f"train kuhn seed=3 'games={{kuhn: {{style: terse}}}}' --run {tmp_path}/run" in text
    assert "--resume" in text and "scontrol requeue" in text and bash_accepts(text)


@pytest.mark.parametrize(
    ("launcher", "said"),
    [
        ("accelerate", "#SBATCH --ntasks-per-node=2\n"),
        ("accelerate", "RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec"),
        ("ray", "RAY_AUTH_MODE=token RAY_AUTH_TOKEN="),
        ("ray", 'ray_node --head "$head" --port "$port" --nodes 3 --gpus 2 -- "${words[@]}"'),
    ],
)
def test_several_nodes_are_started_by_a_launcher(tmp_path: Path, launcher: str, said: str) -> None:
    job = BatchJob("kuhn", tmp_path / "run", nodes=3, gpus=2, launcher=launcher)  # type: ignore[arg-type]
    text = script(job)
    assert said in text and bash_accepts(text)
    with pytest.raises(ConfigError, match="--launcher"):
        check(BatchJob("kuhn", tmp_path / "run", nodes=3))


def test_a_dry_run_prints_and_writes_nothing(tmp_path: Path) -> None:
    life = sparring("submit", "kuhn", "--dry-run", "--gpus", 1, "--time", "90", cwd=tmp_path)
    assert life.code == 0 and life.out.startswith("#!/bin/bash\n#SBATCH --job-name=sparring-kuhn")
    life = sparring("submit", "coherent-math", "--dry-run", "--gpus", 8, cwd=tmp_path)
    assert life.code == 0 and "--ntasks-per-node=8" in life.out
    for words, said in (
        (["kuhn", "--time", "soon"], "no time of Slurm's"),
        (["kuhn", "lern.lr=1"], "did you mean 'learn'?"),
        (["kuhn", "--launcher", "rai"], "did you mean 'ray'?"),
        (["coherent-math", "--launcher", "ray"], "say --launcher accelerate"),
        (["coherent-math", "learn.shard=true"], "learn.shard is for the loop"),
        (["kuhn", "collect.ahead=1", "--gpus", 2], "collect.ahead is for one process"),
    ):
        life = sparring("submit", *words, cwd=tmp_path)
        assert life.code == 2 and said in life.err
    assert list(tmp_path.iterdir()) == []


def test_without_slurm_it_is_said_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no sbatch here.*--dry-run"):
        submit(BatchJob("kuhn", tmp_path / "run"))
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_does_not_fit_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    here = socket.gethostname()
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ["--version", "0.0.1", "--gpus", "99", "--head", here, "--port", port]
        assert node.main(words) == 2
    said = capsys.readouterr().err
    assert "the job was made with 0.0.1" in said and "99 GPUs were asked for" in said
    assert f"port {port} is in use" in said
    from importlib import metadata

    assert node.main(["--version", metadata.version("sparring"), "--head", here]) == 0


def test_a_signal_ends_the_iteration_writes_a_checkpoint_and_asks_for_another_life(
    tmp_path: Path,
) -> None:
    words = ["train", "kuhn", "--smoke", *SMALL, *LONG, "--run", tmp_path / "run"]
    life = begin(*words, cwd=tmp_path)
    wait_for(lambda: len(facts(tmp_path / "run")) >= 2 or life.process.exitcode is not None)
    os.kill(life.pid, signal.SIGUSR1)
    left = life.end()
    assert left.code == interrupt.AGAIN, left.err
    assert "SIGUSR1 came" in left.err and "--resume" in left.err
    done = len(facts(tmp_path / "run"))
    assert 2 <= done < ITERATIONS
    assert (tmp_path / "run" / "checkpoints" / f"step_{done:06d}").is_dir()


def wait_for(done: Callable[[], object], log: Path | None = None, seconds: float = 240) -> None:
    until = time.monotonic() + seconds
    while not done():
        text = log.read_text() if log and log.exists() else ""
        assert time.monotonic() < until, f"it did not come: {text}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    yield from running_slurm(tmp_path_factory, 1)


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    yield from running_slurm(tmp_path_factory, 2)


def running_slurm(tmp_path_factory: pytest.TempPathFactory, nodes: int) -> Iterator[dict[str, str]]:
    reason = slurm_cluster.missing(nodes)
    if reason:
        pytest.skip(f"no Slurm of {nodes} nodes here: {reason}")
    started = slurm_cluster.cluster(tmp_path_factory.mktemp("slurm"), nodes)
    try:
        environment = started.__enter__()
    except RuntimeError as error:
        pytest.skip(f"Slurm is installed and did not start: {error}")
    yield {**environment, "OMP_NUM_THREADS": "1"}
    started.__exit__(None, None, None)


def say(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def preempt_once(environment: dict[str, str], run: Path, *words: str) -> str:
    """Submit a job, have Slurm preempt it in the middle, and wait for its end: its log."""
    keys = [*SMALL, *LONG, "--smoke", "--run", str(run), "--time", "10", "--cpus", "1"]
    submitted = say(environment, COMMAND, "submit", "kuhn", *keys, *words)
    number = submitted.split(";")[0].removeprefix("job ")
    log = run.with_name("run.slurm") / f"{number}.log"
    ask = partial(say, environment)
    wait_for(lambda: run.exists() and len(facts(run)) >= 2, log)
    writer = json.loads((run / ".lock").read_text())["pid"]
    os.kill(writer, signal.SIGSTOP)  # a fast machine would be done before Slurm preempts it
    ask("sbatch", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "true")
    wait_for(lambda: "PreemptTime=None" not in ask("scontrol", "show", "job", number), log)
    os.kill(writer, signal.SIGCONT)
    wait_for(lambda: "life 2" in log.read_text(), log)
    wait_for(lambda: state(ask, number) in ENDED, log)
    return log.read_text()


FULL = os.environ.get("SPARRING_FULL") == "1"


def test_what_slurm_refuses_is_said_and_nothing_written(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    words = [COMMAND, "submit", "kuhn", "--smoke", "--run", str(tmp_path / "run"), "--gpus", "8"]
    refused = subprocess.run(words, env=slurm, capture_output=True, text=True)
    assert refused.returncode == 2 and "Slurm refuses the job" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_slurm_preempts_has_another_life(slurm: dict[str, str], tmp_path: Path) -> None:
    """With a stand-in for Python, which leaves as a run does when it is asked to."""
    stand_in, calls = tmp_path / "python", tmp_path / "calls"
    stand_in.write_text(
        "#!/bin/bash\n"
        f'[ "$2" = sparring.launch.node ] && exec {sys.executable} "$@"\n'
        f'echo "$@" >> {calls}\n'
        '[ "${SLURM_RESTART_COUNT:-0}" = 1 ] && exit 0\n'
        f"trap 'echo SIGTERM came; exit {interrupt.AGAIN}' TERM\n"
        "while true; do sleep 0.1; done\n"
    )
    stand_in.chmod(0o755)
    job = BatchJob("kuhn", tmp_path / "run", time="10", cpus=1)
    job.logs.mkdir()
    (tmp_path / "job.sh").write_text(script(job, str(stand_in)))
    ask = partial(say, slurm)
    number = ask("sbatch", "--parsable", str(tmp_path / "job.sh")).split(";")[0].strip()
    log = job.logs / f"{number}.log"
    wait_for(calls.exists, log)
    ask("sbatch", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "true")
    wait_for(lambda: state(ask, number) in ENDED, log)
    said = log.read_text()
    assert state(ask, number) == "COMPLETED" and "SIGTERM came" in said and "life 2" in said, said
    assert calls.read_text().count(f"--run {tmp_path}/run --resume") == 2


@pytest.mark.skipif(not FULL, reason="SPARRING_FULL=1 preempts a run; above it is a stand-in")
def test_a_job_that_slurm_preempts_once_equals_one_that_was_left_alone(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    log = preempt_once(slurm, run)
    assert "SIGTERM came" in log and len(events(run, "resumed")) == 1
    life = train("kuhn", tmp_path / "alone", *LONG)
    assert life.code == 0, life.err
    assert facts(run) == facts(tmp_path / "alone") and len(facts(run)) == ITERATIONS


@pytest.mark.skipif(
    not FULL, reason="minutes of processor time: SPARRING_FULL=1 preempts jobs of two nodes"
)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("launcher", ["accelerate", "ray"])
def test_a_job_of_two_nodes_that_is_preempted_once_equals_a_run_left_alone(
    two_nodes: dict[str, str], tmp_path: Path, launcher: str
) -> None:
    run, alone = tmp_path / "run", tmp_path / "alone"
    log = preempt_once(two_nodes, run, "--nodes", "2", "--launcher", launcher)
    assert "life 1, on node[1-2]" in log and "SIGTERM came" in log, log
    assert len(events(run, "resumed")) == 1
    processes = ["--processes", "2"] if launcher == "accelerate" else []
    words = ["train", "kuhn", "--smoke", *SMALL, *LONG, "--run", str(alone), *processes]
    say(two_nodes, COMMAND, *words)
    played = [{k: v for k, v in line.items() if not k.startswith("pool/")} for line in facts(run)]
    assert played == facts(alone) and len(played) == ITERATIONS


def test_processes_of_a_job_of_two_nodes_know_their_rank_and_the_first_node(
    two_nodes: dict[str, str], tmp_path: Path
) -> None:
    """What takes minutes with a model above, with a stand-in for Python that says where it is."""
    stand_in = tmp_path / "python"
    stand_in.write_text(
        "#!/bin/bash\n"
        f'[ "$2" = sparring.launch.node ] && exec {sys.executable} "$@"\n'
        'echo "rank $RANK of $WORLD_SIZE on $(hostname), first $MASTER_ADDR: $(getent hosts '
        '"$MASTER_ADDR" | cut -d" " -f1)"\n'
    )
    stand_in.chmod(0o755)
    job = BatchJob("kuhn", tmp_path / "run", nodes=2, launcher="accelerate", time="10")
    job.logs.mkdir()
    (tmp_path / "job.sh").write_text(script(job, str(stand_in)))
    say(two_nodes, "sbatch", "--wait", str(tmp_path / "job.sh"))
    (log,) = job.logs.glob("*.log")
    first = f"first node1: {slurm_cluster.NETWORK}.2"
    lines = sorted(line for line in log.read_text().splitlines() if line.startswith("rank"))
    assert lines == [f"rank {n} of 2 on node{n + 1}, {first}" for n in range(2)], log.read_text()


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def state(ask: Callable[..., str], number: str) -> str:
    return ask("squeue", "-h", "-j", number, "-t", "all", "-o", "%T").strip()

"""Jobs of Slurm's: the script that is written, and a real Slurm of one node that runs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import slurm_cluster
from lives import COMMAND, SMALL, events, facts, sparring, train

from sparring.core.errors import ConfigError
from sparring.launch import node
from sparring.launch.slurm import BatchJob, check, script, submit
from sparring.run import interrupt

ITERATIONS = 100  # some seconds, so that a signal finds the run at work
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
    command = [COMMAND, "train", "kuhn", "--smoke", *SMALL, *LONG, "--run", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: len(facts(tmp_path / "run")) >= 2 or process.poll() is not None)
    process.send_signal(signal.SIGUSR1)
    _, said = process.communicate(timeout=60)
    assert process.returncode == interrupt.AGAIN, said
    assert b"SIGUSR1 came" in said and b"--resume" in said
    done = len(facts(tmp_path / "run"))
    assert 2 <= done < ITERATIONS
    assert (tmp_path / "run" / "checkpoints" / f"step_{done:06d}").is_dir()


def wait_for(done: Callable[[], object], seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    reason = slurm_cluster.missing()
    if reason:
        pytest.skip(f"no Slurm here: {reason}")
    folder = tmp_path_factory.mktemp("slurm")
    try:
        started = slurm_cluster.cluster(folder)
        environment = started.__enter__()
    except RuntimeError as error:
        pytest.skip(f"Slurm is installed and did not start: {error}")
    yield environment
    started.__exit__(None, None, None)


def test_a_job_that_slurm_preempts_once_equals_one_that_was_left_alone(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    run, keys = tmp_path / "run", [*SMALL, *LONG]
    words = ["submit", "kuhn", "--smoke", "--run", str(run), "--time", "10", "--cpus", "1", *keys]
    environment = {**slurm, "OMP_NUM_THREADS": "1"}

    def say(*command: str) -> str:
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    refused = subprocess.run(
        [COMMAND, *words, "--gpus", "8"], env=environment, capture_output=True, text=True
    )
    assert refused.returncode == 2 and "Slurm refuses the job" in refused.stderr
    assert list(tmp_path.iterdir()) == []

    number = say(COMMAND, *words).split(";")[0].removeprefix("job ")
    log = tmp_path / "run.slurm" / f"{number}.log"
    wait_for(lambda: run.exists() and len(facts(run)) >= 2)
    writer = json.loads((run / ".lock").read_text())["pid"]
    os.kill(writer, signal.SIGSTOP)  # a fast machine would be done before Slurm preempts it
    say("sbatch", "-p", "high", "--exclusive", "-o", "/dev/null", "--wrap", "true")
    wait_for(lambda: "PreemptTime=None" not in say("scontrol", "show", "job", number))
    os.kill(writer, signal.SIGCONT)
    wait_for(lambda: "life 2" in log.read_text())
    wait_for(lambda: state(say, number) in ENDED)
    assert "life 2" in log.read_text() and "SIGTERM came" in log.read_text()
    assert len(events(run, "resumed")) == 1
    life = train("kuhn", tmp_path / "alone", *LONG)
    assert life.code == 0, life.err
    assert facts(run) == facts(tmp_path / "alone") and len(facts(run)) == ITERATIONS


ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def state(say: Callable[..., str], number: str) -> str:
    return say("squeue", "-h", "-j", number, "-t", "all", "-o", "%T").strip()

"""Two processes learn what one learns; only the first of them writes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from lives import _server, facts, helpers_are_forks, sparring, train
from safetensors.torch import load_file

from sparring.core.errors import ConfigError
from sparring.core.types import Sample
from sparring.launch.processes import _end
from sparring.learn.distributed.distributed_learner import check_shard
from sparring.learn.distributed.world import World
from sparring.run.config import LearnConfig, load_recipe

KINDS = {
    "full": LearnConfig(weights="full", lr=1e-2, minibatches=2, epochs=2),
    "lora": LearnConfig(weights="lora", lora_r=4, lr=1e-2, kl=0.1, aggregation="grpo"),
    "accumulated": LearnConfig(weights="lora", lora_r=4, lr=1e-2, tokens_per_batch=24),
    "restarted": LearnConfig(weights="full", lr=1e-2, minibatches=2, restart=True),
}


def learn(
    config: LearnConfig, samples: list[Sample], world: World, spread: bool = False
) -> dict[str, Any]:
    """Two iterations of a learner on nano, the second after its state was saved and loaded: its
    numbers, and the weights it comes to."""
    from sparring.learn.distributed.distributed_learner import spread_out
    from sparring.learn.learner import Learner
    from sparring.models.policies import load_policies

    torch.manual_seed(0)
    policies = load_policies("nano", config, seed=0)
    learner = Learner(policies, ["main"], config)
    learner.world = world
    if spread:
        spread_out(learner)
    stats = [learner.fit(samples, 0, 2)]
    kept = {f: {k: t.clone() for k, t in part.items()} for f, part in learner.state().items()}
    learner.load(kept)
    stats.append(learner.fit(samples, 1, 2))
    return {"stats": stats, "weights": {k: p.clone() for k, p in policies.state("main").items()}}


def join(rank: int, port: int, size: int = 2) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def member(rank: int, port: int, kind: str, spread: bool, samples: Any, out: str) -> None:
    join(rank, port)
    torch.save(learn(KINDS[kind], samples, World(2), spread), f"{out}/{rank}.pt")
    torch.distributed.destroy_process_group()


@contextmanager
def several_processes(target: Callable[..., None], *args: Any, size: int = 2) -> Iterator[None]:
    """`target` in several processes, which end well."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    started = [_server().Process(target=target, args=(n, port, *args)) for n in range(size)]
    for process in started:
        process.start()
    yield
    for process in started:
        process.join(120)
        assert process.exitcode == 0


@pytest.mark.parametrize("spread", [False, True], ids=["ddp", "fsdp2"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_two_processes_learn_what_one_learns(
    tmp_path: Path, make_samples: Callable[..., list[Sample]], kind: str, spread: bool
) -> None:
    samples = make_samples(7)
    with several_processes(member, kind, spread, samples, str(tmp_path)):
        alone = learn(KINDS[kind], samples, World())
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first["stats"] == second["stats"]  # and so they decide alike
    for mine, theirs in zip(first["stats"], alone["stats"], strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4, abs=1e-6)
    assert first["stats"][0]["learn/loss"] != first["stats"][1]["learn/loss"]
    for key, weight in first["weights"].items():
        assert torch.equal(weight, second["weights"][key])
    assert_weights_close(first["weights"], alone["weights"])


def assert_weights_close(mine: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    """Sums in another order: equal but for the last digits, which Adam's division can swell where a
    gradient is next to nothing: in one weight of ten thousand, by a quarter of a step."""
    assert set(mine) == set(theirs)
    for key, weight in theirs.items():
        off = (mine[key] - weight).abs()
        swollen = off > 2e-4 + 1e-3 * weight.abs()
        assert int(swollen.sum()) <= max(1, weight.numel() // 10_000), key
        assert float(off.max()) < 2.5e-3, key


def led(rank: int, port: int, samples: Any, out: str) -> None:
    """The first process fits twice, as a run does; the other does what it says."""
    from sparring.learn.distributed.distributed_learner import DistributedLearner, spread_out
    from sparring.models.policies import load_policies

    join(rank, port)
    policies = load_policies("nano", KINDS["restarted"], seed=0)
    learner = DistributedLearner(policies, ["main"], KINDS["restarted"])
    learner.world = World(2)
    spread_out(learner)
    if learner.leads:
        torch.save([learner.fit(samples, i, 2) for i in range(2)], f"{out}/stats.pt")
        learner.dismiss()
    else:
        learner.serve()
    torch.distributed.destroy_process_group()


def test_sharded_weights_that_begin_anew_are_kept_by_all_at_once(
    tmp_path: Path, make_samples: Callable[..., list[Sample]]
) -> None:
    samples = make_samples(7)
    with several_processes(led, samples, str(tmp_path)):
        alone = learn(KINDS["restarted"], samples, World())
    for mine, theirs in zip(torch.load(tmp_path / "stats.pt"), alone["stats"], strict=True):
        assert mine == pytest.approx(theirs, rel=2e-4, abs=1e-6)


SHARDED = LearnConfig(weights="full", lr=1e-2, minibatches=2)


def second_step(samples: list[Sample], folder: Path, world: World, first: bool) -> None:
    """The second of two iterations: by a learner that has done the first and leaves a checkpoint
    of it, or by one that loads that checkpoint. Its metrics and weights are kept."""
    from sparring.learn.distributed.distributed_learner import spread_out
    from sparring.learn.learner import Learner
    from sparring.models.policies import load_policies
    from sparring.run import checkpoint

    policies = load_policies("nano", SHARDED, seed=0)
    learner = Learner(policies, ["main"], SHARDED)
    learner.world = world
    if world.size > 1:
        spread_out(learner)
    if first:
        learner.fit(samples, 0, 2)
        tensors = learner.state()  # put together from all processes' parts
        if world.rank == 0:
            checkpoint.save(folder, 1, tensors, {})
    else:
        learner.load(checkpoint.load(folder, 1)[0])
    stats = learner.fit(samples, 1, 2)
    torch.save((stats, policies.state("main")), folder / f"{world.size}.{world.rank}.pt")


def second_step_member(rank: int, port: int, size: int, samples: Any, out: Path) -> None:
    join(rank, port, size)
    second_step(samples, out, World(size), size == 4)
    torch.distributed.destroy_process_group()


def test_a_checkpoint_of_four_processes_with_sharded_weights_goes_on_with_one_and_with_two(
    tmp_path: Path, make_samples: Callable[..., list[Sample]]
) -> None:
    samples = make_samples(7)
    with several_processes(second_step_member, 4, samples, tmp_path, size=4):
        pass
    with several_processes(second_step_member, 2, samples, tmp_path):
        second_step(samples, tmp_path, World(), first=False)
    stats, weights = torch.load(tmp_path / "4.0.pt")
    for size in (1, 2):
        other_stats, other_weights = torch.load(tmp_path / f"{size}.0.pt")
        assert other_stats == pytest.approx(stats, rel=2e-4, abs=1e-6)
        assert_weights_close(other_weights, weights)


def test_a_run_on_two_processes_has_one_writer_and_the_metrics_of_one(tmp_path: Path) -> None:
    keys = ("iterations=3", "learn.lr=1e-3", "learn.kl=0", "checkpoint.every=3")
    words = ("train", "kuhn", "--smoke", *SMALL_RUN, *keys)
    life = sparring(*words, "--run", "two", "--processes", 2, cwd=tmp_path, first=one_thread)
    assert life.code == 0, life.err
    life = sparring(*words, "--run", "one", cwd=tmp_path)
    assert life.code == 0, life.err
    two, one = facts(tmp_path / "two"), facts(tmp_path / "one")
    assert len(two) == len(one) == 3
    for mine, theirs in zip(two, one, strict=True):
        numbers = {k: v for k, v in theirs.items() if isinstance(v, int | float)}
        assert {k: mine[k] for k in numbers} == pytest.approx(numbers, rel=1e-3, abs=1e-5)
    files = [{p.name for p in (tmp_path / run).rglob("*")} for run in ("one", "two")]
    assert files[0] == files[1]


SMALL_RUN = (
    *("collect.episodes=24", "evaluate.every=3", "evaluate.games=4", "evaluate.final=0"),
    *("evaluate.ladder=0", "tracking.tensorboard=false", "guard.enabled=false"),
)


def one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"


def test_launchers_do_not_nest(tmp_path: Path) -> None:
    life = train("kuhn", tmp_path / "run", "--processes=2", first=as_if_launched)
    assert life.code == 2 and "say how many processes there" in life.err
    assert not (tmp_path / "run").exists()


def as_if_launched() -> None:
    os.environ |= {"WORLD_SIZE": "2", "RANK": "0"}


def test_helpers_that_are_still_starting_are_not_waited_for() -> None:
    process = subprocess.Popen(["sleep", "60"])
    _end([process])
    assert process.returncode == -signal.SIGTERM


def test_spread_weights_are_refused_where_somebody_would_need_them_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(said: str, *keys: str) -> None:
        with pytest.raises(ConfigError, match=said):
            check_shard(load_recipe("kuhn", ["learn.shard=true", *keys]))

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    refused("--processes", "ray.replicas=2")
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused(r"ray\.replicas")
    refused("moving reference", "ray.replicas=2")
    refused("critic", "ray.replicas=2", "learn.reference=base", "credit.kind=gae")
    check_shard(load_recipe("kuhn", ["learn.shard=true", "ray.replicas=2", "learn.reference=base"]))


DATA = "".join(
    json.dumps({"system_prompt": "", "user_prompt": f"after {i}?", "output": f"{i + 1}"}) + "\n"
    for i in range(13)
)
PAIRS = "".join(
    json.dumps({"question": f"after {i}?", "chosen": f"#### {i + 1}", "rejected": f"#### {i}"})
    + "\n"
    for i in range(7)
)


def test_two_processes_finetune_as_one_does(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(DATA)
    words = ("finetune", "--model", "nano", "--data", "data.jsonl", "--epochs", 2, "--batch", 4)
    words += ("--lora-dropout", 0, "--lr", 1e-2, "--out")
    life = sparring(*words, "two", "--processes", 2, cwd=tmp_path, first=helpers_are_forks)
    assert life.code == 0, life.err
    life = sparring(*words, "one", cwd=tmp_path)
    assert life.code == 0, life.err
    assert_fitted_alike(tmp_path / "two", tmp_path / "one")


def learn_by_phases(folder: Path, helper: bool = False) -> None:
    """What `train coherent-math` and `math sft`, `math dpo` learn, one learner after the other."""
    from sparring.pipelines.coherent_math import phases
    from sparring.training.finetune import help_fit, leading

    if helper:
        help_fit("cpu")
        return
    (folder / "pairs.jsonl").write_text(PAIRS)
    keys = ("learn.lora_dropout=0", "learn.lr=1e-2", "learn.batch=4", "learn.warmup=0")
    small = ("math.sft.epochs=2", "math.sft.batch=2", "tasks.limit=5", "iterations=2")
    config = load_recipe("coherent-math", [*keys, *small], smoke=True)
    with leading("cpu"):
        phases.sft(config, folder / "sft")
        model = str(folder / "sft" / "merged")
        phases.dpo(config, model, folder / "pairs.jsonl", folder / "dpo")


def phases_member(rank: int, port: int, folder: Path) -> None:
    join(rank, port)
    learn_by_phases(folder, helper=rank > 0)


def test_two_processes_go_through_the_phases_as_one_does(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    with several_processes(phases_member, two):
        learn_by_phases(one)
    for run in ("sft/lora", "dpo"):
        assert_fitted_alike(two / run, one / run)


def assert_fitted_alike(two: Path, one: Path) -> None:
    """The losses, files and weights of one process."""
    lines, expected = facts(two), facts(one)
    assert len(lines) == 2 and expected[0]["learn/loss"] != expected[1]["learn/loss"]
    for mine, theirs in zip(lines, expected, strict=True):
        for line in (mine, theirs):  # of DPO: the share of margins above 0, where they begin
            line.pop("learn/accuracy", None)
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    weights, wanted = (
        load_file(run / "adapter" / "adapter_model.safetensors") for run in (two, one)
    )
    assert_weights_close(weights, wanted)
    assert any(weight.abs().max() > 0.01 for weight in wanted.values())
    assert {p.name for p in two.rglob("*")} == {p.name for p in one.rglob("*")}


def test_what_several_cannot_begin_is_refused_by_all(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text(DATA)
    words = ("--model", "nanoo", "--data", "data.jsonl", "--out", "out", "--processes", 2)
    life = sparring("finetune", *words, cwd=tmp_path, first=helpers_are_forks)
    assert life.code == 2 and "nanoo" in life.err and "Traceback" not in life.err
    assert [p.name for p in tmp_path.iterdir()] == ["data.jsonl"]

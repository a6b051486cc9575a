"""A pool of engines on a real Ray cluster of several nodes on this machine, one of which dies."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_workers
import pytest
from fake_workers import FakeActor, Words, fake_pool, request, with_main
from lazily import imported

from sparring.core.collect import Job
from sparring.core.errors import ConfigError
from sparring.core.types import Request, Turn, VoidGame
from sparring.engines.pool import WorkerPool, beginning, choose
from sparring.engines.published import PublishFailed
from sparring.engines.ray import RayTransport, own_gpus, ray_pool
from sparring.run.config import load_recipe
from sparring.run.games import load_game
from sparring.run.sections import RayConfig
from sparring.training.metrics import summarize

ray = imported("ray", "Ray is missing: pip install 'sparring[ray]'")


def test_the_least_busy_replica_is_chosen_unless_another_knows_the_beginning() -> None:
    assert choose([3, 1, 2], None) == 1
    assert choose([1, 1, 1], None) == 0
    assert choose([4, 0, 2], 0, slack=4) == 0  # it has read this before
    assert choose([5, 0, 2], 0, slack=4) == 1  # but not at any price
    assert choose([None, 7, 9], 0) == 1  # nor when it is gone
    assert choose([None, None], 1) is None


def test_a_conversation_that_goes_on_is_known_by_its_ids() -> None:
    turn = Turn("a", "main", "hello", "hi", prompt_ids=list(range(50)))
    assert beginning(request(previous=turn)) == ("main", *range(32))
    assert beginning(request("x" * 999)) == beginning(request("x" * 998))
    assert beginning(request("x")) != beginning(request("y"))


def test_a_replica_that_is_replaced_while_weights_are_published_has_the_new_ones() -> None:
    async def scene() -> None:
        gate = asyncio.Event()
        late = FakeActor(gate)
        found = fake_pool([FakeActor(), FakeActor(), late])
        policies: Any = found.policies
        await found.act(request())
        found._lost(1, found._slots[1], RuntimeError("its node is gone"))
        await late.called_for("receive")  # it is being given the old weights
        policies.weights["main"] = 2.0
        policies.set_version("main", 1)
        await found.act(request())
        gate.set()
        await asyncio.gather(*found._replacing)
        assert found._slots[1].worker is late and late.taken == 2
        assert late.worker.engine.policies.weights["main"] == 2.0
        turns = await asyncio.gather(*(found.act(request(str(i))) for i in range(12)))
        assert {(t.prompt.split()[1], t.version) for t in turns} == {("2.0", 1)}

    asyncio.run(scene())


def test_a_replica_that_does_not_have_what_it_was_given_stops_the_run() -> None:
    deaf = FakeActor()
    policies = deaf.worker.engine.policies
    policies.load = lambda name, state: policies.weights.update({name: 0.5})
    with pytest.raises(PublishFailed, match="the weights it holds are not those it was given"):
        asyncio.run(fake_pool([FakeActor(), deaf]).act(request()))


def test_a_turn_of_another_version_stops_the_run() -> None:
    async def scene() -> None:
        late = FakeActor()
        found = fake_pool([late, FakeActor()])
        await found.act(request())
        late.worker.engine.policies.set_version("main", 3)
        with pytest.raises(PublishFailed, match="a worker played with version 3 of 0"):
            await found.act(request())

    asyncio.run(scene())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes: one for this process, two for replicas."""
    from ray.cluster_utils import Cluster

    unasked = ("RAY_prestart_worker_first_driver", "RAY_USAGE_STATS_ENABLED")  # processes, reports
    for name in ("RAY_worker_niceness", *unasked):
        os.environ.setdefault(name, "0")
    memory = {"object_store_memory": 80 * 2**20}
    processes = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **processes, **memory})
    made.workers = [made.add_node(num_cpus=2, **memory) for _ in range(2)]  # type: ignore[attr-defined]
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    # Nodes cannot import this file: its engine travels whole.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.cloudpickle.register_pickle_by_value(fake_workers)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def found(cluster: Any) -> Iterator[WorkerPool]:
    """Two workers on two nodes, slow enough to be killed at work."""
    workers = ray_pool(with_main(), lambda: Words(0.05), RayConfig(replicas=2, patience_s=120))
    try:
        yield workers
    finally:
        workers.kill()


def test_weights_are_published_once_per_change_and_reach_every_replica(found: WorkerPool) -> None:
    policies: Any = found.policies

    async def round_of_turns(count: int) -> list[Turn]:
        return list(await asyncio.gather(*(found.act(request(str(i))) for i in range(count))))

    first = asyncio.run(round_of_turns(12))
    assert {t.prompt.split()[1] for t in first} == {"1.0"} and found.shared.publishes == 1
    assert len({t.prompt.split()[0] for t in first}) == 2  # both replicas spoke
    policies.weights["main"] = 2.0
    policies.set_version("main", 1)
    policies.add("main@5")
    policies.weights["main@5"] = 7.0
    second = asyncio.run(round_of_turns(12))
    assert {(t.prompt.split()[1], t.version) for t in second} == {("2.0", 1)}
    assert found.shared.publishes == 2
    assert found.shared.published_bytes == 3 * 4  # a float thrice
    policies.weights["main"] = 3.0  # as when a checkpoint is loaded
    found.publish()
    assert {t.prompt.split()[1] for t in asyncio.run(round_of_turns(4))} == {"3.0"}
    with pytest.raises(VoidGame, match=r"^nothing to say$"):
        asyncio.run(found.act(request("void")))


def test_a_node_that_dies_in_the_middle_costs_no_game_and_counts_none_twice(
    cluster: Any, found: WorkerPool
) -> None:
    """96 games in two halves' time: a node and its replica are killed while they are played."""
    game = load_game("kuhn", style="terse")
    jobs = [
        Job(str(i), "kuhn", game, game.task(i), i, dict.fromkeys(game.seats, "main"))
        for i in range(96)
    ]
    done: list[str] = []

    def killer(episode: Any) -> None:
        done.append(episode.id)
        if len(done) == 10:
            cluster.remove_node(cluster.workers.pop(0), allow_graceful=False)
            cluster.workers.append(cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20))

    async def play(engine: Any, **words: Any) -> Any:
        return await engine.collect(jobs, concurrency=24, **words)

    expected = asyncio.run(play(with_main()))
    episodes = asyncio.run(play(found, on_episode=killer))
    assert found.replayed >= 1 and found.metrics()["pool/replayed"] >= 1
    assert sorted(done, key=int) == [str(i) for i in range(96)]
    for mine, theirs in zip(episodes, expected, strict=True):
        assert (mine.id, mine.rewards, mine.void) == (theirs.id, theirs.rewards, None)
        assert [t.text for t in mine.turns] == [t.text for t in theirs.turns]
    clock = ("_s", "_per_s")
    assert {k: v for k, v in summarize(episodes).items() if not k.endswith(clock)} == {
        k: v for k, v in summarize(expected).items() if not k.endswith(clock)
    }


def test_what_the_cluster_cannot_give_is_said_at_the_start(cluster: Any) -> None:
    with pytest.raises(ConfigError, match=r"Ray cluster has none.*engine\.device=cpu"):
        ray_pool(Words(), Words, RayConfig(replicas=1), gpus=1)
    with pytest.raises(ConfigError, match=r"did not start within 2 s: each needs 64 CPUs"):
        ray_pool(Words(), Words, RayConfig(replicas=1, cpus=64, patience_s=2))


def test_the_learner_and_the_workers_have_a_gpu_each(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """GPUs that Ray believes in: it places by what nodes say they have."""

    class Placed(Words):
        async def act(self, asked: Request) -> Turn:
            turn = await super().act(asked)
            return replace(turn, text=" ".join(own_gpus()))

    node = cluster.add_node(num_cpus=2, num_gpus=3, object_store_memory=80 * 2**20)
    try:
        config = RayConfig(replicas=2, patience_s=120, cpus=0.1)
        workers = ray_pool(with_main(), Placed, config, gpus=1, device="cuda:2")
        try:

            async def gpus() -> set[str]:
                turns = [workers.act(request(str(i))) for i in range(12)]
                return {turn.text for turn in await asyncio.gather(*turns)}

            (kept,) = {"0", "1", "2"} - asyncio.run(gpus())  # the learner's
        finally:
            workers.kill()
        hint = f"Say engine.device=cuda:{kept}"
        assert (hint in caplog.text) == (kept != "2")
        caplog.clear()
        other = RayTransport(Placed, config, 1, "bubblewrap")
        other.reserve("cuda:0")  # what Ray keeps free is the same one
        other.close([])
        assert (hint in caplog.text) == (kept != "0")
    finally:
        cluster.remove_node(node)


def test_judges_rule_as_tasks(cluster: Any) -> None:
    from sparring.core.game import Remote
    from sparring.judge.python.programs import make_judge
    from sparring.judge.python.ray import RayJudge

    assert not isinstance(make_judge("unsafe", 5), RayJudge)
    config = load_recipe("tictactoe", ["ray.replicas=1", "ray.judges=true", "sandbox=unsafe"])
    assert isinstance(config.jail, Remote) and config.jail == "unsafe"

    async def rule() -> list[str]:
        async with make_judge(Remote("unsafe"), 5) as judge:
            assert isinstance(judge, RayJudge)
            code = "def double(x):\n    return 2 * x"
            right, wrong, run = await asyncio.gather(
                judge.tests(code, ["assert double(2) == 4"]),
                judge.tests(code, ["assert double(2) == 5"]),
                judge.run("print(6 * 7)"),
            )
            return [right.status, wrong.status, run.stdout.strip()]

    assert asyncio.run(rule()) == ["pass", "fail", "42"]


def test_a_run_on_replicas_learns_from_complete_episodes(cluster: Any, tmp_path: Path) -> None:
    """A whole run, with a model in the replica: its logprobs are the learner's."""
    from sparring.run.rundir import RunDir, read_lines
    from sparring.training.loop import train

    keys = ["iterations=2", "collect.episodes=24", "evaluate.every=9", "ray.replicas=1"]
    keys += ["tracking.tensorboard=false", "learn.weights=lora", "learn.lr=1e-2", "ray.cpus=0.5"]
    keys += ["evaluate.games=4"]
    run = train(load_recipe("kuhn", keys, smoke=True), tmp_path / "run")
    lines = list(read_lines(run.metrics))
    assert [line["iteration"] for line in lines] == [1, 2]
    assert all(line["learn/canary"] < 1e-4 for line in lines)
    assert all(line["pool/publishes"] == 1 and line["pool/replicas"] == 1 for line in lines)
    episodes = RunDir(run.path).read_episodes(2)
    assert len(episodes) == 24 and not any(e.void for e in episodes)
    assert {t.version for e in episodes for t in e.turns} == {1}

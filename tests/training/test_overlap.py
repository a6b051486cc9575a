"""Games played while others are learned from: never staler than was allowed, by a rule and not by
the clock, so that such a run dies, resumes, rolls back and leaves like any other. In most of these
runs the worker is in the run's own process, which spares a start of Python; in one it is not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_workers import worker_in_this_process
from lives import Life, Moment, events, facts, whole
from lives import train as train_in_a_life

from sparring.core.errors import ConfigError
from sparring.core.types import BASE, Episode, Request, Sampling, Task, Turn
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.pool import WorkerPool
from sparring.learn.canary import CanaryError, spoken_gaps
from sparring.learn.learner import Learner
from sparring.run.config import LearnConfig, load_recipe
from sparring.run.rundir import RunDir, read_lines
from sparring.training.metrics import staleness
from sparring.training.overlap import held_to_who_spoke

NEXT_BATCH_S = 240.0  # far more than a batch takes


def train(recipe: str, run: Path, *words: str, first: Any = None, **options: Any) -> Life:
    begin = partial(_begin, first)
    return train_in_a_life(recipe, run, *words, first=begin, **options)


def _begin(first: Any) -> None:
    worker_in_this_process()
    if first is not None:
        first()


LEAGUE = "opponents={kind: league, every: 1, size: 2, share: 0.7}"


def slow_learner() -> None:
    usual = Learner.fit

    def fit(self: Any, *words: Any) -> Any:
        time.sleep(0.1)
        return usual(self, *words)

    Learner.fit = fit  # type: ignore[method-assign]


def slow_engine() -> None:
    usual = TransformersEngine._round

    def compute(self: Any, new: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)
        return usual(self, new)

    TransformersEngine._round = compute  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs that nobody disturbed, each of them made once."""

    @cache
    def make(recipe: str, *words: str) -> Path:
        run = tmp_path_factory.mktemp("unbroken") / "run"
        life = train(recipe, run, *words)
        assert life.code == 0, life.err
        return run

    return make


def versions(run: Path) -> list[tuple[int, set[int]]]:
    """Which versions spoke what was learned from in each iteration."""
    folder = RunDir.existing(run)
    found = []
    for line in read_lines(run / "metrics.jsonl"):
        episodes = folder.read_episodes(line["iteration"])
        spoke = {t.version for e in episodes for t in e.turns if t.trainable}
        found.append((line["iteration"], spoke))
    return found


@pytest.mark.parametrize("bound", [1, 2])
def test_no_turn_is_staler_than_the_bound_whoever_is_slow(
    tmp_path: Path, bound: int, unbroken: Callable[..., Path]
) -> None:
    runs = []
    for name, slow in (("even", None), ("learner", slow_learner), ("engine", slow_engine)):
        if slow is None:
            run = unbroken("kuhn", f"collect.ahead={bound}")
        else:
            run = tmp_path / name
            life = train("kuhn", run, f"collect.ahead={bound}", first=slow)
            assert life.code == 0, life.err
        for iteration, spoke in versions(run):
            # One update an iteration: before its own, the learner is at version iteration - 1.
            assert {iteration - 1 - version for version in spoke} == {min(bound, iteration - 1)}
        lines = facts(run)
        assert [line["staleness/max"] for line in lines] == [min(bound, i) for i in range(6)]
        assert all(line["staleness/mean"] <= bound for line in lines)
        assert max(line["learn/canary"] for line in lines) < 1e-4 < lines[-1]["learn/drift"]
        runs.append(whole(run))
    assert runs[0] == runs[1] == runs[2]


def learn_only_when_the_next_games_are_played() -> None:
    """Each lesson but the last waits for the batch after it: a run whose games wait for learning
    would never end one."""
    played = threading.Semaphore(0)
    collect, fit = WorkerPool.collect, Learner.fit

    async def counted(self: Any, *words: Any, **options: Any) -> Any:
        episodes = await collect(self, *words, **options)
        played.release()
        return episodes

    def waiting(self: Any, lessons: Any, iteration: int, iterations: int, *words: Any) -> Any:
        for _ in range(2 if iteration == 0 else int(iteration < iterations - 1)):
            assert played.acquire(timeout=NEXT_BATCH_S), "nothing was played meanwhile"
        return fit(self, lessons, iteration, iterations, *words)

    WorkerPool.collect = counted  # type: ignore[method-assign]
    Learner.fit = waiting  # type: ignore[method-assign]


def test_a_second_process_plays_while_this_one_learns(tmp_path: Path) -> None:
    words = ("collect.ahead=1", "iterations=3", "collect.episodes=12", "evaluate.every=100")
    one, two = tmp_path / "one", tmp_path / "two"
    life = train("kuhn", one, *words)
    assert life.code == 0, life.err
    life = train_in_a_life("kuhn", two, *words, first=learn_only_when_the_next_games_are_played)
    assert life.code == 0, life.err
    assert whole(two) == whole(one)  # the same digits
    lines = read_lines(two / "metrics.jsonl")
    assert [line["pool/replicas"] for line in lines] == [1, 1, 1]
    assert [line["staleness/max"] for line in facts(two)] == [0, 1, 1]


def no_bound() -> None:
    """Everything that playing ahead takes (a copy, snapshots, a thread), and nothing ahead."""
    import sparring.training.loop

    class Level(sparring.training.loop.Ahead):
        bound = property(lambda self: 0, lambda self, value: None)  # type: ignore[assignment]

    sparring.training.loop.Ahead = Level  # type: ignore[misc]


@pytest.mark.parametrize("more", [(), ("learn.weights=lora", "learn.lora_r=4", LEAGUE)])
def test_the_copy_and_the_thread_change_no_digit(tmp_path: Path, more: tuple[str, ...]) -> None:
    plain, copied = tmp_path / "plain", tmp_path / "copied"
    assert train("kuhn", plain, *more).code == 0
    assert train("kuhn", copied, *more, "collect.ahead=1", first=no_bound).code == 0
    expected, found = whole(plain), whole(copied)
    assert found["episodes"] == expected["episodes"]
    assert found["checkpoints"] == expected["checkpoints"]
    for mine, other in zip(found["metrics"], expected["metrics"], strict=True):
        gap = mine.pop("learn/canary"), mine.pop("learn/drift")
        assert gap[0] < 1e-4 and gap[1] == other.pop("learn/canary")
        assert mine == other


KINDS = {
    "full": ("kuhn", ("collect.ahead=1",)),
    "lora and league": (
        "tictactoe",
        ("collect.ahead=1", "learn.weights=lora", "learn.lr=1e-2", LEAGUE, "collect.episodes=16"),
    ),
    "two ahead": ("kuhn", ("collect.ahead=2", "learn.kl=0.2", "learn.reference=ema")),
    # The opponents of later games are drawn from matches that are played when a member joins.
    "measured league": (
        "tictactoe",
        (
            "collect.ahead=1",
            "opponents={kind: league, start: true, every: 1, size: 3, share: 1, mixture: nash, "
            "matches: 4, players: [random]}",
            "collect.episodes=16",
        ),
    ),
}

MOMENTS = (
    Moment("000003.jsonl.gz", 2),
    Moment("000006.jsonl.gz"),
    Moment(".step_000006.unfinished/manifest.json"),
    Moment("report.html"),
)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_run_that_died_equals_one_that_never_did(
    tmp_path: Path, kind: str, unbroken: Callable[..., Path]
) -> None:
    recipe, overrides = KINDS[kind]
    broken, whole_run = tmp_path / "broken", unbroken(recipe, *overrides)
    for moment in MOMENTS[:4] if kind == "full" else MOMENTS[:2]:
        life = train(recipe, broken, *overrides, resume=True, die_at=moment)
        assert life.code == -signal.SIGKILL, f"{moment} did not come: {life.out}{life.err}"
    life = train(recipe, broken, *overrides, resume=True)
    assert life.code == 0, life.err
    assert whole(broken) == whole(whole_run)
    assert len({line["learn/loss"] for line in facts(whole_run)}) == 6


def leap_once() -> None:
    usual = Learner.lr
    Learner.lr = lambda self, i, n: usual(self, i, n) * (1000 if i == 3 else 1)  # type: ignore


def test_a_collapse_is_rolled_back_and_what_it_played_is_forgotten(tmp_path: Path) -> None:
    guarded = (
        "guard={enabled: true, entropy_floor: 2, window: 1, grace: 1, score_drop: 9}",
        "sampling.mask_actions=false",  # two legal actions have less entropy than the floor
        *("evaluate.every=3", "learn.schedule=constant", "checkpoint.every=3", "iterations=8"),
        "collect.ahead=1",
    )
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    life = train("kuhn", unbroken, *guarded, first=leap_once)
    assert life.code == 0, life.err
    rolled = [e["iteration"] for e in events(unbroken, "rollback")]
    assert rolled
    lines = {line["iteration"]: line for line in facts(unbroken)}
    for iteration in rolled:  # what is played next is played by the weights that were taken back
        assert lines[iteration + 1]["staleness/max"] == 0
        assert lines[iteration + 1]["learn/canary"] < 1e-4
    for moment in (f"{rolled[0]:06d}.jsonl.gz", f"{rolled[0] + 1:06d}.jsonl.gz"):
        train("kuhn", broken, *guarded, resume=True, first=leap_once, die_at=Moment(moment))
    assert train("kuhn", broken, *guarded, resume=True, first=leap_once).code == 0
    assert whole(broken) == whole(unbroken)


def ask_to_leave() -> None:
    _send(signal.SIGTERM)


def press_ctrl_c() -> None:
    _send(signal.SIGINT)


def _send(number: int) -> None:
    """In the third lesson, while the next games are being played."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    usual = Learner.fit

    def fit(self: Any, lessons: Any, iteration: int, *words: Any) -> Any:
        if iteration == 2:
            os.kill(os.getpid(), number)
            time.sleep(0.2)
        return usual(self, lessons, iteration, *words)

    Learner.fit = fit  # type: ignore[method-assign]


@pytest.mark.parametrize("how", [ask_to_leave, press_ctrl_c])
def test_leaving_in_the_middle_is_clean(
    tmp_path: Path, how: Any, unbroken: Callable[..., Path]
) -> None:
    left, words = tmp_path / "left", ("collect.ahead=1", "checkpoint.keep=9")
    life = train("kuhn", left, *words, first=how)
    assert life.code == 75, life.err
    assert "never retrieved" not in life.err and "Traceback" not in life.err
    assert len(facts(left)) == 3
    assert train("kuhn", left, *words, resume=True).code == 0
    found, expected = whole(left), whole(unbroken("kuhn", *words))
    extra = found["checkpoints"].pop("step_000003", None)  # the one it left with
    expected["checkpoints"].pop("step_000003", None)
    assert found == expected and extra is not None


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["teach.kind=rounds"], "corrected for being stale"),
        (["learn.objective=likelihood"], "corrected for being stale"),
        (["learn.restart=true"], "learn.restart"),
        (["bases={first: nano}"], "bases of their own"),
        (["learn.shard=true"], "one process that learns"),
    ],
)
def test_what_cannot_be_had_is_refused(overrides: list[str], reason: str) -> None:
    from sparring.training.state import build

    with pytest.raises(ConfigError, match=reason):
        build(load_recipe("kuhn", ["collect.ahead=1", *overrides], smoke=True))


def say(policies: Any, count: int = 8) -> list[Episode]:
    """Games of one turn each, spoken by these policies."""
    import asyncio

    engine = TransformersEngine(policies)

    async def all_of_them() -> list[Turn]:
        asked = [
            Request("s", "main", [{"role": "user", "content": f"{i}"}], Sampling(max_tokens=4), i)
            for i in range(count)
        ]
        return list(await asyncio.gather(*map(engine.act, asked)))

    turns = asyncio.run(all_of_them())
    for turn in turns:
        turn.trainable = True
    return [Episode("e", "g", Task("t"), 0, turns=[t], rewards={"s": 1.0}) for t in turns]


def test_the_canary_hears_the_weights_that_spoke_not_those_that_learn(policies: Any) -> None:
    learner = Learner(policies, ["main"], LearnConfig())
    twin = policies.twin()
    episodes = say(twin)
    with torch.no_grad():
        for weight in policies.parameters("main").values():
            weight.add_(0.2)  # it has learned since
    assert spoken_gaps(learner, twin, episodes, 0.1)["main"] < 1e-4
    with pytest.raises(CanaryError, match="speaks with other weights"):
        spoken_gaps(learner, policies, episodes, 0.1)


def test_a_twin_shares_the_base_and_nothing_else(policies: Any) -> None:
    twin = policies.twin()
    assert twin.names() == policies.names()
    base = {weight.data_ptr() for weight in policies.frozen_parameters()}
    assert base and {weight.data_ptr() for weight in twin.frozen_parameters()} == base
    mine, other = policies.parameters("main"), twin.parameters("main")
    assert not {w.data_ptr() for w in mine.values()} & {w.data_ptr() for w in other.values()}
    before = {key: weight.detach().clone() for key, weight in other.items()}
    with torch.no_grad():
        for weight in mine.values():
            weight.add_(1)
    assert all(torch.equal(before[key], weight) for key, weight in other.items())
    assert before.keys() == mine.keys()


def test_a_snapshot_is_shown_elsewhere_as_it_was(policies: Any) -> None:
    twin = policies.twin()
    policies.add("reference_main", "main")
    policies.set_version("main", 3)
    with torch.no_grad():
        for weight in policies.parameters("main").values():
            weight.add_(1)
    policies.add("main@3", "main")
    first = policies.snapshot({})
    assert set(first.weights) == set(first.versions) == {"main", "main@3"}
    expected = {k: w.detach().clone() for k, w in policies.parameters("main").items()}
    with torch.no_grad():
        for weight in policies.parameters("main").values():
            weight.add_(1)
    twin.load_snapshot(first)
    assert twin.names() == [BASE, "main", "main@3"] and twin.version("main") == 3
    assert all(torch.equal(expected[k], w) for k, w in twin.parameters("main").items())
    policies.remove("main@3")
    policies.set_version("main", 4)
    second = policies.snapshot(first.versions)
    assert set(second.weights) == {"main"}
    assert policies.snapshot(second.versions).weights == {}
    twin.load_snapshot(second)
    assert twin.names() == [BASE, "main"]


def test_staleness_counts_what_is_learned_from() -> None:
    def turn(version: int, policy: str = "main", trainable: bool = True) -> Turn:
        return Turn("s", policy, "", "", version=version, trainable=trainable)

    turns = [turn(4), turn(5), turn(0, "base", False)]
    fair = Episode("a", "g", Task("t"), 0, turns=turns)
    void = Episode("b", "g", Task("t"), 0, turns=[turn(0)], void="no judge")
    found = staleness([fair, void], {"main": 6, "base": 0})
    assert found == {"staleness/mean": 1.5, "staleness/max": 2}
    assert staleness([void], {"main": 6}) == {}


def test_drift_and_canary_change_places() -> None:
    assert held_to_who_spoke({"learn/canary": 0.3}, {}) == {"learn/canary": 0.3}
    found = held_to_who_spoke({"learn/canary": 0.3}, {"main": 0.01})
    assert found == {"learn/canary": 0.01, "learn/drift": 0.3}
    two = held_to_who_spoke({"learn/a/canary": 0.3, "learn/b/canary": 0.2}, {"a": 0.0, "b": 0.1})
    assert two["learn/a/drift"] == 0.3 and two["learn/b/canary"] == 0.1

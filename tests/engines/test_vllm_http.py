"""vLLM on a server, over HTTP."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rogue import Rogue, refuses, rogue_server

from sparring.core.types import Sampling
from sparring.engines.http_client import Line, ServerFailed
from sparring.engines.vllm_links import Adapter, OverHttp, Spoken
from sparring.run.servers import ServerConfig


@pytest.fixture
def rogue() -> Iterator[Rogue]:
    with rogue_server() as server:
        yield server


def over_http(rogue: Rogue) -> OverHttp:
    server = ServerConfig(url=rogue.url, model="base-model", retries=1, backoff_s=0.01)
    return OverHttp(Line(server, "vllm"))


def test_over_http_adapters_and_ids_travel(rogue: Rogue, tmp_path: Path) -> None:
    choice = {
        "text": "hi",
        "finish_reason": "length",
        "prompt_token_ids": [1, 2],
        "token_ids": [3, 4],
        "logprobs": {"token_logprobs": [-0.25, -0.75]},
    }
    adapter = Adapter("main.7", 7, tmp_path, "")

    def serve(handler: Any, body: dict[str, Any]) -> None:
        if handler.path == "/v1/completions":
            handler.send(200, {"model": body["model"], "choices": [choice]})
        else:
            handler.send(200, b"Success: LoRA adapter 'main.7' added successfully.")

    rogue.default, rogue.models = serve, ["base-model", "main.7"]
    rogue.roots["main.7"] = str(tmp_path)
    link = over_http(rogue)

    async def whole() -> list[Spoken]:
        await link.load(adapter)
        how = Sampling(temperature=0.5, max_tokens=2, stop=("x",))
        said = [await link.generate([1, 2], how, 9, who, 5) for who in (adapter, None)]
        await link.unload(adapter)
        await link.sleep()
        await link.wake()
        await link.close()
        return said

    assert asyncio.run(whole()) == [
        Spoken([3, 4], [-0.25, -0.75], "length", name) for name in ("main.7", "base-model")
    ]
    assert rogue.paths == [
        "/v1/load_lora_adapter",
        "/v1/models",
        "/v1/completions",
        "/v1/completions",
        "/v1/unload_lora_adapter",
        "/sleep?level=1",
        "/wake_up",
    ]
    assert rogue.bodies[0] == {"lora_name": "main.7", "lora_path": str(tmp_path)}
    assert [body["model"] for body in rogue.bodies[1:3]] == ["main.7", "base-model"]
    told = rogue.bodies[1]
    assert (told["prompt"], told["seed"], told["stop"]) == ([1, 2], 9, ["x"])
    assert told["stop_token_ids"] == [5]


@pytest.mark.parametrize(
    ("models", "root", "says"),
    [
        (["base-model"], "", "its list of models does not have the adapter main.7"),
        (["base-model", "main.7"], "/elsewhere/6", "it has main.7 from /elsewhere/6, not from"),
    ],
)
def test_a_server_with_other_weights_under_the_name_is_noticed(
    rogue: Rogue, tmp_path: Path, models: list[str], root: str, says: str
) -> None:
    """As vLLM lists an adapter: `root` is the folder that it was read from."""
    rogue.default = lambda handler, body: handler.send(200, b"Success")
    rogue.models, rogue.roots["main.7"] = models, root
    with pytest.raises(RuntimeError, match=says):
        asyncio.run(over_http(rogue).load(Adapter("main.7", 7, tmp_path, "")))


def test_a_server_that_cannot_sleep_is_not_woken(rogue: Rogue) -> None:
    rogue.default = refuses(404, "Not Found")
    link = over_http(rogue)

    async def night() -> None:
        await link.sleep()
        await link.wake()

    asyncio.run(night())
    assert rogue.paths == ["/sleep?level=1"]


def test_a_server_that_gives_no_ids_cannot_train_anybody(rogue: Rogue) -> None:
    choice = {"text": "hi", "finish_reason": "stop"}
    rogue.default = lambda handler, body: handler.send(200, {"choices": [choice]})
    with pytest.raises(ServerFailed, match="no token ids and logprobs"):
        asyncio.run(over_http(rogue).generate([1], Sampling(), 0, None, 5))

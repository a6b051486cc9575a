"""`sparring serve`, asked by the real `openai` client, by httpx where a client would not, and by
our own engine for players on servers."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import httpx
import openai
import pytest
import uvicorn
from thinking_models import letters_and_tags, tokenizer_of
from typer.testing import CliRunner

from sparring.cli.app import app
from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling
from sparring.engines.local import engine as engine_module
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.openai import OpenAIEngine
from sparring.engines.serve import Server
from sparring.models.policies import FullPolicies
from sparring.run.servers import ServerConfig


@contextmanager
def serving(engine: TransformersEngine, name: str) -> Iterator[str]:
    config = uvicorn.Config(Server(engine, name, "runs/x").app(), port=0, log_level="error")
    http = uvicorn.Server(config)
    thread = threading.Thread(target=http.run, daemon=True)
    thread.start()
    while not http.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{http.servers[0].sockets[0].getsockname()[1]}/v1"
    http.should_exit = True
    thread.join(10)


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, TransformersEngine]]:
    from sparring.models.loading import load_model
    from sparring.models.policies import LoraPolicies

    policies = LoraPolicies(*load_model("nano"), r=4, alpha=8)
    for name in ("main", "rival"):
        policies.add(name)
        for parameter in policies.parameters(name).values():
            parameter.data.add_(0.1)
    engine = TransformersEngine(policies)
    with serving(engine, "main") as url:
        yield url, engine


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=server[0], api_key="none", max_retries=0)


HELLO = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]


def test_models_are_the_policies(client) -> None:
    assert [model.id for model in client.models.list()] == ["runs/x", "base", "main", "rival"]


def test_a_chat_has_the_engines_very_tokens(client, server) -> None:
    reply = client.chat.completions.create(
        model="rival", messages=HELLO, max_tokens=8, seed=5, logprobs=True, temperature=0.9,
        extra_body={"return_token_ids": True},
    )  # fmt: skip
    request = Request("s", "rival", HELLO, Sampling(temperature=0.9, max_tokens=8), 5)
    turn = asyncio.run(TransformersEngine(server[1].policies).act(request))
    choice = reply.choices[0]
    assert choice.message.content == turn.text and choice.finish_reason == turn.finish
    assert choice.token_ids == turn.token_ids and choice.prompt_token_ids == turn.prompt_ids
    assert [part.logprob for part in choice.logprobs.content] == turn.logprobs
    said = bytes(byte for part in choice.logprobs.content for byte in part.bytes)
    assert said.decode(errors="replace") == turn.text, "also where characters are cut in two"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (
        len(turn.prompt_ids), len(turn.token_ids),
    )  # fmt: skip
    other = client.chat.completions.create(
        model="base", messages=HELLO, max_tokens=8, seed=5, temperature=0.9
    )
    assert other.choices[0].message.content != turn.text


def test_a_stream_is_the_reply_in_pieces(client) -> None:
    plan = {"model": "runs/x", "messages": HELLO, "max_tokens": 20, "seed": 3}
    whole = client.chat.completions.create(**plan)
    pieces = list(
        client.chat.completions.create(
            **plan, stream=True, logprobs=True, stream_options={"include_usage": True}
        )
    )
    texts = [p.choices[0].delta.content or "" for p in pieces if p.choices]
    assert "".join(texts) == whole.choices[0].message.content and len(texts) > 3
    last = next(p for p in pieces if p.choices and p.choices[0].finish_reason)
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert len(last.choices[0].logprobs.content) == whole.usage.completion_tokens
    assert pieces[-1].usage == whole.usage


def test_a_client_that_joins_the_pieces_has_the_message(client) -> None:
    plan = {"model": "main", "messages": HELLO, "max_tokens": 6, "seed": 3, "n": 2}
    whole = client.chat.completions.create(**plan)
    with client.chat.completions.stream(**plan) as pieces:
        list(pieces)
        joined = pieces.current_completion_snapshot
    for one, other in zip(joined.choices, whole.choices, strict=True):
        assert (one.message.role, one.message.content) == ("assistant", other.message.content)


def test_stop_strings_are_left_out_streamed_or_not(client) -> None:
    plan = {"model": "main", "prompt": "once", "max_tokens": 60, "seed": 4}
    text = client.completions.create(**plan).choices[0].text
    stop = next(c for c in text[15:] if c.isascii() and c.isprintable())  # whole, not half a byte
    reply = client.completions.create(**plan, stop=[stop, "never said"]).choices[0]
    assert reply.text == text[: text.index(stop)] and reply.finish_reason == "stop"
    pieces = client.completions.create(**plan, stop=stop, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces) == reply.text


def test_completions_take_texts_and_ids_and_several_of_them(client, server) -> None:
    ids = server[1].chat.encode("once upon")
    reply = client.completions.create(
        model="main", prompt=[ids, ids], n=2, max_tokens=5, seed=1, logprobs=1,
        extra_body={"return_token_ids": True},
    )  # fmt: skip
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert reply.usage.prompt_tokens == 2 * len(ids), "a prompt counts once"
    assert all(choice.prompt_token_ids == ids for choice in reply.choices)
    assert len({choice.text for choice in reply.choices}) > 1, "each choice has its own seed"
    first = reply.choices[0]
    assert len(first.logprobs.token_logprobs) == len(first.token_ids) == 5
    again = client.completions.create(model="main", prompt=ids, max_tokens=5, seed=1)
    assert again.choices[0].text == first.text


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "nobody", "messages": HELLO}, 404, "there is no model 'nobody'"),
        ({"messages": []}, 400, "at least one message"),
        ({"messages": [{"role": "user", "content": 3}]}, 400, "must have a text"),
        ({"messages": HELLO, "temperature": -1}, 400, "temperature must be a number from 0"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, 400, "4096 positions"),
        ({"messages": ["hello"]}, 400, "must have a role"),
        ({"messages": [{"role": "raw", "content": "x"}]}, 400, "must have a role"),
        ({"messages": HELLO, "max_tokens": -3}, 400, "max_tokens must be a number from 1"),
        ({"messages": HELLO, "stop": [""]}, 400, "none of them empty"),
        ({"messages": HELLO, "temperature": 1e-40}, 400, "temperature must be 0 or at least 1e-06"),
        ({"messages": HELLO, "logprobs": 3}, 400, "0 or 1, not 3"),
        ({"messages": HELLO, "tools": [{"type": "function"}]}, 400, "tools is not supported"),
        ({"messages": HELLO, "top_logprobs": 3}, 400, "top_logprobs is not supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "type text"),
        ("no json", 400, "no JSON"),
        ("[" * 100_000, 400, "no JSON"),
        (r'{"messages": [{"role": "user", "content": "\ud800"}]}', 400, "half a character"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, 400, "must have a role"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]},
            400,
            "must have a text",
        ),
        ({"messages": HELLO, "max_tokens": 2.5}, 400, "max_tokens must be a whole number"),
        ({"messages": HELLO, "max_tokens": True}, 400, "max_tokens must be a number"),
        ({"messages": HELLO, "max_tokens": 5000}, 400, "do not fit the model's 4096 positions"),
        ({"messages": HELLO, "max_completion_tokens": 0}, 400, "max_completion_tokens must be"),
        ({"messages": HELLO, "seed": "x"}, 400, "seed must be a whole number"),
        ({"messages": HELLO, "stream_options": 3}, 400, "stream_options must be"),
        ({"messages": HELLO, "min_tokens": 5}, 400, "min_tokens is not supported"),
        ({"messages": HELLO, "guided_json": {}}, 400, "guided_json is not supported"),
    ],
)
def test_what_is_asked_wrongly_is_said(server, body, status: int, words: str) -> None:
    content = {"content": body} if isinstance(body, str) else {"json": body}
    reply = httpx.post(f"{server[0]}/chat/completions", timeout=30, **content)
    assert reply.status_code == status and words in reply.json()["error"]["message"]


@pytest.mark.parametrize("asked", [3, -1, "yes"])
def test_a_completion_that_asks_for_other_tokens_is_refused(server, asked: object) -> None:
    body = {"prompt": "once", "max_tokens": 2, "logprobs": asked}
    reply = httpx.post(f"{server[0]}/completions", json=body, timeout=30)
    assert reply.status_code == 400 and "drawn tokens alone" in reply.json()["error"]["message"]
    reply = httpx.post(f"{server[0]}/completions", json=body | {"logprobs": 0}, timeout=30)
    assert len(reply.json()["choices"][0]["logprobs"]["token_logprobs"]) == 2


def test_ids_and_seeds_out_of_range_trouble_nobody_else(server, client) -> None:
    reply = httpx.post(f"{server[0]}/completions", json={"prompt": [10**6]}, timeout=30)
    assert reply.status_code == 400 and "token ids must be" in reply.json()["error"]["message"]
    plan = {"model": "main", "messages": HELLO, "max_tokens": 4}
    texts = [client.chat.completions.create(**plan, seed=seed).choices[0].message.content
             for seed in (3, 3 + 2**63)]  # fmt: skip
    assert texts[0] == texts[1], "seeds count modulo 2 ** 63"
    client.chat.completions.create(
        model="main", max_tokens=1, frequency_penalty=0, response_format={"type": "text"},
        messages=[{"role": "developer", "content": [{"type": "text", "text": "be brief"}]}],
    )  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_fails_ends_the_request(server, monkeypatch, stream: bool) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(TransformersEngine, "act_on", fail)
    body = {"messages": HELLO, "stream": stream, "max_tokens": 4}
    reply = httpx.post(f"{server[0]}/chat/completions", json=body, timeout=30)
    assert "out of order" in reply.text and reply.status_code == (200 if stream else 500)
    assert '"server_error"' in reply.text and "invalid_request_error" not in reply.text


def test_errors_have_the_codes_that_clients_look_for(client) -> None:
    """Evaluations end a conversation that has grown too long, and go on, by its code."""
    long = [{"role": "user", "content": "x" * 5000}]
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="main", messages=long)
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="nobody", messages=HELLO)
    assert (refused.value.code, refused.value.type) == ("model_not_found", "invalid_request_error")


def test_thoughts_are_streamed_apart_from_the_answer(server) -> None:
    """Every prefix of a reply: nothing is sent that is taken back later."""
    plan = SimpleNamespace(chat=True, model="main", sampling=Sampling())
    http, reply = Server(server[1], "main", "x"), "<think>\nso < it </t is\n</think>\n\nfour <b>"
    sent = ["", ""]
    for end in range(len(reply) + 1):
        parts = http._so_far(plan, reply[:end])
        for number, part in enumerate(parts):
            assert part.startswith(sent[number]) or sent[number].startswith(part)
            sent[number] = max(sent[number], part, key=len)
    assert sent == ["so < it </t is", "four <b>"]


@pytest.mark.parametrize("special", [False, True])
def test_a_stream_of_thoughts_loses_nothing_and_says_nothing_twice(special: bool) -> None:
    """Of a model that opens and closes thoughts anywhere."""
    tokenizer = tokenizer_of(opening="<think>\n", special=special)
    policies = FullPolicies(letters_and_tags(tokenizer), tokenizer)
    with serving(TransformersEngine(policies), "base") as url:
        asked = openai.OpenAI(base_url=url, api_key="none").chat.completions
        closed = 0
        for seed in range(12):
            plan = {"model": "base", "messages": HELLO, "max_tokens": 12, "seed": seed}
            whole = asked.create(**plan).choices[0].message.to_dict()
            sent = {"reasoning_content": "", "content": ""}
            for piece in asked.create(**plan, stream=True):
                for key, text in piece.choices[0].delta.to_dict().items():
                    sent[key] = sent.get(key, "") + text
            keys = ("reasoning_content", "content")
            parts = [[said.get(key, "") for key in keys] for said in (sent, whole)]
            words = [re.sub("</?think>", "", "".join(part)) for part in parts]
            assert words[0] == words[1]
            if sent["content"] and "</think>" not in sent["content"]:  # thoughts that ended once
                assert parts[0][0] == parts[1][0]
                closed += 1
        assert closed


def test_a_client_that_hangs_up_frees_its_blocks(server, monkeypatch) -> None:
    url, engine = server
    monkeypatch.setattr(engine_module, "end_ids", lambda model, chat: [])  # none ends soon
    body = {"messages": HELLO, "max_tokens": 3500, "stream": True, "seed": 1}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=30) as reply:
        next(reply.iter_lines())
    long = {"messages": HELLO, "max_tokens": 3500, "temperature": 0}  # it goes round in circles
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/chat/completions", json=long, timeout=0.3)
    until = time.monotonic() + 30
    while any(runner.busy for runner in engine._all_runners()) and time.monotonic() < until:
        time.sleep(0.05)
    [runner] = engine._all_runners()
    assert not runner.busy and runner.cache.available == runner.cache.size - 1


def test_a_policy_that_is_served_can_be_played_with_ids(server) -> None:
    """Our own player on a server asks for ids, and gets those that were drawn."""
    url, engine = server
    player = OpenAIEngine(ServerConfig(url=url, model="rival", ids=True), "rival")
    request = Request("s", "rival", HELLO, Sampling(max_tokens=6), 9)
    turn = asyncio.run(player.act(request))
    own = asyncio.run(TransformersEngine(engine.policies).act(request))
    assert (turn.token_ids, turn.logprobs) == (own.token_ids, own.logprobs)


def test_the_address_has_the_port_that_was_given_and_a_taken_one_is_refused(monkeypatch) -> None:
    """Before a model is loaded."""
    addresses = []

    def answer(policy, *, sockets, ready, **options) -> None:
        ready()
        addresses.append(sockets[0].getsockname()[1])
        refused = CliRunner().invoke(app, ["serve", "nano", "--port", str(addresses[0])])
        assert isinstance(refused.exception, ConfigError) and "--port" in str(refused.exception)
        sockets[0].close()

    monkeypatch.setattr("sparring.engines.serve.serve", answer)
    result = CliRunner().invoke(app, ["serve", "nano", "--port", "0"])
    assert result.exception is None, result.exception
    assert f"http://127.0.0.1:{addresses[0]}/v1 answers as nano" in result.output

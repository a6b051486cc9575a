"""Players on servers: what they are asked, what is made of their answers, and that a server which
hangs, lies or falls over costs its own games and nothing else."""

import asyncio
import time
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from rogue import (
    Reply,
    Rogue,
    chat_reply,
    drips,
    hangs_up,
    raw,
    refuses,
    rogue_server,
    says,
    slow,
)

from sparring.core.collect import Job, collect
from sparring.core.game import Game, Outcome
from sparring.core.types import Request, Sampling, Task, Turn
from sparring.engines.http_client import ServerFailed, retry_after
from sparring.engines.openai import OpenAIEngine
from sparring.models.chat import RAW
from sparring.run.servers import ServerConfig

SECRET = "sk-test-0123456789-abcdefghij"


@pytest.fixture
def rogue() -> Iterator[Rogue]:
    with rogue_server() as server:
        yield server


def engine_of(rogue: Rogue, **settings: Any) -> OpenAIEngine:
    options = {"timeout_s": 5.0, "retries": 2, "backoff_s": 0.01, **settings}
    return OpenAIEngine(ServerConfig(url=rogue.url, model="m", **options), "m")


def ask(text: str = "?", **fields: Any) -> Request:
    sampling = fields.pop("sampling", Sampling(max_tokens=8))
    messages = fields.pop("messages", [{"role": "user", "content": text}])
    return Request("s", "m", messages, sampling, fields.pop("seed", 2**40 + 5), **fields)


def answers(engine: OpenAIEngine, *requests: Request) -> list[Any]:
    async def whole() -> list[Any]:
        try:
            acts = (engine.act(r) for r in requests or [ask()])
            return list(await asyncio.gather(*acts, return_exceptions=True))
        finally:
            await engine.line.close()

    return asyncio.run(whole())


def test_a_placeholder_for_a_key_is_no_secret(rogue: Rogue, monkeypatch) -> None:
    """It is a word, which a player may say."""
    monkeypatch.setenv("SPARRING_API_KEY", "none")
    rogue.default = says("none of them")
    [turn] = answers(engine_of(rogue))
    assert turn.text == "none of them"


def test_a_request_says_all_that_the_game_said(rogue: Rogue) -> None:
    engine = engine_of(rogue, body={"reasoning_effort": "low", "top_p": None})
    how = Sampling(temperature=0.5, top_p=0.9, top_k=7, max_tokens=11, stop=("\n",))
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    [turn] = answers(engine, ask("c", sampling=how, history=history))
    assert rogue.paths == ["/v1/chat/completions"]
    assert rogue.bodies == [
        {
            "model": "m",
            "messages": [*history, {"role": "user", "content": "c"}],
            "temperature": 0.5,
            "max_tokens": 11,
            "seed": 5,
            "top_k": 7,
            "stop": ["\n"],
            "reasoning_effort": "low",
        }
    ]
    assert (turn.seat, turn.policy, turn.prompt, turn.text) == ("s", "m", "c", "4")
    assert (turn.finish, turn.temperature, turn.token_ids) == ("stop", 0.5, [])
    assert rogue.keys == [None], "no key was set, and none is sent"


def test_a_text_to_go_on_with_goes_to_the_other_endpoint(rogue: Rogue) -> None:
    choice = {"text": " there was", "finish_reason": "length"}
    rogue.default = lambda handler, body: handler.send(200, {"choices": [choice]})
    engine = engine_of(rogue)
    [turn] = answers(engine, ask(messages=[{"role": RAW, "content": "Once"}]))
    assert rogue.paths == ["/v1/completions"] and rogue.bodies[0]["prompt"] == "Once"
    assert (turn.text, turn.finish) == (" there was", "length")
    assert engine.line.metrics()["server/m/uncounted"] == 1


def test_a_conversation_is_told_whole_and_forks_share_it(rogue: Rogue) -> None:
    class Talk(Game):
        seats = ("a",)

        async def play(self, task: Task, table: Any) -> Outcome:
            await table["a"].act("one", system="be brief")
            await table["a"].reply("two")
            await table["a"].fork().reply("three")
            await table["a"].reply("four")
            await table["a"].act("anew")
            return Outcome(a=1)

    rogue.script = [says(word) for word in ("eins", "zwei", "drei", "vier", "neu")]
    engine = engine_of(rogue)
    job = Job("j", "talk", Talk(), Task("t"), 0, {"a": "m"})
    [episode] = asyncio.run(collect([job], engine.act))
    assert episode.void is None
    told = [[m["content"] for m in body["messages"]] for body in rogue.bodies]
    begun = ["be brief", "one", "eins", "two"]
    assert told == [
        ["be brief", "one"],
        begun,
        [*begun, "zwei", "three"],
        [*begun, "zwei", "four"],
        ["anew"],
    ]


@pytest.mark.parametrize(
    ("reply", "text", "finish"),
    [
        (says("", finish_reason="stop"), "", "stop"),
        (says("cut", finish_reason="length"), "cut", "length"),
        (says(None, finish_reason="length"), "", "length"),
        (says("odd", finish_reason=None), "odd", "stop"),
        (says("half a \ud83d"), "half a ?", "stop"),
        (
            lambda handler, body: handler.send(
                200, {"choices": [{"message": {"content": None, "refusal": "I will not"}}]}
            ),
            "I will not",
            "stop",
        ),
    ],
)
def test_answers_that_are_answers(rogue: Rogue, reply: Reply, text: str, finish: str) -> None:
    rogue.script = [reply]
    [turn] = answers(engine_of(rogue))
    assert isinstance(turn, Turn) and (turn.text, turn.finish) == (text, finish)


RUBBISH = {
    "not JSON": raw(b"<html>Bad gateway</html>"),
    "nothing": raw(b""),
    "not UTF-8": raw(b"\xff\xfe{"),
    "a list": raw(b"[1, 2]"),
    "null": raw(b"null"),
    "no choices": raw(b'{"choices": []}'),
    "an error in disguise": raw(b'{"error": {"message": "overloaded"}}'),
    "no message": raw(b'{"choices": [{"index": 0}]}'),
    "no words": says(None),
    "words that are none": says({"a": 1}),
    "cut in two": raw(b'{"choices": [{"message": {"content": "4'),
    "brackets without end": raw(b"[" * 100_000),
    "a hang-up": hangs_up,
    "an error of the server": refuses(500, "stack overflow"),
    "too busy": refuses(503),
    "a limit": refuses(429),
}


@pytest.mark.parametrize("kind", RUBBISH)
def test_what_may_pass_is_tried_again(rogue: Rogue, kind: str) -> None:
    rogue.script = [RUBBISH[kind], RUBBISH[kind]]
    engine = engine_of(rogue)
    [turn] = answers(engine)
    assert isinstance(turn, Turn) and turn.text == "4"
    used = engine.line.metrics()
    assert used["server/m/requests"] == 1 and used["server/m/retries"] == 2
    assert used["server/m/failures"] == 0


@pytest.mark.parametrize("kind", RUBBISH)
def test_what_does_not_pass_fails_by_itself_and_says_why(rogue: Rogue, kind: str) -> None:
    rogue.default = RUBBISH[kind]
    engine = engine_of(rogue)
    [failure] = answers(engine)
    assert isinstance(failure, ServerFailed)
    assert str(failure).startswith(f"m at {rogue.url}: ") and "(3 tries)" in str(failure)
    assert len(str(failure)) < 600
    assert len(rogue.bodies) == 3 and engine.line.metrics()["server/m/failures"] == 1


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 413, 422])
def test_what_cannot_pass_is_tried_once(rogue: Rogue, status: int) -> None:
    rogue.default = refuses(status, "the prompt holds 9000 tokens, and I read 4096")
    [failure] = answers(engine_of(rogue))
    assert isinstance(failure, ServerFailed) and len(rogue.bodies) == 1
    assert f"it answered {status}: the prompt holds 9000 tokens" in str(failure)


@pytest.mark.parametrize("how", [drips, slow(5, says("late"))])
def test_nobody_waits_longer_than_allowed(rogue: Rogue, how: Reply) -> None:
    rogue.default = how
    started = time.monotonic()
    [failure] = answers(engine_of(rogue, timeout_s=0.2, retries=1))
    assert "no answer within 0.2 s (2 tries)" in str(failure)
    assert time.monotonic() - started < 4, "and not the five seconds it takes"


def test_a_filter_withholds_a_reply_and_it_is_not_asked_for_again(rogue: Rogue) -> None:
    rogue.default = says(None, finish_reason="content_filter", refusal="")
    rogue.default = says("part", finish_reason="content_filter")
    [failure] = answers(engine_of(rogue))
    assert "a filter withheld the reply" in str(failure) and len(rogue.bodies) == 1


def test_a_server_without_end_is_left(rogue: Rogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparring.engines.http_client._MOST_BYTES", 1000)
    rogue.default = says("x" * 2000)
    [failure] = answers(engine_of(rogue))
    assert "sends without end" in str(failure) and len(rogue.bodies) == 1


def test_a_dead_server_is_not_flogged(rogue: Rogue) -> None:
    rogue.default = refuses(500)
    engine = engine_of(rogue)

    async def one_by_one() -> None:
        for _ in range(5):
            with pytest.raises(ServerFailed):
                await engine.act(ask())

    asyncio.run(one_by_one())
    assert len(rogue.bodies) == 3 * 3 + 2, "after three failures, one try each"
    rogue.default = says("4")
    assert answers(engine)[0].text == "4"
    rogue.default, before = refuses(500), len(rogue.bodies)
    answers(engine)
    assert len(rogue.bodies) - before == 3, "an answer restores the trust"


def test_no_server_at_all(rogue: Rogue) -> None:
    rogue.server_close()
    [failure] = answers(engine_of(rogue))
    assert "the connection failed" in str(failure) and "(3 tries)" in str(failure)


def test_a_server_says_how_long_to_wait_and_everyone_does(rogue: Rogue) -> None:
    rogue.script = [refuses(429, Retry_After="0.4")]
    engine = engine_of(rogue)

    async def two() -> None:
        first = asyncio.create_task(engine.act(ask()))
        while engine.line._next_start == 0:
            await asyncio.sleep(0.01)
        await asyncio.gather(first, engine.act(ask()))

    asyncio.run(two())
    assert [t - rogue.times[0] >= 0.39 for t in rogue.times] == [False, True, True]


def test_the_waits_of_games_refused_together_differ(
    rogue: Rogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr("sparring.engines.http_client.asyncio.sleep", note)
    rogue.script = [refuses(503)] * 16
    answers(engine_of(rogue, backoff_s=1.0), *[ask() for _ in range(8)])
    assert len(waits) >= 8 and len(set(waits)) == len(waits)
    assert max(waits) <= 2.0, "doubled once at most"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *[("2.5", 2.5), ("", 0), ("soon", 0), ("-3", 0), ("nan", 0)],
        ("Mon, 01 Jan 99999999999 00:00:00 GMT", 0),
    ],
)
def test_a_wait_in_a_header(header: str, seconds: float) -> None:
    assert retry_after(header) == seconds


def test_a_wait_until_a_date() -> None:
    assert 28 < retry_after(formatdate(time.time() + 30, usegmt=True)) <= 30
    assert retry_after(formatdate(time.time() - 30, usegmt=True)) == 0


def test_no_more_at_once_than_it_bears(rogue: Rogue) -> None:
    rogue.default = slow(0.02, says("4"))
    turns = answers(engine_of(rogue, concurrency=3), *[ask() for _ in range(20)])
    assert all(isinstance(t, Turn) for t in turns) and 1 < rogue.most_at_once <= 3


def test_no_more_per_minute_than_it_bears(rogue: Rogue) -> None:
    started = time.monotonic()
    answers(engine_of(rogue, requests_per_minute=1200), *[ask() for _ in range(5)])
    assert time.monotonic() - started >= 4 * 60 / 1200 and len(rogue.times) == 5


def test_tokens_and_cost_are_counted(rogue: Rogue) -> None:
    engine = engine_of(rogue, price_in=2.0, price_out=10.0)
    answers(engine, ask(), ask())
    used = engine.line.metrics()
    assert used.pop("server/m/wait_s") > 0
    assert used == {
        "server/m/requests": 2,
        "server/m/retries": 0,
        "server/m/failures": 0,
        "server/m/tokens_in": 20,
        "server/m/tokens_out": 6,
        "server/m/cost": pytest.approx(2 * (10 * 2 + 3 * 10) / 1e6),
    }
    assert engine.line.metrics()["server/m/requests"] == 0, "what was told is not told again"


def test_counts_that_are_none_are_said_to_be(rogue: Rogue) -> None:
    for usage in ({"prompt_tokens": float("inf"), "completion_tokens": 1}, [], {}, "many"):
        rogue.script = [
            lambda handler, body, u=usage: handler.send(200, chat_reply() | {"usage": u})
        ]
        engine = engine_of(rogue)
        assert answers(engine)[0].text == "4"
        assert engine.line.metrics()["server/m/uncounted"] == 1


def test_ids_and_logprobs_are_kept_where_all_of_them_come(rogue: Rogue) -> None:
    content = [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]
    whole = chat_reply("ab", token_ids=[7, 8], logprobs={"content": content})
    lists = [
        ({**whole, "prompt_token_ids": [1, 2, 3]}, True),
        (whole, False),
        ({**chat_reply("ab", token_ids=[7]), "prompt_token_ids": [1]}, False),
        (chat_reply("ab", logprobs={"content": content}), False),
    ]
    for reply, there in lists:
        engine = engine_of(rogue, ids=True)
        rogue.script = [lambda handler, body, reply=reply: handler.send(200, reply)]
        [turn] = answers(engine)
        assert engine.gives_ids is there
        expected = ([1, 2, 3], [7, 8], [-0.5, -1.5]) if there else ([], [], [])
        assert (turn.prompt_ids, turn.token_ids, turn.logprobs) == expected
    assert rogue.bodies[0]["return_token_ids"] is True and rogue.bodies[0]["logprobs"] is True

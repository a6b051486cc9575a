"""The embedded engine behind OpenAI's HTTP API: chat and completions, streamed or not, logprobs,
token ids, stop strings, seeds. Every policy that the engine has is a model by its name."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from jinja2.exceptions import TemplateError
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sparring.core.types import Request, Sampling, Turn, VoidGame, derive, drawable
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.multi_base import BasesEngine
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.runner import Runner
from sparring.engines.serve_request import (
    BadRequest,
    read_body,
    read_logprobs,
    read_messages,
    read_number,
    read_prompts,
    read_seed,
    read_stops,
    read_usage,
    read_whole,
)
from sparring.engines.serve_tokens import chat_logprobs, completion_logprobs
from sparring.models.chat import Chat
from sparring.models.thinking import split_partial, split_thinking

log = logging.getLogger(__name__)
_COMPLETION_TOKENS, _MOST_CHOICES = 16, 128  # as in OpenAI's own API
_SEEDS = 2**63  # seeds are signed numbers of 64 bits
_UNSUPPORTED: dict[str, Any] = {  # and the value of each that changes nothing
    "tools": [], "functions": [], "response_format": {"type": "text"}, "logit_bias": {},
    "frequency_penalty": 0, "presence_penalty": 0, "repetition_penalty": 1, "min_p": 0,
    "top_logprobs": 0, "echo": False, "suffix": "", "include_stop_str_in_output": False,
    "best_of": 1, "prompt_logprobs": None, "min_tokens": 0, "ignore_eos": False,
    "stop_token_ids": [], "bad_words": [], "allowed_token_ids": [], "chat_template": None,
    "chat_template_kwargs": {}, "continue_final_message": False, "add_generation_prompt": True,
    "guided_json": None, "guided_regex": None, "guided_choice": None, "guided_grammar": None,
    "structured_outputs": None,
}  # fmt: skip
_ROOM = 4096  # positions, where neither the model nor the cache has a longest sequence


@dataclass
class _Plan:
    """One HTTP request, read and checked."""

    model: str
    chat: bool
    prompts: list[tuple[list[dict[str, str]], list[int]]]  # messages and their ids
    sampling: Sampling
    seed: int
    choices: int
    logprobs: bool
    ids: bool
    usage: bool  # in the last piece of a stream
    made: int = field(default_factory=lambda: int(time.time()))
    id: str = field(default_factory=lambda: f"sparring-{random.getrandbits(64):016x}")

    @property
    def kind(self) -> str:
        return "chat.completion" if self.chat else "text_completion"


class Server:
    def __init__(self, engine: TransformersEngine, name: str, alias: str) -> None:
        """`alias` is another name for the engine's policy `name`: what the user called it."""
        self.engine, self.name, self.alias = engine, name, alias

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/completions", self.complete, methods=["POST"]),
                Route("/health", self.health),
            ]
        )

    async def health(self, http: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, http: HttpRequest) -> Response:
        names = [self.alias, *self.engine.policies.names()]
        data = [{"id": n, "object": "model", "created": 0, "owned_by": "sparring"} for n in names]
        return JSONResponse({"object": "list", "data": data})

    async def chat(self, http: HttpRequest) -> Response:
        return await self._answer(http, chat=True)

    async def complete(self, http: HttpRequest) -> Response:
        return await self._answer(http, chat=False)

    async def _answer(self, http: HttpRequest, *, chat: bool) -> Response:
        try:
            body = await read_body(http)
            plan = await self._plan(body, chat)
            if body.get("stream"):
                return StreamingResponse(self._stream(plan), media_type="text/event-stream")
            turns = await _unless_gone(http, self._turns(plan))
            return JSONResponse(self._whole(plan, turns))
        except Exception as error:
            status, body = _failure(error)
            return JSONResponse(body, status_code=status)

    # ── what is asked ───────────────────────────────────────────────────────────────────────────

    async def _plan(self, body: dict[str, Any], chat: bool) -> _Plan:
        asked = body.get("model") or self.alias
        model = self.name if asked == self.alias else asked
        if model not in self.engine.policies.names():
            said = f"there is no model {asked!r}; GET /v1/models lists them"
            raise BadRequest(said, 404, "model_not_found")
        for key, neutral in _UNSUPPORTED.items():
            if body.get(key) not in (None, neutral):
                raise BadRequest(f"{key} is not supported here; leave it out")
        words = len(self._chat_of(model).tokenizer)
        prompts = [read_messages(body)] if chat else read_prompts(body.get("prompt"), words)
        with_ids = [(m, i or self._ids(model, m)) for m, i in prompts]
        longest = max(len(ids) for _, ids in with_ids)
        sampling = self._sampling(body, chat, await self._room(model) - longest)
        limit = self.engine.policies.context
        if limit is not None and longest + sampling.max_tokens > limit:
            raise BadRequest(
                f"a prompt of {longest} tokens and a reply of up to {sampling.max_tokens} do not "
                f"fit the model's {limit} positions",
                code="context_length_exceeded",
            )
        seed = read_seed(body)
        return _Plan(
            model=model,
            chat=chat,
            prompts=with_ids,
            sampling=sampling,
            seed=random.getrandbits(62) if seed is None else seed % _SEEDS,
            choices=read_whole(body, "n", 1, low=1, high=_MOST_CHOICES),
            logprobs=read_logprobs(body, chat=chat),
            ids=bool(body.get("return_token_ids")),
            usage=read_usage(body),
        )

    def _chat_of(self, policy: str) -> Chat:
        """The tokenizer and template of the base model that a policy stands on."""
        engine = self.engine
        return engine.of(policy).chat if isinstance(engine, BasesEngine) else engine.chat

    async def _room(self, policy: str) -> int:
        """Positions that a prompt and its reply may have together."""
        engine, loop = self.engine, asyncio.get_running_loop()
        runner = await loop.run_in_executor(engine._thread, engine._runner, policy)
        blocks = runner.memory.capacity() if isinstance(runner, Runner) else None
        limits = (engine.policies.context, None if blocks is None else blocks * BLOCK)
        return min((limit for limit in limits if limit is not None), default=_ROOM)

    def _ids(self, policy: str, messages: list[dict[str, str]]) -> list[int]:
        try:
            return self._chat_of(policy).ids_of(messages)
        except TemplateError as error:
            raise BadRequest(f"the chat template refuses these messages: {error}") from error

    def _sampling(self, body: dict[str, Any], chat: bool, room: int) -> Sampling:
        newer = body.get("max_completion_tokens") is not None
        limit_key = "max_completion_tokens" if newer else "max_tokens"
        most = max(1, room if chat else min(room, _COMPLETION_TOKENS))
        return Sampling(
            temperature=drawable(read_number(body, "temperature", 1.0, low=0, high=100)),
            top_p=float(read_number(body, "top_p", 1.0, low=1e-6, high=1)),
            top_k=max(0, read_whole(body, "top_k", 0, low=-1, high=10**9)),
            max_tokens=read_whole(body, limit_key, most, low=1, high=10**9),
            stop=read_stops(body),
        )

    def _requests(self, plan: _Plan) -> list[tuple[Request, list[int]]]:
        """One for each prompt and choice, each with its own seed; the first has the client's."""
        each = [prompt for prompt in plan.prompts for _ in range(plan.choices)]
        seeds = [plan.seed, *(derive(plan.seed, number) for number in range(1, len(each)))]
        return [
            (Request("server", plan.model, messages, plan.sampling, seed, (number,)), ids)
            for number, ((messages, ids), seed) in enumerate(zip(each, seeds, strict=True))
        ]

    # ── what is answered ────────────────────────────────────────────────────────────────────────

    async def _turns(self, plan: _Plan) -> list[Turn]:
        requests = self._requests(plan)
        tasks = [asyncio.ensure_future(self.engine.act_on(r, ids)) for r, ids in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:  # where one has failed nobody waits for the others
            for task in tasks:
                task.cancel()

    def _whole(self, plan: _Plan, turns: list[Turn]) -> dict[str, Any]:
        choices = [self._choice(plan, number, turn) for number, turn in enumerate(turns)]
        return {**_head(plan, plan.kind), "choices": choices, "usage": _usage(plan, turns)}

    def _choice(self, plan: _Plan, number: int, turn: Turn) -> dict[str, Any]:
        thoughts, text = self._parts(plan, turn)
        choice: dict[str, Any] = {"index": number, "finish_reason": turn.finish}
        if plan.chat:
            message = {"role": "assistant", "content": text}
            choice["message"] = message | ({"reasoning_content": thoughts} if thoughts else {})
        else:
            choice["text"] = text
        return choice | self._details(plan, turn)

    def _details(self, plan: _Plan, turn: Turn) -> dict[str, Any]:
        """Logprobs as the endpoint has them; ids as vLLM gives them."""
        details: dict[str, Any] = {"logprobs": None}
        if plan.ids:
            details |= {"token_ids": turn.token_ids, "prompt_token_ids": turn.prompt_ids}
        if not plan.logprobs:
            return details
        write = chat_logprobs if plan.chat else completion_logprobs
        tokenizer = self._chat_of(plan.model).tokenizer
        return details | {"logprobs": write(tokenizer, turn.token_ids, turn.logprobs)}

    async def _stream(self, plan: _Plan) -> AsyncIterator[str]:
        """Pieces of text as they are drawn; logprobs and ids come with the last one of a choice. A
        client that hangs up cancels what is still being drawn for it."""
        pieces: asyncio.Queue[tuple[int, dict[str, str] | Turn | Exception]] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._listened(number, request, ids, plan, pieces))
            for number, (request, ids) in enumerate(self._requests(plan))
        ]
        kind = "chat.completion.chunk" if plan.chat else plan.kind
        head, turns, begun = _head(plan, kind), list[Turn](), set[int]()
        try:
            while len(turns) < len(tasks):
                number, piece = await pieces.get()
                if isinstance(piece, Exception):
                    yield _event(_failure(piece)[1])
                    return
                choice: dict[str, Any] = {"index": number, "finish_reason": None}
                new = piece if isinstance(piece, dict) else {}
                if plan.chat:  # the role once: clients join what the pieces have under one key
                    choice["delta"] = new if number in begun else {"role": "assistant", **new}
                    begun.add(number)
                else:
                    choice["text"] = new.get("content", "")
                if isinstance(piece, Turn):
                    turns.append(piece)
                    choice |= {"finish_reason": piece.finish, **self._details(plan, piece)}
                yield _event({**head, "choices": [choice]})
            if plan.usage:
                yield _event({**head, "choices": [], "usage": _usage(plan, turns)})
            yield "data: [DONE]\n\n"
        finally:
            for task in tasks:
                task.cancel()

    async def _listened(
        self, number: int, request: Request, ids: list[int], plan: _Plan, pieces: asyncio.Queue[Any]
    ) -> None:
        """Put a reply's text into the queue as far as no stop string can begin in it any more, and
        then its turn."""
        loop = asyncio.get_running_loop()
        stops = plan.sampling.stop
        held = max((len(stop) for stop in stops), default=1) - 1
        text, sent = "", {"reasoning_content": 0, "content": 0}

        def send(thoughts: str, answer: str) -> None:
            for key, part in zip(sent, (thoughts, answer), strict=True):
                if len(part) > sent[key]:
                    new = {key: part[sent[key] :]}
                    loop.call_soon_threadsafe(pieces.put_nowait, (number, new))
                    sent[key] = len(part)

        def on_text(piece: str) -> None:
            nonlocal text
            text += piece
            sure = _before_stop(text, stops)
            if sure == text:
                sure = text[: max(0, len(text) - held)]
            send(*self._so_far(plan, sure))

        self.engine.listen(request, on_text)
        try:
            turn = await self.engine.act_on(request, ids)
            whole = self._chat_of(plan.model).spoken(turn.token_ids, whole=not plan.chat)
            send(*self._so_far(plan, _before_stop(whole, stops), done=True))
            loop.call_soon(pieces.put_nowait, (number, turn))
        except Exception as error:
            pieces.put_nowait((number, error))
        finally:  # one that was never begun has not been fetched
            self.engine._listeners.pop(id(request), None)

    def _parts(self, plan: _Plan, turn: Turn) -> tuple[str, str]:
        """Thoughts and text of a reply. Where the template knows of no thoughts, a model may still
        have learned to write them."""
        stops = plan.sampling.stop
        text = _before_stop(turn.text, stops)
        if not plan.chat or turn.thoughts or self._chat_of(plan.model).thinking is not None:
            return _before_stop(turn.thoughts, stops), text
        return split_thinking(text)

    def _so_far(self, plan: _Plan, text: str, *, done: bool = False) -> tuple[str, str]:
        """Thoughts and text of a reply as far as it is there."""
        if not plan.chat:
            return "", text
        thinking = self._chat_of(plan.model).thinking
        opened = thinking is not None and thinking.opened
        return split_partial(text, opened=opened, done=done)


def serve(
    policy: str, *, sockets: list[Any], device: str, dtype: str, ready: Callable[[], None]
) -> None:
    """Load a policy, call `ready`, and answer until the process is told to stop."""
    import uvicorn

    from sparring.engines.load import load_engine

    app = Server(*load_engine(policy, device=device, dtype=dtype), policy).app()
    ready()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=sockets)


async def _unless_gone(http: HttpRequest, work: Any) -> Any:
    """What some work comes to; a client that hangs up cancels it."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.2)
            if not task.done() and await http.is_disconnected():
                raise BadRequest("the client has gone", 499)
        return task.result()
    finally:
        task.cancel()


def _before_stop(text: str, stops: tuple[str, ...]) -> str:
    """OpenAI's API leaves a stop string out of the text, and what follows it."""
    ends = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(ends)] if ends else text


def _head(plan: _Plan, kind: str) -> dict[str, Any]:
    return {"id": plan.id, "object": kind, "created": plan.made, "model": plan.model}


def _usage(plan: _Plan, turns: list[Turn]) -> dict[str, int]:
    """As OpenAI's API counts: a prompt once, however many choices it has."""
    prompt = sum(len(ids) for _, ids in plan.prompts)
    drawn = sum(len(turn.token_ids) for turn in turns)
    return {"prompt_tokens": prompt, "completion_tokens": drawn, "total_tokens": prompt + drawn}


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _failure(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and body of what has failed: for what was asked, or in the engine."""
    status, code, message = 400, None, str(error)
    if isinstance(error, BadRequest):
        status, code = error.status, error.code
    elif not isinstance(error, VoidGame | ValueError):  # too long for the cache, say
        log.error("a request failed", exc_info=error)
        status, message = 500, f"the engine failed: {error}"
    kind = "invalid_request_error" if status < 500 else "server_error"
    return status, {"error": {"message": message, "type": kind, "param": None, "code": code}}

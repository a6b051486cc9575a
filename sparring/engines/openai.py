"""Any server that speaks OpenAI's protocol, as a player: vLLM, SGLang, llama.cpp, a hosted API.

Token ids and logprobs are kept where the server gives them back; without them its turns cannot be
learned from.
"""

from __future__ import annotations

import json
from typing import Any

from sparring.core.types import Request, Turn
from sparring.engines.engine import Engine
from sparring.engines.http_client import Line, ServerFailed
from sparring.models.chat import RAW
from sparring.run.servers import ServerConfig

_SEEDS = 2**31  # some servers keep seeds in 32 bits


class OpenAIEngine(Engine):
    def __init__(self, server: ServerConfig, label: str) -> None:
        self.line = Line(server, label)
        self.gives_ids: bool | None = None  # not known before the first answer

    async def act(self, request: Request) -> Turn:
        raw = request.messages[0]["role"] == RAW
        path = "completions" if raw else "chat/completions"
        turn = await self.line.post(
            path, self.body(request), lambda data: self._turn(request, json.loads(data))
        )
        self.gives_ids = bool(turn.token_ids)
        return turn

    def body(self, request: Request) -> dict[str, Any]:
        """The request in the protocol's words."""
        server, how = self.line.server, request.sampling
        raw = request.messages[0]["role"] == RAW
        words: dict[str, Any] = (
            {"prompt": request.messages[0]["content"]}
            if raw
            else {"messages": [*request.history, *request.messages]}
        )
        body = {
            "model": server.model,
            **words,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "max_tokens": how.max_tokens,
            "seed": request.seed % _SEEDS,
            **({"top_k": how.top_k} if how.top_k else {}),
            **({"stop": list(how.stop)} if how.stop else {}),
            **({"return_token_ids": True, "logprobs": 1 if raw else True} if server.ids else {}),
            **server.body,
        }
        return {key: value for key, value in body.items() if value is not None}

    def _turn(self, request: Request, reply: dict[str, Any]) -> Turn:
        choice = reply["choices"][0]
        text, finish = reply_text(choice), choice.get("finish_reason")
        if finish == "content_filter":
            raise ServerFailed(f"{self.line.label} at {self.line.url}: a filter withheld the reply")
        self.line.count(reply)
        prompt_ids, token_ids, logprobs = ids_of(reply, choice)
        message = choice.get("message") or {}
        thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
        return Turn(
            seat=request.seat,
            policy=request.policy,
            prompt=request.messages[-1]["content"],
            text=text,
            thoughts=thoughts if isinstance(thoughts, str) else "",
            prompt_ids=prompt_ids,
            token_ids=token_ids,
            logprobs=logprobs,
            finish="length" if finish == "length" else "stop",
            temperature=request.sampling.temperature or 1.0,
        )


def reply_text(choice: dict[str, Any]) -> str:
    """The words of a choice, of either endpoint. A model that thought until its tokens were spent
    has said nothing, and one that refused has said so."""
    if "text" in choice:
        text = choice["text"]
    else:
        message = choice["message"]
        text = message.get("content")
        if text is None:
            text = message.get("refusal")
        if text is None and choice.get("finish_reason") == "length":
            text = ""
    if not isinstance(text, str):
        raise ValueError("it holds no text")
    # JSON can spell half a character, which no tokenizer takes.
    return text.encode(errors="replace").decode()


def ids_of(
    reply: dict[str, Any], choice: dict[str, Any]
) -> tuple[list[int], list[int], list[float]]:
    """Prompt ids, sampled ids and their logprobs, or nothing at all if any of them is missing."""
    nothing: tuple[list[int], list[int], list[float]] = ([], [], [])
    prompt = choice.get("prompt_token_ids") or reply.get("prompt_token_ids")
    tokens, scores = choice.get("token_ids"), choice.get("logprobs") or {}
    logprobs = scores.get("token_logprobs")
    if logprobs is None:
        logprobs = [one["logprob"] for one in scores.get("content") or []]
    if not prompt or not tokens or len(tokens) != len(logprobs):
        return nothing
    return [int(i) for i in prompt], [int(i) for i in tokens], [float(p) for p in logprobs]

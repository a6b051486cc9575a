"""Reading what a client of OpenAI's HTTP API asks for; what cannot be done is answered with the
reason."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request as HttpRequest

from sparring.models.chat import RAW

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


class BadRequest(Exception):
    """What the client asked for cannot be done; the message says why."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code = status, code


async def read_body(http: HttpRequest) -> dict[str, Any]:
    try:
        body = await http.json()
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadRequest("the request must be a JSON object")
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:  # JSON can spell one, and no tokenizer takes it
        raise BadRequest(f"the request holds half a character: {error}") from error
    return body


def read_messages(body: dict[str, Any]) -> tuple[list[dict[str, str]], list[int]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list with at least one message")
    return list(map(_message, messages)), []


def _message(message: Any) -> dict[str, str]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str) or role not in _ROLES:
        raise BadRequest(f"every message must have a role: one of {', '.join(_ROLES)}")
    content = message.get("content")
    if isinstance(content, list):
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in content):
            raise BadRequest("of the parts of a message only those of the type text can be read")
        texts = [part.get("text", "") for part in content]
        content = "".join(texts) if all(isinstance(text, str) for text in texts) else None
    if not isinstance(content, str):
        raise BadRequest("every message must have a text as its content")
    return {"role": _ROLES[role], "content": content}


def read_stops(body: dict[str, Any]) -> tuple[str, ...]:
    stop = body.get("stop") or []
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(one, str) and one for one in stops):
        raise BadRequest("stop must be a text or a list of texts, none of them empty")
    return tuple(stops)


def read_prompts(prompt: Any, words: int) -> list[tuple[list[dict[str, str]], list[int]]]:
    """A text, token ids, or several of either."""
    if isinstance(prompt, str) or (
        isinstance(prompt, list) and prompt and isinstance(prompt[0], int)
    ):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise BadRequest("prompt must be a text, token ids, or a list of either")
    prompts = []
    for one in prompt:
        text, ids = (one, []) if isinstance(one, str) else ("", one)
        if not isinstance(ids, list) or not all(type(i) is int and 0 <= i < words for i in ids):
            raise BadRequest(f"token ids must be whole numbers from 0 to {words - 1}")
        prompts.append(([{"role": RAW, "content": text}], ids))
    return prompts


def read_number(
    body: dict[str, Any], key: str, default: float, *, low: float, high: float
) -> float:
    value = body.get(key)
    if value is None:
        return default
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise BadRequest(f"{key} must be a number from {low:g} to {high:g}, not {value!r}")
    return float(value)


def read_whole(body: dict[str, Any], key: str, default: int, *, low: int, high: int) -> int:
    value = read_number(body, key, default, low=low, high=high)
    if value != int(value):
        raise BadRequest(f"{key} must be a whole number, not {value!r}")
    return int(value)


def read_logprobs(body: dict[str, Any], *, chat: bool) -> bool:
    """Whether those of the drawn tokens are asked for. A completion's are a number: of how many
    likeliest tokens there are to be besides, so that 0 asks for them."""
    asked = body.get("logprobs")
    if asked not in (None, 0, 1):  # which false and true are too
        raise BadRequest(f"logprobs are those of drawn tokens alone: 0 or 1, not {asked!r}")
    return bool(asked) if chat else asked is not None and asked is not False


def read_seed(body: dict[str, Any]) -> int | None:
    seed = body.get("seed")
    if seed is not None and type(seed) is not int:
        raise BadRequest(f"seed must be a whole number, not {seed!r}")
    return seed


def read_usage(body: dict[str, Any]) -> bool:
    """Whether a stream ends with a count of its tokens."""
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequest("stream_options must be a JSON object")
    return bool(options.get("include_usage"))

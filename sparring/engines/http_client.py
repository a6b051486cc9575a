"""A line to a server that may be slow, full, wrong or gone. What may help is tried again; what
cannot be had fails by itself, with the reason, and never with the key in it."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx

from sparring.core.errors import ConfigError, nearest
from sparring.core.types import VoidGame
from sparring.run.servers import ServerConfig, check_server, key_of

Answer = TypeVar("Answer")
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# What reading an answer of any shape at all can raise: brackets without end, endless numbers.
_RUBBISH = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
_LONGEST_WAIT_S = 60.0
_TIRED = 3  # requests in a row that failed, after which each is tried only once
_MOST_BYTES = 32 * 2**20
_QUOTED = 300  # characters of a server's answer, in a reason
_SECRET = 12  # characters that a key has at least; `none` and `test` stand for one, and are words


class ServerFailed(VoidGame):
    """A request that a server did not answer, or not with an answer."""


class _Again(Exception):
    """A failure that the next try may not meet."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


@dataclass(slots=True)
class Usage:
    requests: int = 0
    retries: int = 0
    failures: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    uncounted: int = 0  # answers without a count of tokens
    wait_s: float = 0.0


class Line:
    def __init__(self, server: ServerConfig, label: str) -> None:
        check_server(server)
        self.server, self.label = server, label
        self.url = server.url.rstrip("/")
        self.usage = Usage()
        self._key = key_of(server)
        self._in_a_row = 0
        self._next_start = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def reach(self) -> None:
        """Refuse a server that is not there, does not take the key, or lacks the model. One that
        keeps no list of models is taken at its word."""
        try:
            response = httpx.get(
                f"{self.url}/models",
                headers=self._headers(),
                timeout=min(10, self.server.timeout_s),
            )
            listed = json.loads(response.content)["data"] if response.is_success else []
            models = [str(model["id"]) for model in listed]
        except httpx.ReadTimeout:
            return
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConfigError(
                f"{self.label}: no server answers at {self.url} ({type(error).__name__}); "
                "start it, or correct the url"
            ) from None
        except _RUBBISH:
            return
        if response.status_code in (401, 403):
            raise ConfigError(
                f"{self.label}: {self.url} answered {response.status_code}; is the variable "
                f"{self.server.key} set to a key of this server?"
            )
        if models and self.server.model not in models:
            raise ConfigError(
                f"{self.label}: {self.url} has no model {self.server.model!r}; "
                f"{nearest(self.server.model, models)}"
            )

    async def models(self) -> list[dict[str, Any]]:
        """The server's list of its models; empty where it keeps none."""
        try:
            response = await self._open().get(f"{self.url}/models", headers=self._headers())
            listed = json.loads(response.content)["data"] if response.is_success else []
            return [dict(model) for model in listed]
        except (httpx.HTTPError, *_RUBBISH):
            return []

    async def post(
        self, path: str, body: dict[str, Any], read: Callable[[bytes], Answer]
    ) -> Answer:
        """What `read` makes of the answer; a KeyError and the like from it mean rubbish. A path
        is below the url, or from the server's root if it begins there."""
        tries = 1 if self._in_a_row >= _TIRED else 1 + self.server.retries
        reason, wait_s = "", 0.0
        self.usage.requests += 1
        for number in range(tries):
            if number:
                self.usage.retries += 1
                # Jitter: games that were refused together must not come back together.
                most = min(_LONGEST_WAIT_S, self.server.backoff_s * 2 ** (number - 1))
                await asyncio.sleep(wait_s + random.uniform(0, most))
            try:
                answer = await self._try(path, body, read)
            except _Again as again:
                reason, wait_s = str(again), again.wait_s
            except ServerFailed:
                self.usage.failures += 1
                raise
            else:
                self._in_a_row = 0
                return answer
        self._in_a_row += 1
        self.usage.failures += 1
        times = f"{tries} tries" if tries > 1 else "one try"
        raise ServerFailed(f"{self.label} at {self.url}: {reason} ({times})")

    async def _try(
        self, path: str, body: dict[str, Any], read: Callable[[bytes], Answer]
    ) -> Answer:
        client = self._open()
        async with self._slots:
            await self._pace()
            started = time.monotonic()
            try:
                # httpx times each read; a server that sends a byte a minute would outlive that.
                async with asyncio.timeout(self.server.timeout_s):
                    status, headers, data = await self._exchange(client, path, body)
            except TimeoutError:
                raise _Again(f"no answer within {self.server.timeout_s:g} s") from None
            except httpx.HTTPError as error:
                raise _Again(f"the connection failed: {_plain(error)}") from None
            finally:
                self.usage.wait_s += time.monotonic() - started
        if status != 200:
            self._refused(status, headers, data)
        try:
            return read(data)
        except _RUBBISH as error:
            raise _Again(
                f"the answer is none ({type(error).__name__}: {error}): {_quote(data)}"
            ) from None

    async def _exchange(
        self, client: httpx.AsyncClient, path: str, body: dict[str, Any]
    ) -> tuple[int, httpx.Headers, bytes]:
        data = bytearray()
        url = httpx.URL(f"{self.url}/").join(path)
        async with client.stream("POST", url, json=body, headers=self._headers()) as response:
            async for chunk in response.aiter_bytes():
                data += chunk
                if len(data) > _MOST_BYTES:
                    raise ServerFailed(f"{self.label} at {self.url} sends without end")
        whole = bytes(data)
        if len(self._key) >= _SECRET:  # some servers repeat it, and answers are kept
            whole = whole.replace(self._key.encode(), b"***")
        return response.status_code, response.headers, whole

    def _refused(self, status: int, headers: httpx.Headers, data: bytes) -> None:
        reason = f"it answered {status}: {_quote(data)}"
        if status not in _AGAIN:
            raise ServerFailed(f"{self.label} at {self.url}: {reason}")
        wait_s = min(_LONGEST_WAIT_S, retry_after(headers.get("retry-after", "")))
        if status == 429:
            # The limit is everyone's: no other request should run into it meanwhile.
            self._next_start = max(self._next_start, time.monotonic() + wait_s)
        raise _Again(reason, wait_s)

    async def _pace(self) -> None:
        now = time.monotonic()
        start = max(now, self._next_start)
        if self.server.requests_per_minute:
            self._next_start = start + 60 / self.server.requests_per_minute
        if start > now:
            await asyncio.sleep(start - now)

    def _open(self) -> httpx.AsyncClient:
        """The client of this event loop: connections cannot move to another one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._slots = asyncio.Semaphore(self.server.concurrency)
            self._client = httpx.AsyncClient(
                timeout=httpx.Timeout(self.server.timeout_s, pool=None),
                limits=httpx.Limits(max_connections=self.server.concurrency),
            )
        return self._client

    async def close(self) -> None:
        if self._loop is asyncio.get_running_loop():
            await self._client.aclose()
        self._loop = None

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def metrics(self) -> dict[str, float]:
        """What was used since this was last asked, as metrics."""
        used, self.usage = self.usage, Usage()
        cost = used.tokens_in * self.server.price_in + used.tokens_out * self.server.price_out
        stats = {
            "requests": used.requests,
            "retries": used.retries,
            "failures": used.failures,
            "tokens_in": used.tokens_in,
            "tokens_out": used.tokens_out,
            **({"uncounted": used.uncounted} if used.uncounted else {}),
            **({"cost": cost / 1e6} if self.server.price_in or self.server.price_out else {}),
            "wait_s": used.wait_s,
        }
        return {f"server/{self.label}/{key}": value for key, value in stats.items()}

    def count(self, reply: dict[str, Any]) -> None:
        usage = reply.get("usage")
        try:
            tokens = int(usage["prompt_tokens"]), int(usage["completion_tokens"])  # type: ignore[index]
        except _RUBBISH:
            self.usage.uncounted += 1
        else:
            self.usage.tokens_in += tokens[0]
            self.usage.tokens_out += tokens[1]


def retry_after(text: str) -> float:
    """Seconds to wait, from a header that holds seconds or a date; 0 for anything else."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _quote(data: bytes) -> str:
    """What a server had to say, in short."""
    text = data.decode(errors="replace")
    try:
        answer = json.loads(text)
        answer = answer.get("error", answer)
        text = str(answer.get("message", answer) if isinstance(answer, dict) else answer)
    except _RUBBISH:
        pass
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _plain(error: Exception) -> str:
    return " ".join(f"{type(error).__name__} {error}".split())

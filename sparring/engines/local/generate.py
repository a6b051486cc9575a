"""Speaking with any causal language model of transformers: the way for models and devices that have
no faster one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from sparring.core.types import Sampling
from sparring.engines.local.masking import Trie, mask_logits
from sparring.engines.local.sampling import draw, uniforms
from sparring.models.chat import Chat
from sparring.run import interrupt


@dataclass(slots=True)
class Reply:
    token_ids: list[int]
    logprobs: list[float]
    finish: str
    allowed: list[list[int]] = field(default_factory=list)


@torch.inference_mode()
def generate(
    model: Any,
    chat: Chat,
    prompts: Sequence[list[int]],
    samplings: Sequence[Sampling],
    seeds: Sequence[int],
    ears: Sequence[Callable[[int], None] | None] = (),
    tries: Sequence[Trie | None] = (),
) -> list[Reply]:
    """A reply per prompt. Prompts that several rows share are read once. `ears` hear each token
    of theirs as it is drawn."""
    device = model.device
    state = _Rows(model, prompts, samplings, seeds, device)
    logits = state.prefill(chat.tokenizer.pad_token_id)
    ends = end_ids(model, chat.tokenizer)
    replies = [Reply([], [], "length") for _ in prompts]
    longest = max(s.max_tokens for s in samplings)
    for step in range(longest):
        interrupt.check()
        noise = uniforms(state.seeds, step)
        allowed = [next_tokens(tries[row] if tries else None, replies[row]) for row in state.rows]
        logits = mask_logits(logits, allowed)
        tokens, logprobs = draw(logits, state.temperature, state.top_k, state.top_p, noise)
        alive = []
        for i, (row, token, logprob) in enumerate(
            zip(state.rows, tokens.tolist(), logprobs.tolist(), strict=True)
        ):
            reply = replies[row]
            append_token(reply, token, logprob, allowed[i])
            ear = ears[row] if ears else None
            if ear is not None:
                ear(token)
            stops = samplings[row].stop
            complete = allowed[i] and not next_tokens(tries[row], reply)
            stop = token in ends or (stops and stopped(chat, reply.token_ids, stops))
            if stop or complete:
                reply.finish = "stop"
            elif step + 1 < samplings[row].max_tokens:
                alive.append(i)
        if not alive:
            break
        tokens = state.keep(alive, tokens)
        logits = state.decode(tokens)
    return replies


def next_tokens(trie: Trie | None, reply: Reply) -> list[int]:
    return trie.allowed(reply.token_ids) if trie else []


def append_token(reply: Reply, token: int, logprob: float, allowed: list[int]) -> None:
    reply.token_ids.append(token)
    reply.logprobs.append(logprob)
    if allowed:
        reply.allowed.append(allowed)


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


def end_ids(model: Any, tokenizer: Any) -> set[int]:
    configured = getattr(model.generation_config, "eos_token_id", None)
    ends = configured if isinstance(configured, list) else [configured]
    return {i for i in [*ends, tokenizer.eos_token_id] if i is not None}


def stopped(chat: Chat, token_ids: list[int], stops: tuple[str, ...]) -> bool:
    # No token is shorter than a byte, so this many hold the longest stop that can just have ended.
    reach = max(len(stop.encode()) for stop in stops) + 8
    tail = chat.decode(token_ids[-reach:])
    return any(stop in tail for stop in stops)

"""Speaking with any causal language model of transformers: the way for models and devices that have
no faster one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import DynamicCache

from sparring.core.types import VoidGame
from sparring.engines.local.rows import Row
from sparring.engines.local.sampling import draw, mask_logits, uniforms
from sparring.models.chat import Chat
from sparring.models.device import out_of_memory
from sparring.models.policies import Policies
from sparring.run import interrupt

log = logging.getLogger(__name__)


class PlainRunner:
    """Rows of models that have no faster way, in batches of one policy: all that wait are served to
    the last before others are. What a row's numbers are depends on who shares its batch."""

    row_invariant = False

    def __init__(self, policies: Policies, chat: Chat, max_rows: int) -> None:
        self.policies, self.chat, self.max_rows = policies, chat, max_rows
        self.waiting: list[Row] = []

    @property
    def busy(self) -> bool:
        return bool(self.waiting)

    def add(self, row: Row) -> None:
        self.waiting.append(row)

    def adapter(self, name: str | None, revision: tuple[int, int]) -> int:
        return -1

    def abort(self, error: Exception) -> list[Row]:
        rows, self.waiting = self.waiting, []
        for row in rows:
            row.error = error
        return rows

    def round(self) -> list[Row]:
        self.waiting = [row for row in self.waiting if not row.cancelled()]
        if not self.waiting:
            return []
        policy = self.waiting[0].policy
        rows = [row for row in self.waiting if row.policy == policy][: self.max_rows]
        chosen = {id(row) for row in rows}
        self._fitted(policy[0], rows)
        self.waiting = [row for row in self.waiting if id(row) not in chosen]
        return rows

    def _fitted(self, policy: str, rows: list[Row]) -> None:
        """Generate; where memory does not hold all rows, in halves. One that does not fit alone
        fails by itself."""
        try:
            with self.policies.using(policy) as model:
                generate(model, self.chat, rows)
            return
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            if len(rows) == 1:
                rows[0].error = VoidGame(f"one request alone does not fit the memory: {error}")
                return
        log.warning("%d requests at once do not fit the memory: half as many are tried", len(rows))
        for row in rows:
            row.token_ids, row.logprobs, row.allowed, row.finish = [], [], [], ""
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        half = len(rows) // 2
        self._fitted(policy, rows[:half])
        self._fitted(policy, rows[half:])


@torch.inference_mode()
def generate(model: Any, chat: Chat, rows: Sequence[Row]) -> None:
    """Draw the rows' replies. Prompts that several rows share are read once."""
    state = _Rows(model, rows, model.device)
    logits = state.prefill(chat.tokenizer.pad_token_id)
    ends = frozenset(end_ids(model, chat))
    for step in range(max(row.sampling.max_tokens for row in rows)):
        interrupt.check()
        noise = uniforms(state.seeds, step)
        logits = mask_logits(logits, [row.next_tokens for row in state.rows])
        tokens, logprobs = draw(logits, state.temperature, state.top_k, state.top_p, noise)
        for row, token, logprob in zip(state.rows, tokens.tolist(), logprobs.tolist(), strict=True):
            row.append([token], [logprob], ends, partial(stopped, chat))
        alive = [i for i, row in enumerate(state.rows) if not row.finish]
        if not alive:
            break
        tokens = state.keep(alive, tokens)
        logits = state.decode(tokens)


class _Rows:
    """The rows of one batch that still speak, with their cache. L is the padded prompt length."""

    def __init__(self, model: Any, rows: Sequence[Row], device: torch.device) -> None:
        def column(values: list[Any], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        self.model, self.prompts = model, [row.prompt for row in rows]
        self.rows = list(rows)
        samplings = [row.sampling for row in rows]
        self.seeds = column([row.seed for row in rows], torch.int64)
        self.temperature = column([s.temperature for s in samplings], torch.float32)
        self.top_k = column([s.top_k for s in samplings], torch.int64)
        self.top_p = column([s.top_p for s in samplings], torch.float32)
        self.single = max(s.max_tokens for s in samplings) == 1
        self.lengths = column([len(p) for p in self.prompts], torch.int64)
        self.cache: Any = None
        self.mask = torch.empty(0)

    def prefill(self, pad: int) -> torch.Tensor:
        """Logits after each prompt; equal prompts share one row of the forward pass."""
        device = self.model.device
        unique = list(dict.fromkeys(map(tuple, self.prompts)))
        index_of = {prompt: i for i, prompt in enumerate(unique)}
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
        where = torch.tensor([index_of[tuple(p)] for p in self.prompts], device=device)
        if self.cache is not None and len(unique) < len(self.prompts):
            self.cache.reorder_cache(where)
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
        # `batch_select_indices`, which is named for it, knows no layers of linear attention.
        self.cache.reorder_cache(index)
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


def end_ids(model: Any, chat: Chat) -> set[int]:
    """The tokens that end a reply: the model's own, and the one that the template closes a reply
    with, which base models with a template (Qwen's, say) name nowhere else."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ends = configured if isinstance(configured, list) else [configured]
    named = {i for i in [*ends, chat.tokenizer.eos_token_id] if i is not None}
    return named | {chat.end_id}


def stopped(chat: Chat, token_ids: list[int], stops: tuple[str, ...]) -> bool:
    # No token is shorter than a byte, so this many hold the longest stop that can just have ended.
    reach = max(len(stop.encode()) for stop in stops) + 8
    tail = chat.decode(token_ids[-reach:])
    return any(stop in tail for stop in stops)

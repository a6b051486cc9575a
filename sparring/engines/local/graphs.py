"""Continuous batching: rows come and go between steps, prompts are read in groups of like length,
one that several rows share is read once, and the decode step is a captured graph with sampling
and logprobs inside it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local.decoder import Cache, Decoder
from sparring.engines.local.generate import Reply
from sparring.engines.local.masking import mask_logits
from sparring.engines.local.rows import Row, by_budget
from sparring.engines.local.sampling import draw as draw_cut
from sparring.engines.local.sampling import uniforms
from sparring.engines.local.slots import CHUNK, Slots
from sparring.run import interrupt

READ = 65536  # tokens of prompt read at a time
SIZES = (1, 4, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)


def speaker(model: Any, slots: Slots, chat: Any) -> Speaker:
    """Fuse a model's weights and give it a voice."""
    with torch.inference_mode(False), torch.no_grad():
        decoder = Decoder.of(model, model.config.max_position_embeddings, spare=CHUNK)
    return Speaker(decoder, slots, chat)


class Speaker:
    """A decoder on slots: takes rows, gives replies."""

    def __init__(self, decoder: Decoder, slots: Slots, chat: Any) -> None:
        self.decoder, self.slots, self.chat = decoder, slots, chat
        self.epoch = -1
        self.ends: set[int] = set()
        self.seats: list[str | None] = [None]

    @torch.inference_mode()
    def speak(self, rows: Sequence[Row], seats: list[str | None], ends: set[int]) -> list[Reply]:
        """A reply per row. `seats` are the adapters in play, by peft's names; rows say which.
        `ends` are the tokens that end a reply."""
        self.ends = ends
        self.decoder.check_length(max(row.needs for row in rows))
        self.slots.fit(len(rows), max(row.needs for row in rows) + CHUNK)
        if self.epoch != self.slots.epoch:
            self._make_buffers()
            self.epoch = self.slots.epoch  # not before: their memory may not be there either
        self.seats = seats
        if self.decoder.lora:
            self.decoder.seat(seats)
        try:
            self._serve(deque(rows))
        except BaseException:  # as when memory runs out: who sat where is of no use any more
            self.slots.clear()
            raise
        return [row.reply for row in rows]

    def _serve(self, queue: deque[Row]) -> None:
        active = list[Row]()
        while queue or active:
            interrupt.check()
            entering = list[Row]()
            while queue and self.slots.take(queue[0]):
                entering.append(queue.popleft())
            if entering:
                self._read(entering)
            active = self._settle([*active, *entering])
            if active:
                self._decode(active)
                active = self._settle(active)

    def _settle(self, rows: list[Row]) -> list[Row]:
        for row in rows:
            if row.done:
                self.slots.leave(row)
        return [row for row in rows if not row.done]

    def _make_buffers(self) -> None:
        self.decoder.graphs.clear()
        most, device = self.slots.count, self.slots.device
        self.token = torch.zeros(most, dtype=torch.int64, device=device)
        self.position = torch.zeros_like(self.token)
        self.slot = torch.full_like(self.token, self.slots.count)
        self.seed = torch.zeros_like(self.token)
        self.who = torch.zeros_like(self.token)
        self.temperature = torch.ones(most, dtype=torch.float32, device=device)
        self.logprob = torch.zeros_like(self.temperature)
        self.logits = torch.zeros(
            most, len(self.decoder.head), dtype=self.slots.dtype, device=device
        )

    # ── reading prompts ─────────────────────────────────────────────────────────────────────────

    def _read(self, rows: list[Row]) -> None:
        """Read what is new of each prompt and draw each row's first token."""
        first: dict[tuple[Any, ...], Row] = {}
        twins: list[tuple[Row, Row]] = []
        for row in rows:
            same = None if row.read else first.setdefault((row.policy, tuple(row.prompt)), row)
            if same not in (None, row):
                twins.append((row, same))
        copies = {id(row) for row, _ in twins}
        readers = [row for row in rows if id(row) not in copies]
        last = {}
        for group in by_budget(readers, READ):
            for row, hidden in zip(group, self._read_group(group), strict=True):
                last[id(row)] = hidden
        for row in readers:
            row.read = len(row.prompt)
        for row, source in twins:
            last[id(row)] = last[id(source)]
        self._copy(twins)
        for start in range(0, len(rows), 512):
            part = rows[start : start + 512]
            hidden = torch.stack([last[id(row)] for row in part])
            self._draw_first(part, F.linear(hidden, self.decoder.head))

    def _read_group(self, rows: list[Row]) -> Tensor:
        """The last hidden state of each row's prompt. Padded on the right: a token sees only what
        comes before it, and what padding leaves in a slot is written over before it is seen."""
        new = [row.prompt[row.read :] for row in rows]
        width = max(map(len, new))
        ids_RT = self._whole([ids + [0] * (width - len(ids)) for ids in new])
        begin_R = self._whole([row.read for row in rows])
        slot_R = self._whole([row.slot for row in rows])
        position_RT = begin_R[:, None] + torch.arange(width, device=ids_RT.device)
        # Only padding reaches so far: the last position is kept for a token that is still to come.
        position_RT = position_RT.clamp(max=min(self.slots.places, self.decoder.limit) - 1)
        seen = max(row.read for row in rows) + width
        mask = None
        if any(row.read for row in rows):
            place = torch.arange(min(seen, self.slots.places), device=ids_RT.device)
            mask = place <= position_RT[:, None, :, None]

        def attend(q: Tensor, cache: Cache) -> Tensor:
            keys, values = (tensor[slot_R, :, :seen] for tensor in cache)
            q_RQTD = q.view(len(rows), width, *q.shape[1:]).transpose(1, 2)
            out = F.scaled_dot_product_attention(
                q_RQTD, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
            return out.transpose(1, 2).reshape(len(rows) * width, -1)

        hidden = self._hidden(
            ids_RT.flatten(),
            position_RT.flatten(),
            slot_R.repeat_interleave(width),
            rows[0].who,
            attend,
        ).view(len(rows), width, -1)
        ends = self._whole([len(ids) - 1 for ids in new])
        return hidden[torch.arange(len(rows), device=ids_RT.device), ends]

    def _copy(self, twins: list[tuple[Row, Row]]) -> None:
        if not twins or all(row.sampling.max_tokens == 1 for row, _ in twins):
            return
        longest = max(len(row.prompt) for row, _ in twins)
        to, source = ([row.slot for row in side] for side in zip(*twins, strict=True))
        for i in range(self.slots.layers):  # one layer at a time: the gathered copy is small
            for tensor in self.slots.layer(i):
                tensor[to, :, :longest] = tensor[source, :, :longest]
        for row, _ in twins:
            row.read = len(row.prompt)

    def _draw_first(self, rows: list[Row], logits: Tensor) -> None:
        from sparring.engines.local import kernels

        temperature = torch.tensor(
            [row.sampling.temperature for row in rows], device=logits.device, dtype=torch.float32
        )
        seed, position = (
            self._whole([row.seed for row in rows]),
            self._whole([len(row.prompt) - 1 for row in rows]),
        )
        token, logprob = kernels.draw(logits.contiguous(), temperature, seed, position)
        token, logprob = self._cut(rows, logits, temperature, seed, position, token, logprob)
        for row, t, p in zip(rows, token.tolist(), logprob.tolist(), strict=True):
            row.hear(t, p, self.ends, self.chat)

    # ── speaking ────────────────────────────────────────────────────────────────────────────────

    def _decode(self, rows: list[Row]) -> None:
        """CHUNK steps for all rows; what a row draws after its end is not heard."""
        size = next((s for s in SIZES if s >= len(rows)), self.slots.count)
        size = min(size, self.slots.count)
        step = self._step_of(size)
        n, spare = len(rows), [0] * (size - len(rows))
        places = [len(row.prompt) + len(row.reply.token_ids) - 1 for row in rows]
        self.token[:size] = self._whole([row.reply.token_ids[-1] for row in rows] + spare)
        self.position[:size] = self._whole(places + spare)
        self.slot[:size] = self._whole([row.slot for row in rows] + [self.slots.count] * len(spare))
        self.seed[:size] = self._whole([row.seed for row in rows] + spare)
        self.who[:size] = self._whole([row.who for row in rows] + spare)
        self.temperature[:n] = torch.tensor(
            [row.sampling.temperature for row in rows], device=self.token.device
        )
        tokens, logprobs = [], []
        # What a masked row may draw next depends on what it has drawn.
        steps = 1 if any(row.trie for row in rows) else CHUNK
        for _ in range(min(steps, max(_left(row) for row in rows))):
            step()
            if any(_is_cut(row) for row in rows):
                self.token[:n], self.logprob[:n] = self._cut(
                    rows,
                    self.logits[:n],
                    self.temperature[:n],
                    self.seed[:n],
                    self.position[:n] - 1,
                    self.token[:n],
                    self.logprob[:n],
                )
            tokens.append(self.token[:n].clone())
            logprobs.append(self.logprob[:n].clone())
        said = torch.stack(tokens).T.tolist()
        how = torch.stack(logprobs).T.tolist()
        for row, ids, values in zip(rows, said, how, strict=True):
            for t, p in zip(ids, values, strict=True):
                if not row.done:
                    row.hear(t, p, self.ends, self.chat)

    def _step_of(self, size: int) -> Any:
        """The decode step for so many rows: a captured graph on a GPU."""
        if self.slots.device.type != "cuda":
            return lambda: self._step(size)
        key = (size, len(self.seats), self.seats == [None])
        graph = self.decoder.graphs.get(key)
        if graph is None:
            self.slot[:size] = self.slots.count  # what warming up writes, nobody reads
            self.position[:size] = 0
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self._step(size)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            # Of this thread alone: another one may be learning, and allocate, meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._step(size)
            self.decoder.graphs[key] = graph
        return graph.replay

    def _step(self, size: int) -> None:
        from sparring.engines.local import kernels

        position, slot = self.position[:size], self.slot[:size]
        hidden = self._hidden(
            self.token[:size],
            position,
            slot,
            self.who[:size] if len(self.seats) > 1 else 0,
            lambda q, cache: kernels.attend(q, cache, position, slot),
        )
        torch.mm(hidden, self.decoder.head.T, out=self.logits[:size])
        token, logprob = kernels.draw(
            self.logits[:size], self.temperature[:size], self.seed[:size], position
        )
        self.token[:size].copy_(token)
        self.logprob[:size].copy_(logprob)
        position.add_(1)

    def _hidden(
        self,
        ids_N: Tensor,
        position_N: Tensor,
        slot_N: Tensor,
        who: Tensor | int,
        attend: Callable[[Tensor, Cache], Tensor],
    ) -> Tensor:
        """The last hidden state of every token; its keys and values are left in its slot."""
        from sparring.engines.local import kernels

        decoder, slots = self.decoder, self.slots

        def look(i: int, qkv: Tensor) -> Tensor:
            cache, norms = slots.layer(i), decoder.layers[i].head_norms
            q = kernels.rotate(qkv, decoder.rope, position_N, slot_N, cache, norms, decoder.eps)
            return attend(q, cache)

        return decoder.hidden(ids_N, who, kernels, look)

    def _cut(
        self,
        rows: list[Row],
        logits: Tensor,
        temperature: Tensor,
        seed: Tensor,
        position: Tensor,
        token: Tensor,
        logprob: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """The rows that ask for top-k, top-p or legal actions draw again, from what is left."""
        if not any(_is_cut(row) for row in rows):
            return token, logprob
        top_k = self._whole([row.sampling.top_k for row in rows])
        top_p = torch.tensor([row.sampling.top_p for row in rows], device=logits.device)
        logits = mask_logits(logits, [row.allowed for row in rows])
        again, how = draw_cut(logits, temperature, top_k, top_p, uniforms(seed + position, 0))
        cut = torch.tensor([_is_cut(row) for row in rows], device=logits.device)
        return torch.where(cut, again, token), torch.where(cut, how, logprob)

    def _whole(self, values: Sequence[Any]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.slots.device)


def _left(row: Row) -> int:
    return row.sampling.max_tokens - len(row.reply.token_ids)


def _is_cut(row: Row) -> bool:
    return row.sampling.top_k > 0 or row.sampling.top_p < 1 or row.trie is not None

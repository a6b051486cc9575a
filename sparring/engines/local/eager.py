"""Speaking in batches on a CPU, step by step: a batch's keys and values are one block, prompts that
several rows share are read once, and a conversation that goes on reads only what is new.

Shapes: R rows, T tokens of each, N all of them, D head, K key heads, G queries to each, S places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local import torch_ops
from sparring.engines.local.blocks import Block, Kept, Place, make_block
from sparring.engines.local.decoder import Decoder, Who, cache_shape
from sparring.engines.local.generate import Reply
from sparring.engines.local.masking import mask_logits
from sparring.engines.local.rows import Row, by_budget
from sparring.engines.local.sampling import draw, uniforms
from sparring.models.chat import Chat
from sparring.run import interrupt

READ = 1024  # tokens of prompt read at a time: what a layer makes of them stays in the cache
AHEAD = 64  # places that a block begins with, and grows by, for what will be said
Look = Callable[[int, Tensor], Tensor]


class EagerSpeaker:
    """A decoder without captured graphs: takes rows, gives replies."""

    def __init__(self, model: Any, kept: Kept, chat: Chat) -> None:
        with torch.inference_mode(False), torch.no_grad():
            self.decoder = Decoder.of(model, model.config.max_position_embeddings)
        self.kept, self.chat = kept, chat
        self.shape = cache_shape(model.config)
        self.seats: list[str | None] = [None]
        self.ends: set[int] = set()

    @torch.inference_mode()
    def speak(self, rows: Sequence[Row], seats: list[str | None], ends: set[int]) -> list[Reply]:
        """A reply per row. `seats` are the adapters in play, by peft's names; rows say which.
        `ends` are the tokens that end a reply."""
        self.decoder.check_length(max(row.needs for row in rows))
        self.seats, self.ends = seats, ends
        if self.decoder.lora:
            self.decoder.seat(seats)
        places = {id(row): place for row in rows if (place := self.kept.find(row)) is not None}
        for part in self._parts(rows):
            self._speak(part, places)
        for place in places.values():
            self.kept.leave(place)
        return [row.reply for row in rows]

    def _parts(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Rows whose block fits the memory, those of like length together; one row always does."""
        layers, heads, width = self.shape
        each = 2 * layers * heads * width * self.decoder.head.element_size()
        parts: list[list[Row]] = []
        for row in sorted(rows, key=lambda r: r.needs):
            if parts and (len(parts[-1]) + 1) * row.needs * each <= self.kept.most:
                parts[-1].append(row)
            else:
                parts.append([row])
        return parts

    def _speak(self, rows: list[Row], places: dict[int, Place]) -> None:
        leaders = _leaders(rows, places)
        first = list(dict.fromkeys(leaders))
        for row in first:
            row.read = places[id(row)].length if id(row) in places else 0
        groups = by_budget(first, READ)
        readers = [row for group in groups for row in group]
        twins = [
            (row, leader) for row, leader in zip(rows, leaders, strict=True) if row is not leader
        ]
        seated = readers + [row for row, _ in twins if row.sampling.max_tokens > 1]
        for slot, row in enumerate(seated):
            row.slot = slot
        longest = max(len(row.prompt) + min(row.sampling.max_tokens, AHEAD) for row in rows)
        block = make_block(self.shape, len(seated), longest, self.decoder.head)
        _bring(block, [(row, places[id(row)]) for row in readers if row.read])
        hidden = torch.cat([self._read(block, group) for group in groups])
        where = torch.tensor([leader.slot for leader in leaders])
        self._draw(rows, F.linear(hidden, self.decoder.head)[where], 0)
        going = [(row.slot, leader) for row, leader in twins if not row.done]
        if going:
            sources = [leader.slot for _, leader in going]
            longest = max(len(leader.prompt) for _, leader in going)
            block.copy([slot for slot, _ in going], block, sources, longest)
        self._go_on(block, seated)
        self.kept.add(block, list(map(_place, rows, leaders, repeat(block))))

    # ── reading prompts ─────────────────────────────────────────────────────────────────────────

    def _read(self, block: Block, rows: list[Row]) -> Tensor:
        """The last hidden state of each row's prompt, of rows in consecutive slots. Padded on the
        right: a token sees only what comes before it, and what padding leaves behind is written
        over before it is seen."""
        new = [row.prompt[row.read :] for row in rows]
        width = max(map(len, new))
        ids_RT = torch.tensor([ids + [0] * (width - len(ids)) for ids in new])
        begin_R = torch.tensor([row.read for row in rows])
        position_RT = begin_R[:, None] + torch.arange(width)
        position_RT = position_RT.clamp(max=block.places - 1)
        who: Who = rows[0].who
        hidden = self._pass(block, ids_RT, position_RT, rows[0].slot, who)
        last_R = torch.tensor([len(ids) - 1 for ids in new])
        return hidden[torch.arange(len(rows)), last_R]

    def _pass(
        self, block: Block, ids_RT: Tensor, position_RT: Tensor, slot: int, who: Who
    ) -> Tensor:
        """The hidden states of the next tokens of some rows, from this slot on."""
        rows, width = ids_RT.shape
        begins = position_RT[:, 0]
        fresh = not bool(begins.any())
        seen = width if fresh else int(position_RT.max()) + 1
        level = width == 1 and bool((begins == begins[0]).all())
        mask = None
        if not fresh and not level:
            hidden_RT = torch.arange(seen) > position_RT[:, None, :, None]
            mask = torch.zeros(hidden_RT.shape, dtype=self.decoder.head.dtype)
            mask.masked_fill_(hidden_RT, -torch.inf)
        decoder, (_, heads, size) = self.decoder, self.shape
        rope = torch_ops.rope_at(decoder.rope, position_RT.flatten())
        slot_R1 = torch.arange(slot, slot + rows)[:, None]

        def look(i: int, qkv: Tensor) -> Tensor:
            norms = decoder.layers[i].head_norms
            q, k, v = torch_ops.turn(qkv, heads, size, rope, norms, decoder.eps)
            cache = block.layer(i)
            for tensor, new in zip(cache, (k, v), strict=True):
                new_RTKD = new.reshape(rows, width, heads, size)
                if fresh:
                    tensor[slot : slot + rows, :, :width] = new_RTKD.transpose(1, 2)
                else:
                    tensor[slot_R1, :, position_RT] = new_RTKD
            keys, values = (tensor[slot : slot + rows, :, :seen] for tensor in cache)
            return _attend(q.view(rows, width, -1, size), keys, values, mask, fresh)

        return decoder.hidden(ids_RT.flatten(), who, torch_ops, look).view(rows, width, -1)

    # ── speaking ────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, block: Block, rows: list[Row]) -> None:
        """The rows that are not done, in slot order, until all are."""
        step = 0
        while rows := _close_up(block, rows):
            interrupt.check()
            step += 1
            token_R1 = torch.tensor([row.reply.token_ids[-1:] for row in rows])
            places = [len(row.prompt) + step - 1 for row in rows]
            if max(places) >= block.places:
                block.grow(block.places + max(AHEAD, block.places // 2))
            place_R1 = torch.tensor(places)[:, None]
            hidden = self._pass(block, token_R1, place_R1, 0, self._who(rows))
            self._draw(rows, F.linear(hidden[:, 0], self.decoder.head), step)

    def _who(self, rows: list[Row]) -> Who:
        if len(self.seats) == 1:
            return 0
        return [
            (who, torch.tensor(mine))
            for who, seat in enumerate(self.seats)
            if seat is not None and (mine := [i for i, r in enumerate(rows) if r.who == who])
        ]

    def _draw(self, rows: list[Row], logits: Tensor, step: int) -> None:
        samplings = [row.sampling for row in rows]
        tokens, logprobs = draw(
            mask_logits(logits, [row.allowed for row in rows]),
            torch.tensor([s.temperature for s in samplings], dtype=torch.float32),
            torch.tensor([s.top_k for s in samplings]),
            torch.tensor([s.top_p for s in samplings], dtype=torch.float32),
            uniforms(torch.tensor([row.seed for row in rows], dtype=torch.int64), step),
        )
        for row, t, p in zip(rows, tokens.tolist(), logprobs.tolist(), strict=True):
            row.hear(t, p, self.ends, self.chat)


def _attend(
    q_RTQD: Tensor, keys_RKSD: Tensor, values_RKSD: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    rows, width, heads, size = q_RTQD.shape
    owners = keys_RKSD.shape[1]
    if width == 1:  # the queries to one key head stand in a line: no key is copied for each
        q = q_RTQD.view(rows, owners, heads // owners, size)
        out = F.scaled_dot_product_attention(q, keys_RKSD, values_RKSD, attn_mask=mask)
        return out.reshape(rows, heads * size)
    out = F.scaled_dot_product_attention(
        q_RTQD.transpose(1, 2),
        keys_RKSD,
        values_RKSD,
        attn_mask=mask,
        is_causal=causal,
        enable_gqa=heads != owners,
    )
    return out.transpose(1, 2).reshape(rows * width, heads * size)


def _bring(block: Block, going_on: list[tuple[Row, Place]]) -> None:
    """Copy what rows that go on have read already from where it is kept."""
    for source in dict.fromkeys(place.block for _, place in going_on):
        some = [(row, place) for row, place in going_on if place.block is source]
        block.copy(
            [row.slot for row, _ in some],
            source,
            [place.row.slot for _, place in some],
            max(place.length for _, place in some),
        )


def _leaders(rows: list[Row], places: dict[int, Place]) -> list[Row]:
    """For each row the one that reads its prompt: of those who share one, the first whose
    conversation is at hand, or else the first."""
    prompts = [(row.policy, tuple(row.prompt)) for row in rows]
    first: dict[tuple[Any, ...], Row] = {}
    for row, prompt in zip(rows, prompts, strict=True):
        known = first.setdefault(prompt, row)
        if id(row) in places and id(known) not in places:
            first[prompt] = row
    return [first[prompt] for prompt in prompts]


def _place(row: Row, leader: Row, block: Block) -> Place:
    said = row.reply.token_ids
    where = leader if len(said) == 1 else row
    return Place(row.prompt, row.policy, block, where, len(row.prompt) + len(said) - 1)


def _close_up(block: Block, rows: list[Row]) -> list[Row]:
    """The rows that are not done, moved to the first slots of the block."""
    alive = [row for row in rows if not row.done]
    if not alive or len(alive) == len(rows):
        return alive
    gone = [row for row in rows if row.done]
    holes = [row for row in gone if row.slot < len(alive)]
    movers = [row for row in alive if row.slot >= len(alive)]
    if holes:
        length = max(len(row.prompt) + len(row.reply.token_ids) for row in rows)
        block.swap([row.slot for row in holes], [row.slot for row in movers], length)
        for hole, mover in zip(holes, movers, strict=True):
            hole.slot, mover.slot = mover.slot, hole.slot
    return sorted(alive, key=lambda row: row.slot)

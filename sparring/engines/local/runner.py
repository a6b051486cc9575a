"""Computes what the scheduler plans: reads prompts and draws tokens for the rows of one model over
a paged cache. On a GPU with Triton's kernels and captured decode steps, on a CPU with plain torch.

A row's numbers do not depend on who shares its pass. Matrix products are padded to numbers of rows
that give each row the same bits (`row_counts` tries them on the model's own weights), attention
sums positions up in an order that the row alone decides, and each request has its own seed.

On a GPU the next chunk of steps is queued before the last one's tokens are read. A row whose end
the host has not seen yet is drawn for in vain, and what it drew is dropped. Blocks that it gave
back meanwhile are safe to use again: the device computes in the order in which work is queued.

Shapes: N tokens, B rows, V vocabulary, W blocks of a row.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sparring.engines.local import row_cache, torch_ops
from sparring.engines.local.cache_tensors import CacheTensors
from sparring.engines.local.decode_state import DecodeState
from sparring.engines.local.decoder import Decoder
from sparring.engines.local.generate import stopped
from sparring.engines.local.paged_cache import BLOCK
from sparring.engines.local.pages import CHUNK, TILE, Readback, reading, upload
from sparring.engines.local.row_cache import RowCache
from sparring.engines.local.row_counts import READ, READ_CPU, RowCounts
from sparring.engines.local.rows import Row, draw_again
from sparring.engines.local.scheduler import Scheduler, Span, positions_after
from sparring.models.device import out_of_memory
from sparring.run import interrupt

log = logging.getLogger(__name__)

STEPS = 16  # decode steps between two looks at what was drawn, at most, and on a GPU
STEPS_TIME = 0.02  # no more than take so many seconds: the host is quicker than that
IN_VAIN = 8  # on a CPU one more for each so many tokens of the shortest reply: of what is computed
# for a row, the part that comes after its end, and is dropped, stays small
TIMED_STEPS = 2  # of each size at a time, of which the faster counts
HEAD_ROWS = 512  # rows of logits at a time

Drawn = tuple[list[Row], Tensor, Tensor]  # rows with a token and a logprob of each


class Runner:
    """One model, its cache and its scheduler."""

    def __init__(
        self,
        model: Any,
        chat: Any,
        *,
        kernels: bool,
        max_rows: int = 512,
        cache_bytes: int | None = None,
        invariant: bool = True,
    ) -> None:
        with torch.inference_mode(False), torch.no_grad():
            self.decoder = Decoder.of(model)
        self.device, self.dtype = model.device, model.dtype
        self._stopped = partial(stopped, chat)  # by a stop string
        self.kit: Any = torch_ops
        if kernels:
            from sparring.engines.local import kernels as triton_kernels

            self.kit = triton_kernels
        self.ends: frozenset[int] = frozenset()
        self.captures = self.looks_ahead = self.device.type == "cuda"
        self._read_size = self.read_size = READ if self.captures else READ_CPU
        self._max_rows = max_rows
        this = weakref.proxy(self)  # a cycle would keep the weights of policies that are gone
        self.memory = CacheTensors(
            self.decoder.shape, self.dtype, self.device, cache_bytes, partial(Runner._moves, this)
        )
        self.cache = self.memory.blocks
        self.row_cache = RowCache(self.memory)
        self.scheduler = Scheduler(
            self.cache, max_rows=max_rows, grow=self.memory.grow,
            grow_to_keep=self.memory.grow_to_keep, capacity=self.memory.capacity,
            on_release=self.row_cache.release,
        )  # fmt: skip
        # Laid side by side, and their revisions; None: not asked for since weights moved.
        self._adapters: dict[str, tuple[int, int] | None] = {}
        self._adapters_moved = False
        self._moves()
        self._counts = RowCounts(self.decoder, self.device, max_rows, invariant)
        self._in_flight = list[Readback]()  # queued and not read yet, oldest first
        self._first_tokens = list[Tensor]()  # that this round has drawn

    def add(self, row: Row) -> None:
        if row.needs > self.decoder.limit:  # kernels do not look where the rotary table ends
            raise ValueError(
                f"a prompt and its reply need {row.needs} positions, "
                f"and the model has {self.decoder.limit}"
            )
        self.scheduler.add(row)

    @property
    def busy(self) -> bool:
        """Whether weights are in use: also by steps for rows that are all gone."""
        return self.scheduler.busy or bool(self._in_flight)

    @property
    def row_invariant(self) -> bool:
        return self._counts.invariant

    def abort(self, error: Exception) -> list[Row]:
        """Drop all rows, with an error that is none of theirs."""
        self._in_flight.clear()
        rows = self.scheduler.drop_all()
        self.cache.copies.clear()
        self.row_cache.clear()
        for row in rows:
            row.error = error
        return rows

    def adapter(self, name: str | None, revision: tuple[int, int]) -> int:
        """The number by which rows ask for an adapter of peft's with this name."""
        if name is None or not self.decoder.lora:
            return -1
        if self._adapters.get(name) != revision:
            if name not in self._adapters:  # in the position of one that nobody asked for, if any
                free = next((key for key, last in self._adapters.items() if last is None), None)
                own = {name if key == free else key: r for key, r in self._adapters.items()}
                self._adapters = own
            self._adapters[name] = revision
            self._adapters_moved = True
        return list(self._adapters).index(name)

    def drop_cache(self) -> None:
        """Weights have moved: what was computed is of no use any more. No row may be under way."""
        self.memory.release()
        # Who spoke since the last time is likely to speak again. With another number of adapters
        # all steps would have to be captured and timed anew. Those not laid out yet have none.
        kept = {} if self._adapters_moved else self._adapters
        self._adapters = {name: None for name, last in kept.items() if last is not None}

    @torch.inference_mode()
    def round(self) -> list[Row]:
        """Read some prompts and draw some tokens; the rows that ended."""
        interrupt.check()
        ended, message = list[Row](), ""
        self._prepare()
        try:
            self._round(ended)
        except Exception as error:
            if not out_of_memory(error):
                return ended + self.abort(error)
            message = str(error)
        if message:  # out of the handler: what was allocated is held by the error until here
            tried = len(self.scheduler.rows)
            log.warning("%d requests at once do not fit the memory: half as many are tried", tried)
            try:
                self._collect(ended)
            except Exception as error:
                return ended + self.abort(error)
            self.cache.copies.clear()
            self.row_cache.clear()
            self.scheduler.start_over(f"the device's memory is full: {message}", tried)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        ended += self.scheduler.settle()
        if not self.scheduler.rows:
            self.row_cache.clear()
        return ended

    def _round(self, ended: list[Row]) -> None:
        scheduler, read, before = self.scheduler, 0, len(self._in_flight)
        self._first_tokens = []
        scheduler.admit()
        # Also where nothing is read: of a row that goes on all may be cached.
        self.memory.copy(self.cache.copies)
        self.cache.copies.clear()
        while spans := scheduler.spans(self.read_size):
            for some, token_B, logprob_B in self._read(spans):
                self._queue_first(some, token_B, logprob_B)
            scheduler.read(spans)
            read += sum(span.end - span.start for span in spans)
            if not scheduler.more_to_read(read, self.read_size):
                break
        # Masks and cuts of the softmax are made on the host, which has to know what was drawn. And
        # what a row drew last is on the device only until steps are queued without it.
        ahead = self.looks_ahead and len(scheduler.rows) <= scheduler.max_rows
        ahead = ahead and not any(row.truncated for row in scheduler.rows.values())
        steps = self._steps()
        if not ahead or scheduler.lacks_blocks(steps):
            self._collect(ended)  # who makes room for others leaves with all that it drew
            before = 0
        rows = scheduler.speaking(steps)
        if rows:
            self._decode(rows, steps)
        self._collect(ended, before if ahead and rows else None)

    def _queue_first(self, rows: list[Row], token_B: Tensor, logprob_B: Tensor) -> None:
        for number, row in enumerate(rows, sum(map(len, self._first_tokens))):
            row.slot, row.queued = ~number, 1
        self._first_tokens.append(token_B)
        self._in_flight.append(Readback.queue(rows, token_B[None], logprob_B[None]))

    def _collect(self, ended: list[Row], count: int | None = None) -> None:
        """Read so many of the chunks in flight, oldest first. What a row draws after its end is
        dropped, and so is what was drawn for a row that is gone."""
        self._read_back(count)
        ended += self.scheduler.settle()

    def _read_back(self, count: int | None = None) -> None:
        arriving = self._in_flight[:count]
        del self._in_flight[:count]
        present = self.scheduler.rows
        for chunk in arriving:
            steps = chunk.steps
            for row, ids, values in zip(chunk.rows, *chunk.wait(), strict=True):
                if id(row) in present and not row.finish:
                    row.queued -= min(steps, row.left)
                    row.append(ids, values, self.ends, self._stopped)
                    row.computed = row.length - 1

    def _steps(self) -> int:
        """Steps of the next chunk."""
        rows = self.scheduler.rows.values()
        if any(row.trie for row in rows):  # what one may draw next depends on what it has drawn
            return 1
        if self.kit is torch_ops:
            return min(STEPS, 1 + min((len(row.token_ids) // IN_VAIN for row in rows), default=0))
        seconds = self._counts.seconds(len(rows))
        return min(STEPS, max(2, round(STEPS_TIME / seconds))) if seconds else STEPS

    def _prepare(self) -> None:
        """Lay out adapters that are new, and find out which numbers of rows may be computed."""
        if self._adapters_moved:
            self._read_back()
            before = len(self.decoder.layers[0].qkv.adapters)
            self.decoder.set_adapters(self._adapters)
            self._adapters_moved = False
            if len(self._adapters) != before:
                self._counts.forget()
                self._moves()
                vars(self).pop("_state", None)  # other sizes may agree now
        self._counts.find()
        # With adapters fewer sizes may agree than there may be rows; the rest waits.
        self.read_size = min(self._read_size, self._counts.most)
        self.scheduler.max_rows = min(self._max_rows, self._counts.most)

    # ── reading prompts ─────────────────────────────────────────────────────────────────────────

    def _read(self, spans: list[Span]) -> list[Drawn]:
        """Compute these positions, and draw the first token of each row that is read to its end and
        of those that follow it."""
        ids = [i for row, start, end in spans for i in row.ids[start:end]]
        size = self._counts.padded(len(ids))
        on_cpu = self.kit is torch_ops
        tile = self._counts.tile([end - start for _, start, end in spans]) if on_cpu else TILE
        parts = [(row.blocks, start, end) for row, start, end in spans]
        pages = reading(parts, size, tile, self.device, pad=not on_cpu)
        adapter_N = None
        if self._adapters:
            adapter_N = self._whole([*(span.row.adapter for span in spans), -1])[pages.row_N]
        id_N = self._whole(ids + [0] * (size - len(ids)))
        hidden_NH = self.decoder.hidden(id_N, adapter_N, self.kit, self.memory.layers(), pages)
        last, drawing = -1, list[tuple[Row, int]]()
        for span in spans:
            last += span.end - span.start
            if span.draws:
                drawing.append((span.row, last))
        drawn = list[Drawn]()
        for start in range(0, len(drawing), HEAD_ROWS):
            drawn += self._draw_first(drawing[start : start + HEAD_ROWS], hidden_NH)
        return drawn

    def _draw_first(self, drawing: list[tuple[Row, int]], hidden_NH: Tensor) -> list[Drawn]:
        at = [position for _, position in drawing]
        at += [0] * (self._counts.padded(len(at)) - len(at))
        logits_BV = self.decoder.head(hidden_NH[self._whole(at)])
        rows, index, copies = list[Row](), list[int](), list[tuple[int, int]]()
        for number, (leader, _) in enumerate(drawing):
            group = [leader, *self.scheduler.followers.get(id(leader), ())]
            rows += group
            index += [number] * len(group)
        drawn = list[Drawn]()
        for start in range(0, len(rows), HEAD_ROWS):
            part = rows[start : start + HEAD_ROWS]
            logits = logits_BV[self._whole(index[start : start + HEAD_ROWS])]
            drawn.append((part, *self._draw(part, logits)))
        for leader, _ in drawing:
            for row in self.scheduler.followers.get(id(leader), ()):
                if row.blocks and len(row.prompt) % BLOCK:
                    copies.append((leader.blocks[len(row.blocks) - 1], row.blocks[-1]))
        self.memory.copy(copies)
        return drawn

    def _draw(self, rows: list[Row], logits_BV: Tensor) -> tuple[Tensor, Tensor]:
        temperatures = [row.sampling.temperature for row in rows]
        temperature_B = upload(temperatures, self.device, np.float32)
        seed_B = self._whole([row.seed for row in rows])
        drawn_B = self._whole([len(row.token_ids) for row in rows])
        shape = self.decoder.logits
        token_B, logprob_B = self.kit.draw(
            logits_BV, temperature_B, seed_B, drawn_B, shape.scale, shape.cap
        )
        if any(row.truncated for row in rows):
            logits_BV = shape.of(logits_BV.float())
            return draw_again(rows, logits_BV, seed_B, drawn_B, token_B, logprob_B)
        return token_B, logprob_B

    # ── drawing token after token ───────────────────────────────────────────────────────────────

    def _decode(self, rows: list[Row], steps: int) -> None:
        """Queue at most so many steps for all rows, which have blocks for them."""
        self._counts.time(self._time_step)
        steps = min(steps, max(row.undrawn for row in rows))
        n, size = len(rows), self._counts.padded(len(rows))
        longest = max(positions_after(row, steps) for row in rows)
        if self.kit is torch_ops:
            rows = self.row_cache.arrange(rows, size, longest) or rows
        state = self._state
        state.load(rows, size, longest, self._first_tokens)
        if self.captures:  # few graphs: each for a power of two of chunks
            longest = CHUNK << (max(0, longest - 1) // CHUNK).bit_length()
        step = self._step_of(size, longest)
        truncated = any(row.truncated for row in rows)
        for number in range(steps):
            step()
            if truncated:
                logits_BV = self.decoder.logits.of(state.logits_BV[:n].float())
                token_B, logprob_B = draw_again(
                    rows, logits_BV, state.columns["seed"][:n], state.columns["drawn"][:n] - 1,
                    state.token_SB[number, :n], state.logprob_SB[number, :n],
                )  # fmt: skip
                state.token_SB[number, :n], state.logprob_SB[number, :n] = token_B, logprob_B
                here_B = state.columns["token"][:n]
                here_B.copy_(torch.where(state.columns["left"][:n] > 0, token_B, here_B))
        for number, row in enumerate(rows):
            row.queued += min(steps, row.undrawn)
            row.slot = number
        self._in_flight.append(
            Readback.queue(rows, state.token_SB[:steps, :n], state.logprob_SB[:steps, :n])
        )

    def _time_step(self, rows: int) -> float:
        return self._state.time(lambda: self._step_of(rows, CHUNK), TIMED_STEPS)

    @cached_property
    def _state(self) -> DecodeState:
        most = max(self._counts.padded(self.scheduler.max_rows), 1)
        return DecodeState(self.decoder, most, STEPS, self.decoder.head.weight)

    def _moves(self) -> None:
        """What graphs read and write is about to be elsewhere."""
        if self.captures:
            torch.cuda.synchronize(self.device)  # none may go while it runs
        self._graphs: dict[Any, Any] = {}
        self._pool: Any = None  # of memory that all graphs compute in: they run one after another

    def _step_of(self, size: int, longest: int) -> Any:
        """The decode step for so many rows: a captured graph on a GPU."""
        step = partial(self._step, size, longest)
        if not self.captures:
            return step
        key = (size, longest, len(self._adapters))
        if key not in self._graphs:
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._graphs[key] = self._state.capture(step, self._pool)
        return self._graphs[key].replay

    def _step(self, size: int, longest: int) -> None:
        state, columns, held = self._state, self._state.columns, self.row_cache.held
        hidden = self.decoder.hidden(
            columns["token"][:size],
            columns["adapter"][:size] if self._adapters else None,
            row_cache if held else self.kit,
            self.row_cache.layers() if held else self.memory.layers(),
            state.pages(size, longest),
        )
        logits = state.logits_BV[:size]
        if self.captures:
            torch.mm(hidden, self.decoder.head.weight.T, out=logits)
        else:
            logits.copy_(self.decoder.head(hidden))
        shape = self.decoder.logits
        token, logprob = self.kit.draw(
            logits, state.temperature_B[:size], columns["seed"][:size], columns["drawn"][:size],
            shape.scale, shape.cap,
        )  # fmt: skip
        self.kit.advance(token, logprob, columns, state.step_B, state.token_SB, state.logprob_SB)

    def _whole(self, values: Sequence[int]) -> Tensor:
        return upload(values, self.device)

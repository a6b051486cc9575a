"""Computes what the scheduler plans: reads prompts and draws tokens for the rows of one model over
a paged cache. On a GPU with Triton's kernels and captured decode steps, on a CPU with plain torch.

A row's numbers do not depend on who shares its pass. Matrix products are padded to numbers of rows
that give each row the same bits (`invariant` tries them on the model's own weights), attention sums
positions up in an order that the row alone decides, and each request draws with its own seed.

Shapes: N tokens, B rows, V vocabulary, W blocks of a row.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local import torch_ops
from sparring.engines.local.decode_state import DecodeState
from sparring.engines.local.decoder import Cache, Decoder
from sparring.engines.local.generate import stopped
from sparring.engines.local.invariant import (
    fastest_sizes,
    invariant_sizes,
    invariant_step,
    without_split_k,
)
from sparring.engines.local.paged_cache import BLOCK, PagedCache
from sparring.engines.local.pages import CHUNK, reading
from sparring.engines.local.rows import Row, draw_again
from sparring.engines.local.scheduler import Scheduler, Span
from sparring.models.device import out_of_memory
from sparring.run import interrupt

log = logging.getLogger(__name__)

STEPS = 16  # decode steps between two looks at what was drawn, on a GPU; half where rows end soon
# Rows of products. Without split-K few rows can be slower than more, for too few of a GPU's
# processors work then: each size is timed, and padded to the fastest that holds as many.
SIZES = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
TIMED_STEPS = 5  # of each size, of which the fastest counts
READ = 8192  # tokens of prompts between two chunks of steps, on a GPU
READ_CPU = 1024  # what a layer makes of so many stays in the processor's cache
SHARE = 0.5  # of a GPU's free memory, for keys and values
CPU_BYTES = 4 * 2**30
FIRST_BLOCKS = 64  # that a cache begins with
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
        self.captures = self.device.type == "cuda"
        self.steps = STEPS if kernels else 1
        self.read_size = READ if self.captures else READ_CPU
        self.cache = PagedCache(0)
        this = weakref.proxy(self)  # a cycle would keep the weights of policies that are gone
        self.scheduler = Scheduler(
            self.cache,
            max_rows=max_rows,
            grow=partial(Runner._grow, this),
            capacity=partial(Runner._capacity, this),
        )
        self._most_bytes, self._tensors = cache_bytes, torch.empty(0)
        self._adapters: dict[str, tuple[int, int]] = {}  # laid side by side, and their revisions
        self._adapters_moved = False
        self._drop_graphs()
        self._wants_invariance, self._sizes, self._step_of_rows = invariant, list[int](), 0
        self._fastest: dict[int, int] = {}  # by size, once steps have been timed
        self.row_invariant = invariant  # until a try shows that the model is not

    def add(self, row: Row) -> None:
        if row.needs > self.decoder.limit:  # kernels do not look where the rotary table ends
            raise ValueError(
                f"a prompt and its reply need {row.needs} positions, "
                f"and the model has {self.decoder.limit}"
            )
        self.scheduler.add(row)

    @property
    def busy(self) -> bool:
        return self.scheduler.busy

    def abort(self, error: Exception) -> list[Row]:
        """Drop all rows, with an error that is none of theirs."""
        rows = self.scheduler.drop_all()
        self.cache.copies.clear()
        for row in rows:
            row.error = error
        return rows

    def adapter(self, name: str | None, revision: tuple[int, int]) -> int:
        """The number by which rows ask for an adapter of peft's with this name."""
        if name is None or not self.decoder.lora:
            return -1
        if self._adapters.get(name) != revision:
            self._adapters[name] = revision
            self._adapters_moved = True
        return list(self._adapters).index(name)

    def drop_cache(self) -> None:
        """Weights have moved: what was computed is of no use any more. No row may be under way."""
        self.cache.clear()
        self._adapters.clear()

    @torch.inference_mode()
    def round(self) -> list[Row]:
        """Read some prompts and draw some tokens; the rows that ended."""
        interrupt.check()
        self._prepare()
        ended, message = list[Row](), ""
        try:
            self._round(ended)
        except Exception as error:
            if not out_of_memory(error):
                return ended + self.abort(error)
            message = str(error)
        if message:  # out of the handler: what was allocated is held by the error until here
            log.warning(
                "%d requests at once do not fit the memory: half as many are tried",
                len(self.scheduler.rows),
            )
            self.cache.copies.clear()
            self.scheduler.start_over(f"the device's memory is full: {message}")
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return ended + self.scheduler.settle()

    def _round(self, ended: list[Row]) -> None:
        scheduler, read, drawn = self.scheduler, 0, list[Drawn]()
        scheduler.admit()
        while spans := scheduler.spans(self.read_size):
            drawn += self._read(spans)
            scheduler.read(spans)
            read += sum(span.end - span.start for span in spans)
            if not scheduler.more_to_read(read, self.read_size):
                break
        # One look at all first tokens: the device goes on reading while the host prepares.
        for some, tokens, logprobs in drawn:
            for row, token, logprob in zip(some, tokens.tolist(), logprobs.tolist(), strict=True):
                row.append([token], [logprob], self.ends, self._stopped)
        ended += scheduler.settle()  # now: they are to be given back whatever goes wrong below
        rows = scheduler.speaking(self._steps())
        if rows:
            self._decode(rows)

    def _steps(self) -> int:
        """Steps until the next look: half as many where an eighth of the rows ends before it."""
        rows = self.scheduler.rows.values()
        if any(row.trie for row in rows):  # what one may draw next depends on what it has drawn
            return 1
        soon = sum(row.left < self.steps for row in rows)
        return self.steps if 8 * soon <= len(rows) else max(1, self.steps // 2)

    # ── memory ──────────────────────────────────────────────────────────────────────────────────

    def _capacity(self) -> int:
        """How many blocks there may be at most."""
        layers, heads, width = self.decoder.shape
        block_bytes = 2 * layers * heads * BLOCK * width * self.dtype.itemsize
        most = self._most_bytes or CPU_BYTES
        if self._most_bytes is None and self.device.type == "cuda":
            most = int((torch.cuda.mem_get_info(self.device)[0] + self._tensors.nbytes) * SHARE)
        return max(1, most // block_bytes - 1)

    def _grow(self, blocks: int) -> bool:
        """Have so many blocks, as far as they are allowed and there is memory for them."""
        have, most = self.cache.size - 1, self._capacity()
        wanted = min(most, max(blocks, 2 * have, FIRST_BLOCKS))
        if wanted <= have:
            return False
        layers, heads, width = self.decoder.shape
        shape = (2, layers, heads, wanted + 1, BLOCK, width)
        try:
            # Zeros: a masked position still takes part, with weight nought.
            tensors = torch.zeros(shape, dtype=self.dtype, device=self.device)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            log.warning("no memory for a cache of %d positions: %d stay", wanted * BLOCK, have)
            return False
        if have:
            tensors[:, :, :, : have + 1] = self._tensors
        self._tensors = tensors
        self._drop_graphs()
        self.cache.grow(wanted)
        return True

    def _caches(self) -> list[Cache]:
        return list(zip(*self._tensors, strict=True))

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        if pairs:
            source, to = (
                torch.tensor(side, device=self.device) for side in zip(*pairs, strict=True)
            )
            self._tensors[:, :, :, to] = self._tensors[:, :, :, source]

    # ── rows of products ────────────────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        """Lay out adapters that are new, and find out which numbers of rows may be computed."""
        if self._adapters_moved:
            before = len(self.decoder.layers[0].qkv.adapters)
            self.decoder.set_adapters(list(self._adapters))
            self._adapters_moved = False
            if len(self._adapters) != before:
                self._sizes, self._step_of_rows, self._fastest = [], 0, {}
                self._drop_graphs()
                vars(self).pop("_state", None)  # other sizes may agree now
        if self._sizes or self._step_of_rows:
            return
        if self.captures:
            without_split_k(self.device)
            most = self.scheduler.max_rows
            sizes = [size for size in SIZES if size <= max(READ, most)]
            if self._wants_invariance:
                sizes = invariant_sizes(self.decoder, sizes, self.device)
            self._sizes = sizes
            self.row_invariant = self._wants_invariance
            self.read_size = min(READ, sizes[-1])
        else:
            self._step_of_rows, self.row_invariant = invariant_step(self.decoder)

    def _padded(self, rows: int) -> int:
        if self._step_of_rows:
            return -(-rows // self._step_of_rows) * self._step_of_rows
        size = next(size for size in self._sizes if size >= rows)
        return self._fastest.get(size, size)

    def _time_sizes(self) -> None:
        """Time one decode step of each size that can be met."""
        most = next(size for size in self._sizes if size >= self.scheduler.max_rows)
        self._fastest = fastest_sizes([s for s in self._sizes if s <= most], self._time_step)

    def _time_step(self, rows: int) -> float:
        return self._state.time(lambda: self._step_of(rows, CHUNK), TIMED_STEPS)

    # ── reading prompts ─────────────────────────────────────────────────────────────────────────

    def _read(self, spans: list[Span]) -> list[Drawn]:
        """Compute these positions, and draw the first token of each row that is read to its end and
        of those that follow it."""
        self._copy(self.cache.copies)
        self.cache.copies.clear()
        ids = [i for row, start, end in spans for i in row.ids[start:end]]
        size = self._padded(len(ids))
        pages = reading(
            [(row.blocks, start, end) for row, start, end in spans], size, 16, self.device
        )
        adapter_N = None
        if self._adapters:
            adapter_N = self._whole([*(span.row.adapter for span in spans), -1])[pages.row_N]
        id_N = self._whole(ids + [0] * (size - len(ids)))
        hidden_NH = self.decoder.hidden(id_N, adapter_N, self.kit, self._caches(), pages)
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
        at += [0] * (self._padded(len(at)) - len(at))
        logits_BV = F.linear(hidden_NH[self._whole(at)], self.decoder.head)
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
        self._copy(copies)
        return drawn

    def _draw(self, rows: list[Row], logits_BV: Tensor) -> tuple[Tensor, Tensor]:
        temperatures = [row.sampling.temperature for row in rows]
        temperature_B = torch.tensor(temperatures, dtype=torch.float32, device=self.device)
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

    def _decode(self, rows: list[Row]) -> None:
        """Some steps for all rows, and one look at what they drew: what a row draws after its end
        is dropped."""
        if self._sizes and not self._fastest:
            self._time_sizes()
        steps = min(self._steps(), max(row.left for row in rows))
        n, size = len(rows), self._padded(len(rows))
        longest = max(min(row.length - 1 + steps, row.needs - 1) for row in rows)
        state = self._state
        state.load(rows, size, longest)
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
                state.columns["token"][:n] = state.token_SB[number, :n] = token_B
                state.logprob_SB[number, :n] = logprob_B
        tokens = state.token_SB[:steps, :n].T.tolist()
        logprobs = state.logprob_SB[:steps, :n].T.tolist()
        for row, ids, values in zip(rows, tokens, logprobs, strict=True):
            row.append(ids, values, self.ends, self._stopped)
            row.computed = row.length - 1

    @cached_property
    def _state(self) -> DecodeState:
        most = max(self._padded(self.scheduler.max_rows), 1)
        return DecodeState(self.decoder, most, STEPS, self.decoder.head)

    def _drop_graphs(self) -> None:
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
        state, columns = self._state, self._state.columns
        hidden = self.decoder.hidden(
            columns["token"][:size],
            columns["adapter"][:size] if self._adapters else None,
            self.kit,
            self._caches(),
            state.pages(size, longest),
        )
        logits = state.logits_BV[:size]
        torch.mm(hidden, self.decoder.head.T, out=logits)
        shape = self.decoder.logits
        token, logprob = self.kit.draw(
            logits, state.temperature_B[:size], columns["seed"][:size], columns["drawn"][:size],
            shape.scale, shape.cap,
        )  # fmt: skip
        self.kit.advance(token, logprob, columns, state.step_B, state.token_SB, state.logprob_SB)

    def _whole(self, values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)

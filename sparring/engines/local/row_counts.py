"""Which numbers of rows a matrix product may have, so that each row gets the same bits in all of
them. Libraries choose another order of summation for another shape; which ones agree is tried on
the model's own matrices, and what does not agree is not used."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.engines.local.decoder import ONEDNN, Decoder, Linear
from sparring.engines.local.pages import TILE
from sparring.engines.local.torch_ops import ROWS_IN_BLOCKS, attention

log = logging.getLogger(__name__)

REFERENCE = 512  # rows of the product that all others must agree with
HEAD_ROWS = 1024  # the head is never asked for more
_TRIED = 3  # groups of rows of each size
# Rows of products. Without split-K few rows can be slower than more, for too few of a GPU's
# processors work then: each size is timed, and padded to the fastest that holds as many.
SIZES = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
# Of a step's seconds: sizes that differ by less are equally fast. Where others use the GPU too a
# clock is not steady; a size that a library has no good way for takes two or three times as long.
NOISE = 0.25
_ROUNDS = 6  # of timing all sizes: what others do meanwhile falls on another one in each
READ = 8192  # tokens of prompts in a pass, on a GPU
READ_CPU = 1024  # what a layer makes of so many stays in the processor's cache
TILES = range(TILE, 129, 8)  # tokens of a row that a CPU may attend from together
GATHER = 8  # so many tokens more are as much work as gathering a tile's keys
# Steps that are tried on a CPU: few, and many, since a library may go another way for some band of
# sizes. Heads are as wide as a vocabulary, and would take longer to try than to use.
_FEW, _MANY = (1, 2, 3, 5, 8), (13, 24, 32, 60, 96, 160, 256)


class RowCounts:
    """The numbers of rows that a model's passes are padded to: a few sizes on a GPU, multiples of a
    step on a CPU."""

    def __init__(
        self, decoder: Decoder, device: torch.device, max_rows: int, invariant: bool
    ) -> None:
        self._decoder, self._device, self._max_rows = decoder, device, max_rows
        self.invariant = self._wanted = invariant  # until a try shows that the model is not
        self.narrow_tried = False
        self.forget()

    def forget(self) -> None:
        """Other sizes may agree now."""
        self.sizes, self._step = list[int](), 0
        self._fastest, self._seconds = dict[int, int](), dict[int, float]()

    def find(self) -> None:
        """Find out which numbers of rows may be computed, once."""
        if self.sizes or self._step:
            return
        if self._device.type != "cuda":
            self._step, self.invariant = invariant_step(self._decoder)
            return
        without_split_k(self._device)
        self.sizes = [size for size in SIZES if size <= max(READ, self._max_rows)]
        if self._wanted:
            self.sizes = invariant_sizes(self._decoder, self.sizes, self._device)
            if not self.narrow_tried:
                from sparring.engines.local.narrow import use_narrow

                self.narrow_tried = True
                use_narrow(self._decoder, self.sizes, REFERENCE)

    @property
    def most(self) -> int:
        """Rows that one pass may have."""
        return self.sizes[-1] if self.sizes else READ

    def padded(self, rows: int) -> int:
        if self._step:
            return -(-rows // self._step) * self._step
        size = min(size for size in self.sizes if size >= rows)
        return self._fastest.get(size, size)

    def tile(self, lengths: Sequence[int]) -> int:
        """How many tokens of a row a CPU's attention takes together, where rows have so many new
        ones: keys are gathered for each tile, and a row's last one is padded."""
        if max(lengths) <= TILE:  # as in most passes over games that go on, of a thousand rows
            return TILE
        best = min(TILES, key=lambda t: (t + GATHER) * sum(-(-length // t) for length in lengths))
        _, key_heads, width = self._decoder.shape
        group = self._decoder.layers[0].out.weight.shape[1] // (key_heads * width)
        return best if _same_attention(best, group, width, torch.get_num_threads()) else TILE

    def time(self, seconds: Callable[[int], float]) -> None:
        """Time a decode step of each size that can be met, once; `seconds` times one."""
        if self.sizes and not self._fastest:
            most = min(self._max_rows, self.most)
            largest = min(size for size in self.sizes if size >= most)
            met = [size for size in self.sizes if size <= largest]
            timed = [{size: seconds(size) for size in reversed(met)} for _ in range(_ROUNDS)]
            self._seconds = {size: min(took[size] for took in timed) for size in met}
            self._fastest = fastest_sizes(met, timed)

    def seconds(self, rows: int) -> float:
        """What a step of so many rows takes, without attention; 0 if that is not known."""
        return self._seconds[self.padded(rows)] if self._seconds and rows else 0.0


def without_split_k(device: torch.device) -> None:
    """Products of few rows are otherwise summed up in parts, as many as the number of rows decides.
    For the whole process, so that a learner beside an engine always computes alike."""
    matmul = torch.backends.cuda.matmul
    names = ("allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction")
    try:
        torch.backends.cuda.preferred_blas_library("cublaslt")  # the only one that can be told
        for name in names:
            setattr(matmul, name, (False, False))
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            one = torch.ones(64, 64, dtype=dtype, device=device)
            torch.mm(one, one)
    except (TypeError, ValueError, RuntimeError) as error:  # another library, or an older torch
        log.info("split-K stays on, and more rows are padded: %s", error)
        for name in names:
            setattr(matmul, name, False)


def invariant_sizes(decoder: Decoder, sizes: Sequence[int], device: torch.device) -> list[int]:
    """Those of these numbers of rows that agree with one another, and with 512 rows."""
    reference = REFERENCE if REFERENCE in sizes else sizes[-1]
    agree = [size for size in sizes if _agree(decoder, size, reference, device)]
    if dropped := [size for size in sizes if size not in agree]:
        log.info("products of %s rows round otherwise and are padded to more", dropped)
    return agree


def fastest_sizes(sizes: Sequence[int], timed: Sequence[Mapping[int, float]]) -> dict[int, int]:
    """For each of these numbers of rows the fastest one that holds as many: padding further is
    worth it where a library has a quicker way for more rows, and is then quicker in every round of
    `timed`, which has the seconds of a step of each. On a GPU that others use a larger size may be
    lucky in one of them. Which size wins moves no bit, since all of them agree."""
    fastest, best, quickest = dict[int, int](), 0, 0
    for size in sorted(sizes, reverse=True):
        if not best or any(took[size] <= took[quickest] * (1 + NOISE) for took in timed):
            best = size
            quickest = min(size, quickest or size, key=lambda s: min(took[s] for took in timed))
        fastest[size] = best
    if padded := {size: best for size, best in sorted(fastest.items()) if size != best}:
        log.info("steps of fewer rows that are slower than those of more are padded: %s", padded)
    return fastest


def invariant_step(decoder: Decoder) -> tuple[int, bool]:
    """The smallest number all of whose multiples agree, on a CPU; and whether there is one. Where
    oneDNN's products do not agree, as on some processors, torch's own are taken."""
    for onednn in (True, False) if ONEDNN else (False,):
        decoder.use_onednn(onednn)
        layouts = (*(_layout(linear) for linear, _ in _all(decoder)), decoder.embedding.dtype)
        tried = _Tried(layouts, torch.get_num_threads(), weakref.proxy(decoder))
        if step := _invariant_step(tried):
            return step, True
    log.warning(
        "on this processor a row of a matrix product depends on how many rows there are: "
        "runs repeat exactly in lockstep only"
    )
    return 4, False


@dataclass(frozen=True)
class _Tried:
    """What decides in which order products are summed up, and a model to try it on."""

    layouts: tuple[Any, ...]
    threads: int
    decoder: Decoder = field(compare=False)


def _layout(linear: Linear) -> tuple[Any, ...]:
    pair = (tensor for pair in linear.adapters for tensor in pair)
    tensors = [linear.weight, *([] if linear.bias is None else [linear.bias]), *pair]
    kinds = ((t.shape, t.stride(), t.dtype, t.data_ptr() % 64) for t in tensors)
    return (linear.bias is None, len(linear.narrow), linear.onednn, *kinds)


@cache  # a league has a model for each of its members
def _invariant_step(tried: _Tried) -> int:
    decoder, device = tried.decoder, torch.device("cpu")
    products = [
        (_rows(decoder, linear, 256 if head else READ_CPU, 256, device), head)
        for linear, head in _all(decoder)
    ]
    for step in (4, 8, 16, 32):
        few, many = ([step * n for n in multiples] for multiples in (_FEW, _FEW + _MANY))
        if all(
            _same_rows(product, size)
            for product, head in products
            for size in (few if head else many)
        ):
            return step
    return 0


@cache
def _same_attention(tile: int, group: int, width: int, threads: int) -> bool:
    """Whether tokens with `group` queries to a key head, of this width, get the same bits from a
    CPU's attention in such tiles as in the smallest."""
    generator = torch.Generator().manual_seed(threads)
    shapes = (1, 2, tile * group, width), (2, 192, width), (2, 192, width)
    q, keys, values = (torch.randn(shape, generator=generator) for shape in shapes)

    def attended(part: Tensor) -> Tensor:
        padded = F.pad(part, (0, 0, 0, -part.shape[2] % ROWS_IN_BLOCKS))
        return attention(padded, keys.transpose(1, 2), values, torch.zeros(1))[
            :, :, : part.shape[2]
        ]

    return torch.equal(attended(q), torch.cat([*map(attended, q.split(TILE * group, 2))], 2))


def _agree(decoder: Decoder, size: int, reference: int, device: torch.device) -> bool:
    rows = max(size, reference)
    return all(
        _same_rows(_rows(decoder, linear, rows, reference, device), size)
        for linear, head in _all(decoder)
        if not head or size <= HEAD_ROWS
    )


class _Product(NamedTuple):
    linear: Linear
    x: Tensor
    adapter: Tensor | None  # of each row
    whole: Tensor  # so many rows at a time


def _rows(
    decoder: Decoder, linear: Linear, rows: int, reference: int, device: torch.device
) -> _Product:
    """A matrix with rows for it. Its adapters are not its own: one that has not learned yet is
    zero, and would agree whatever the library does."""
    generator = torch.Generator(device).manual_seed(0)

    def noise(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    x = noise((rows, linear.weight.shape[1]), decoder.embedding.dtype)
    adapters = [(noise(a.shape, a.dtype), noise(b.shape, b.dtype)) for a, b in linear.adapters]
    linear = replace(linear, adapters=adapters)
    adapter = torch.zeros_like(x[:, 0], dtype=torch.int64) if adapters else None
    return _Product(linear, x, adapter, _product(linear, x, adapter, reference))


def _same_rows(product: _Product, size: int) -> bool:
    """Whether the first groups of so many rows have the same bits as among all rows."""
    linear, x, adapter, whole = product
    for start in range(0, min(len(x), _TRIED * size), size):
        part = slice(start, start + size)
        if start + size > len(x):
            break
        theirs = None if adapter is None else adapter[part]
        if not torch.equal(linear(x[part], theirs), whole[part]):
            return False
    return True


def _product(linear: Linear, x: Tensor, adapter: Tensor | None, size: int) -> Tensor:
    parts = [slice(start, start + size) for start in range(0, len(x), size)]
    return torch.cat([linear(x[p], None if adapter is None else adapter[p]) for p in parts])


def _all(decoder: Decoder) -> Iterator[tuple[Linear, bool]]:
    """One matrix of each shape, and the head, which is said of it."""
    seen = set()
    for layer in decoder.layers:
        for linear in layer.linears:
            key = linear.weight.shape, linear.bias is None
            if key not in seen:
                seen.add(key)
                yield linear, False
    yield decoder.head, True

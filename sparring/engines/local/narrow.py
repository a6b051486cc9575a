"""Matrix products of few rows, in Triton. A library that may not split the sum over K has too few
parts of a product for all of a GPU's processors; these cut the outputs into narrower tiles and add
up in the order of K. Where a form has the very bits of the library's products of many rows, and is
faster, it is used; which ones do is tried on the model's own matrices.

Shapes: R rows, N outputs, K inputs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from sparring.engines.local.decoder import Decoder, Linear
from sparring.engines.local.dependent_launch import launch_early, prefetch, wait

log = logging.getLogger(__name__)

ROWS = (16, 32, 64)  # of 128 to 512 no form was faster than the library (docs/performance.md)
_SMALLEST = 2**22  # bytes of a matrix that is worth it
_GAIN = 0.97  # of the library's time
_TIMED = 8  # matrices of a shape: more than the GPU's caches hold
LINE: tl.constexpr = tl.constexpr(64)  # values of two bytes in a cache line
_AHEAD = 4_000_000  # cycles in which the host queues what is timed


class Form(NamedTuple):
    swapped: bool  # weights are the left operand, of 64 rows or more: what Hopper's wgmma wants
    columns: int  # outputs of one program
    depth: int  # inputs of one step
    stages: int  # steps whose operands are fetched ahead

    def fits(self, weight_NK: Tensor) -> bool:
        return weight_NK.shape[0] % self.columns == 0 and weight_NK.shape[1] % self.depth == 0


FORMS = (
    Form(True, 64, 128, 5),
    Form(True, 64, 128, 7),
    Form(False, 32, 128, 5),
    Form(False, 16, 256, 4),
)


@triton.jit
def _product(
    x, weight, out, N, K,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, SWAPPED: tl.constexpr,
    EXACT: tl.constexpr, AHEAD: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    row, k = tl.arange(0, ROWS), tl.arange(0, DEPTH)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x_at = x + row[:, None] * K + k[None, :]
    weight_at = weight + column.to(tl.int64)[:, None] * K + k[None, :]
    if EARLY:  # weights are there already, while the rows are still being computed
        line = tl.arange(0, AHEAD // LINE) * LINE
        prefetch(weight + column.to(tl.int64)[:, None] * K + line[None, :])
    wait(EARLY)
    if SWAPPED:
        total = tl.zeros([COLUMNS, ROWS], tl.float32)
    else:
        total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, K, DEPTH):
        left, right = tl.load(x_at + start), tl.load(weight_at + start)
        if SWAPPED:
            total = tl.dot(right, tl.trans(left), total, input_precision=EXACT)
        else:
            total = tl.dot(left, tl.trans(right), total, input_precision=EXACT)
    if SWAPPED:
        total = tl.trans(total)
    tl.store(out + row[:, None] * N + column[None, :], total.to(out.dtype.element_ty))


def product(form: Form, x_RK: Tensor, weight_NK: Tensor) -> Tensor:
    rows, (N, K) = len(x_RK), weight_NK.shape
    out_RN = torch.empty(rows, N, dtype=x_RK.dtype, device=x_RK.device)
    _product[(N // form.columns,)](
        x_RK, weight_NK, out_RN, N, K,
        ROWS=rows, COLUMNS=form.columns, DEPTH=form.depth, SWAPPED=form.swapped,
        EXACT="ieee" if x_RK.dtype == torch.float32 else "tf32",
        AHEAD=min(4 * form.depth, triton.next_power_of_2(K + 1) // 2),
        num_warps=4, num_stages=form.stages, **launch_early(x_RK.device),
    )  # fmt: skip
    return out_RN


def choose(
    forms: Iterable[Form],
    agrees: Callable[[Form], bool],
    seconds: Callable[[Form | None], float],
    refused: set[bool],
) -> Form | None:
    """The fastest form with the same bits as the library's product; None: the library's own. If one
    has others, so have those that are swapped, or not, as it is: they are added to `refused`."""
    best, least = None, _GAIN * seconds(None)
    for form in forms:
        if form.swapped in refused:
            continue
        try:
            if not agrees(form):
                refused.add(form.swapped)
            elif (took := seconds(form)) < least:
                best, least = form, took
        except Exception as error:  # one that this GPU, or this Triton, has no room or code for
            log.info("a product in the form %s is not used: %s", form, error)
    return best


def use_narrow(decoder: Decoder, sizes: Iterable[int], reference: int) -> None:
    """Choose a form for the model's large matrices at each of the small sizes. The bits must be
    those of `reference` rows."""
    groups: dict[torch.Size, list[Linear]] = {}
    for linear in (linear for layer in decoder.layers for linear in layer.linears):
        weight = linear.weight
        if linear.bias is None and weight.nbytes >= _SMALLEST and weight.itemsize == 2:
            groups.setdefault(weight.shape, []).append(linear)
    refused = set[bool]()
    for shape, linears in groups.items():
        weights = [linear.weight for linear in linears[:_TIMED]]
        x_RK = _noise(reference, weights[0])
        whole_RN = F.linear(x_RK, weights[0])
        for rows in (size for size in sizes if size in ROWS):
            form = choose(
                [form for form in FORMS if form.fits(weights[0])],
                partial(_agrees, rows, x_RK, weights[0], whole_RN),
                partial(seconds, x_RK[:rows], weights),
                refused,
            )
            if form is not None:
                log.info("products of %d rows with %s: %s", rows, tuple(shape), form)
                for linear in linears:
                    linear.narrow[rows] = partial(product, form)


def _noise(rows: int, weight_NK: Tensor) -> Tensor:
    generator = torch.Generator(weight_NK.device).manual_seed(1)
    shape = (rows, weight_NK.shape[1])
    return torch.randn(shape, generator=generator, device=weight_NK.device).to(weight_NK.dtype)


def _agrees(rows: int, x_RK: Tensor, weight_NK: Tensor, whole_RN: Tensor, form: Form) -> bool:
    return all(
        torch.equal(product(form, x_RK[i : i + rows], weight_NK), whole_RN[i : i + rows])
        for i in range(0, min(len(x_RK) - rows + 1, 4 * rows), rows)
    )


def seconds(x_RK: Tensor, weights: list[Tensor], form: Form | None) -> float:
    """Of one product, the fastest of some, with other weights each time."""
    times = list[float]()
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_AHEAD)
        begin.record()
        for weight in weights:
            F.linear(x_RK, weight) if form is None else product(form, x_RK, weight)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / len(weights))
    return min(times)

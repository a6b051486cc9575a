"""Forward and backward passes of a small model's layers, captured as CUDA graphs for each shape of
rows: launched one by one from Python, its kernels take longer to launch than to run.

Shapes: R rows, T positions, H hidden.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from sparring.learn.compile import WIDTH
from sparring.models.device import side_stream
from sparring.run.config import LearnConfig

SMALL = 600_000_000  # weights; larger models keep a GPU busy as they are
TOKENS = 8192  # of a micro-batch: they fill a GPU with a small model, and more would hold memory
MOST = 32  # shapes that are kept
CAPTURING = Lock()  # held while a graph is captured: other threads must not allocate then
Read = Callable[[Tensor], Tensor]  # embeddings of rows to their last hidden states


def captures(model: Any, config: LearnConfig) -> bool:
    """Whether passes are captured: as asked or, by default, on a GPU for a small model."""
    if config.cuda_graphs is not None:
        return config.cuda_graphs
    small = sum(p.numel() for p in model.parameters()) <= SMALL
    # What begins anew in every iteration has its gradients elsewhere in each.
    other = config.shard or config.packing or config.gradient_checkpointing or config.restart
    return small and not other and torch.device(model.device).type == "cuda"


class Graphs:
    """The captured passes of one policy. A graph reads weights and writes gradients where they lay
    when it was captured: once they lie elsewhere, all are captured again."""

    def __init__(self, parameters: Sequence[Any]) -> None:
        self._parameters = list(parameters)
        self._passes: dict[tuple[int, ...], _Passes] = {}  # by shape and variant
        self._addresses: list[int] = []
        self._pool: Any = None  # of memory that all shapes compute in: they run one after another

    def clear(self) -> None:
        """Give the memory of all graphs back."""
        self._passes.clear()
        self._pool = None

    def _no_room(self, key: tuple[int, ...]) -> bool:
        """Whether a new shape is one too many, or much larger than all before: then the memory of
        those would be too small for it, and stay beside its own."""
        if key in self._passes or not self._passes:
            return False
        largest = max(math.prod(other[:-1]) for other in self._passes)
        return len(self._passes) == MOST or math.prod(key[:-1]) > 1.1 * largest

    def hidden(self, model: Any, ids_RT: Tensor, read: Read, variant: int = 0) -> Tensor:
        """The last hidden states of rows, by graphs in both directions. The number of rows is
        padded, so that few shapes are met; each variant of `read` has graphs of its own."""
        embeds_RTH = model.get_input_embeddings()(ids_RT)
        if not embeds_RTH.requires_grad:  # of a frozen base
            embeds_RTH.requires_grad_()
        addresses = [p.data_ptr() for p in model.parameters()]
        addresses += [p.grad.data_ptr() for p in self._parameters]
        shape = (padded(*ids_RT.shape), *embeds_RTH.shape[1:])
        key = (*shape, variant)
        if addresses != self._addresses or self._no_room(key):
            self.clear()
            self._addresses = addresses
        if key not in self._passes:
            if self._pool is None and embeds_RTH.is_cuda:
                self._pool = torch.cuda.graph_pool_handle()
            # Tried first where something may have to be compiled, or set up once. Each trial takes
            # memory beside the graphs' own.
            new = bool(variant) or not self._passes
            passes = _Passes(embeds_RTH, shape, self._parameters, read)
            passes.capture(self._pool, tried_first=new)
            self._passes[key] = passes
        hidden_RTH: Tensor = _Replay.apply(embeds_RTH, self._passes[key])
        return hidden_RTH


def bucketed(tokens: int) -> int:
    """The width of a row of so many tokens: multiples of 32 up to 128, then four an octave."""
    step = max(WIDTH, (1 << (tokens - 1).bit_length()) // 8)
    return -(-tokens // step) * step


def padded(rows: int, width: int) -> int:
    """As many rows as a micro-batch has tokens for, three quarters of them, a half, …: few shapes,
    and the same ones in every step."""
    most = max(rows, TOKENS // width)
    sizes = (-(-most * part // (4 << k)) for k in range(most.bit_length()) for part in (4, 3))
    return min(size for size in sizes if size >= rows)


class _Passes:
    """Both passes over rows of one shape, by tensors that stay where they are."""

    def __init__(
        self,
        embeds_RTH: Tensor,
        shape: tuple[int, ...],
        parameters: list[Any],
        read: Read,
    ) -> None:
        self._read, self._parameters = read, parameters
        self.embeds_RTH = embeds_RTH.detach().new_zeros(shape).requires_grad_()
        self.load(embeds_RTH)
        self.hidden_grad_RTH = torch.zeros_like(self.embeds_RTH, requires_grad=False)
        self._output: Tensor | None = None  # with its autograd graph, between the two passes
        self.hidden_RTH = self.embeds_grad_RTH = self.hidden_grad_RTH

    def capture(self, pool: Any, tried_first: bool) -> None:
        devices = [self.embeds_RTH.device] if self.embeds_RTH.is_cuda else []
        # A replay draws dropout anew from the device's generator. What a trial draws is given
        # back to it: a resumed run captures at another step.
        with CAPTURING, torch.random.fork_rng(devices=devices):
            if tried_first:
                warm_up(self._both)
            self.forward = capture(self._forward, pool)
            self.backward = capture(self._backward, pool)

    @torch.no_grad()
    def load(self, embeds_RTH: Tensor) -> None:
        self.embeds_RTH[: len(embeds_RTH)].copy_(embeds_RTH)

    def load_gradient(self, grad_RTH: Tensor) -> None:
        """Rows of padding get none: what was left in them changes nothing."""
        self.hidden_grad_RTH[: len(grad_RTH)].copy_(grad_RTH)
        self.hidden_grad_RTH[len(grad_RTH) :].zero_()

    def _forward(self) -> None:
        with torch.enable_grad():
            self._output = self._read(self.embeds_RTH)
        self.hidden_RTH = self._output.detach()

    def _backward(self) -> None:
        assert self._output is not None
        grads = torch.autograd.grad(
            self._output,
            [self.embeds_RTH, *self._parameters],
            self.hidden_grad_RTH,
            allow_unused=True,  # an embedding or a head, which are not part of the layers
        )
        self._output, self.embeds_grad_RTH = None, grads[0]
        own = zip(self._parameters, grads[1:], strict=True)
        pairs = [(p.grad, grad) for p, grad in own if grad is not None]
        torch._foreach_add_([total for total, _ in pairs], [grad for _, grad in pairs])

    def _both(self) -> None:
        """With a gradient of 0, so that nothing is added to the weights' gradients."""
        self._forward()
        self._backward()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeds_RTH: Tensor, passes: _Passes) -> Tensor:
        passes.load(embeds_RTH)
        passes.forward()
        ctx.passes, ctx.rows = passes, len(embeds_RTH)
        return passes.hidden_RTH[: ctx.rows].detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.passes.load_gradient(grads[0])
        ctx.passes.backward()
        return ctx.passes.embeds_grad_RTH[: ctx.rows].detach(), None


def warm_up(work: Callable[[], None]) -> None:
    """Twice, aside: what is compiled or set up at first cannot be captured."""
    torch.cuda.synchronize()
    with torch.cuda.stream(side_stream(torch.cuda.current_device())):
        for _ in range(2):
            work()
    torch.cuda.synchronize()


def capture(work: Callable[[], None], pool: Any) -> Callable[[], None]:
    """The work as a graph, to be replayed: it is not done now."""
    graph = torch.cuda.CUDAGraph()
    # Of this thread only: autograd's and others may call the device meanwhile.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        work()
    replay: Callable[[], None] = graph.replay
    return replay

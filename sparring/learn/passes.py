"""How the learner reads a micro-batch: compiled, captured or plain, and its head chunk by chunk.

Shapes: N tokens to learn from, R rows, T positions, H hidden.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from sparring.core.types import Lesson
from sparring.learn.activation_checkpointing import recomputing
from sparring.learn.batches import Batch, Width, distinct_tokens
from sparring.learn.compile import WORTH, aligned, compiles, fused
from sparring.learn.graphs import Graphs, bucketed, captures
from sparring.learn.head import chunked_logprobs
from sparring.learn.masked_head import masked_logprobs
from sparring.learn.optimizer import Optimizer
from sparring.learn.packing import at_tokens, read_embeds, read_rows
from sparring.models.device import out_of_memory
from sparring.models.logits import logit_shape
from sparring.run.config import LearnConfig

log = logging.getLogger(__name__)


@contextmanager
def same_bits(wanted: bool, device: torch.device) -> Iterator[None]:
    """Operations in this block have torch's deterministic algorithms, or fail by name; attention is
    torch's own, whose backward pass has one, and not cuDNN's."""
    if not wanted or device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it torch refuses products
    memory: Any = torch.utils.deterministic
    cuda = torch.backends.cuda
    before = memory.fill_uninitialized_memory, cuda.cudnn_sdp_enabled()
    was_on = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False  # which takes time and changes no result of ours
    cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_on)
        memory.fill_uninitialized_memory = before[0]
        cuda.enable_cudnn_sdp(before[1])


class Passes:
    """Reading with any of the policies on some base models."""

    def __init__(self, models: Iterable[Any], config: LearnConfig) -> None:
        self.config, self.compiles, self.captures = config, True, True
        for model in models:
            self.compiles &= compiles(model, config)
            self.captures &= captures(model, config)
        self.graphs: dict[str, Graphs] = {}

    def capture(self, name: str, optimizer: Optimizer) -> None:
        """From now on a policy's passes are captured, where they are to be and its gradients lie
        in one place."""
        if self.captures and optimizer.gradients is not None:
            self.graphs[name] = Graphs(list(optimizer.parameters.values()))

    def row_width(self, graphs: Graphs | None, device: torch.device) -> Width:
        """How wide rows are padded: to few widths where captured, to aligned where compiled."""
        if graphs:
            return bucketed
        return aligned if self.compiles and device.type == "cuda" else int

    def worth_compiling(self, lessons: Sequence[Lesson]) -> bool:
        """Whether a step over these lessons is compiled: as asked; by default only where they are
        many, if graphs make few fast enough without keeping a short run waiting for a compiler."""
        asked = self.config.compile or not self.graphs
        return self.compiles and (asked or distinct_tokens(lessons) >= WORTH)

    def logprobs(
        self, model: Any, batch: Batch, fuse: bool | None = None, graphs: Graphs | None = None
    ) -> tuple[Tensor, Tensor]:
        """Logprob of every token to learn from, and the entropy at its position."""
        return self.head_logprobs(model, self.hidden(model, batch, fuse, graphs), batch, fuse)

    def hidden(
        self, model: Any, batch: Batch, fuse: bool | None = None, graphs: Graphs | None = None
    ) -> Tensor:
        """The model's last hidden state where each token to learn from is predicted; `fuse` says
        whether layers are compiled."""
        fuse = self.worth_compiling([]) if fuse is None else fuse
        if graphs is not None and batch.packed is None:
            read = partial(self._read, model, fuse)
            try:
                return at_tokens(graphs.hidden(model, batch.ids_RT, read, fuse), batch)
            except RuntimeError as error:
                if out_of_memory(error):
                    raise
                log.warning("passes of this model cannot be captured as graphs: %s", error)
            self.drop_graphs()
            self.graphs.clear()
        with self._layers(model, fuse):
            again = fuse or self.config.gradient_checkpointing
            return at_tokens(read_rows(model, batch, again=again), batch)

    def _read(self, model: Any, fuse: bool, embeds_RTH: Tensor) -> Tensor:
        with self._layers(model, fuse):
            return read_embeds(model, embeds_RTH)

    @contextmanager
    def _layers(self, model: Any, fuse: bool) -> Iterator[None]:
        again = self.config.gradient_checkpointing and torch.is_grad_enabled()
        with (
            fused(model) if fuse else nullcontext(),
            recomputing(model) if again else nullcontext(),
        ):
            yield

    def drop_graphs(self) -> None:
        for graphs in self.graphs.values():
            graphs.clear()

    def head_logprobs(
        self, model: Any, hidden_NH: Tensor, batch: Batch, fuse: bool | None = None
    ) -> tuple[Tensor, Tensor]:
        head, shape = model.get_output_embeddings(), logit_shape(model.config)
        fuse = self.worth_compiling([]) if fuse is None else fuse
        chunk = self.config.head_chunk
        whole = partial(chunked_logprobs, head=head, chunk=chunk, fuse=fuse, shape=shape)
        given = (hidden_NH, batch.target_N, batch.temperature_N)
        if batch.allowed_NA is None:
            return whole(given[0], targets_N=given[1], temperature_N=given[2])
        return masked_logprobs(*given, batch.allowed_NA, head, shape, whole)

"""Layers, and the operations on logits, compiled by torch: a few fused kernels instead of many
small ones, which keep less for the backward pass. Only in the learner's passes; others call the
model as it is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sparring.learn.activation_checkpointing import layers_of, with_forward
from sparring.run.config import LearnConfig

BACKEND = "inductor"
WIDTH = 32  # rows are padded to a multiple of it
WORTH = 24576  # distinct tokens of a step; for fewer nothing is compiled where graphs are captured


def compiles(model: Any, config: LearnConfig) -> bool:
    """Whether layers are compiled: as asked or, by default, on a GPU whose compiler is
    there."""
    if config.compile is None:
        able = find_spec("triton") is not None and hasattr(model.get_decoder(), "layers")
        return able and not config.shard and torch.device(model.device).type == "cuda"
    if config.compile:
        layers_of(model, "learn.compile")
    return config.compile


def aligned(tokens: int) -> int:
    """The width of a row of so many tokens."""
    return -(-tokens // WIDTH) * WIDTH


def fused(model: Any) -> AbstractContextManager[None]:
    """Layers called in this block are compiled at the first call. All layers of a model share one
    code, and torch compiles it once, for any number and length of rows."""
    keep_compilations()

    def compiled_forward(layer: Any) -> Callable[..., Any]:
        kind: Any = type(layer)
        return partial(_of_any_shape, _forward_of(kind, BACKEND), layer)

    return with_forward(layers_of(model, "learn.compile"), compiled_forward)


def keep_compilations() -> None:
    """Compiled code is kept where it outlives a restart of the machine, unless a variable names
    another folder; and for every adapter that is switched on in turn, each of which is compiled."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(home) / "sparring" / "inductor"))
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, 64)


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors whose first size changes from call to call."""
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # no fault of anybody's
    return torch.compile(function, backend=BACKEND, dynamic=True)


@cache
def _forward_of(kind: Any, backend: Any) -> Callable[..., Any]:
    """Of the class, not of a layer: what is kept here would keep a layer, and its weights, too."""
    forward: Callable[..., Any] = torch.compile(kind.forward, backend=backend)
    return forward


def _of_any_shape(forward: Callable[..., Any], *args: Any, **words: Any) -> Any:
    """Call it, and tell the compiler which sizes change, rows and length, so that it does not
    compile for the first ones it meets and then again for others."""
    for given in (*args, *words.values()):
        for tensor in given if isinstance(given, tuple) else (given,):
            if isinstance(tensor, Tensor):
                # A mask's are rows, heads, length, length; all others' begin with rows, length.
                changing = (0, 2, 3) if tensor.dim() == 4 else range(min(2, tensor.dim()))
                indices = [i for i in changing if tensor.shape[i] > 1]
                torch._dynamo.maybe_mark_dynamic(tensor, indices)
    return forward(*args, **words)

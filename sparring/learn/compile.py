"""Layers, and what is done to logits, compiled by torch: a few fused kernels instead of many small
ones, which keep less for the backward pass. Only the learner's passes; whoever else calls the model
gets it as it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch

from sparring.learn.activation_checkpointing import layers_of

BACKEND = "inductor"
_forwards: WeakKeyDictionary[Any, Callable[..., Any]] = WeakKeyDictionary()


@contextmanager
def fused(model: Any) -> Iterator[None]:
    """Layers called in this block are compiled at the first call. All layers of a model share one
    code, and torch compiles it once; other lengths than the first make it general."""
    layers = list(layers_of(model, "learn.compile"))
    for layer in layers:
        if layer not in _forwards:
            _forwards[layer] = torch.compile(_plain(layer), backend=BACKEND)
        layer.forward = _forwards[layer]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors whose first size changes from call to call."""
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # no fault of anybody's
    return torch.compile(function, backend=BACKEND, dynamic=True)


def _plain(layer: Any) -> Callable[..., Any]:
    forward: Callable[..., Any] = type(layer).forward.__get__(layer)
    return forward

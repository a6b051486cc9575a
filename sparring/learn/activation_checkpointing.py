"""Gradient checkpointing: a layer keeps what it was given and is computed again in the backward
pass. Here and not transformers' own, which is at work in training mode only, with dropout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint

from sparring.core.errors import ConfigError


def layers_of(model: Any, option: str = "learn.gradient_checkpointing") -> Any:
    layers = getattr(model.get_decoder(), "layers", None)
    if layers is None:
        raise ConfigError(
            f"{option} works on a decoder's layers, and {type(model).__name__} has none under that "
            "name; leave it off"
        )
    return layers


@contextmanager
def with_forward(layers: Any, make: Callable[[Any], Callable[..., Any]]) -> Iterator[None]:
    """Layers called in this block are computed by what `make` makes of each."""
    changed = [(layer, vars(layer).get("forward")) for layer in layers]
    for layer, _ in changed:
        layer.forward = make(layer)
    try:
        yield
    finally:
        for layer, own in changed:
            if own is None:
                del layer.forward
            else:
                layer.forward = own


def recomputing(model: Any) -> AbstractContextManager[None]:
    """Layers called in this block are computed again in the backward pass, whenever that is."""

    def again(layer: Any) -> Callable[..., Any]:
        once_more = partial(_as_it_was, layer, layer.forward, layer.training)
        return partial(checkpoint, once_more, use_reentrant=False)

    return with_forward(layers_of(model), again)


def _as_it_was(
    layer: Any, forward: Callable[..., Any], training: bool, *args: Any, **words: Any
) -> Any:
    """With dropout as in the first pass: by the second, the model may be in another mode."""
    now = layer.training
    if now == training:
        return forward(*args, **words)
    layer.train(training)
    try:
        return forward(*args, **words)
    finally:
        layer.train(now)

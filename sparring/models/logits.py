"""What a model makes of its head's output before it calls it logits, read from its config.

Shapes: C a chunk of tokens, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

MULTIPLIERS = ("logit_scale", "lm_head_multiplier", "output_multiplier")  # Cohere, Falcon H1, …
CAPS = ("final_logit_softcapping", "output_logit_soft_cap")  # Gemma, xLSTM


class LogitShape(NamedTuple):
    """cap · tanh(scale · x / cap), or scale · x where there is no cap."""

    scale: float = 1.0
    cap: float | None = None

    def of(self, logits_CV: Tensor) -> Tensor:
        if self.scale != 1:
            logits_CV = logits_CV * self.scale
        if self.cap is not None:
            logits_CV = torch.tanh(logits_CV / self.cap) * self.cap
        return logits_CV

    def backward(self, gradient_CV: Tensor, shaped_CV: Tensor) -> Tensor:
        """The gradient of x in place, given that of the shaped logits."""
        if self.cap is not None:
            gradient_CV.mul_(1 - (shaped_CV / self.cap) ** 2)
        return gradient_CV.mul_(self.scale) if self.scale != 1 else gradient_CV


def logit_shape(config: Any) -> LogitShape:
    """As transformers' models have it: Granite's scaling divides, the same key of others
    multiplies."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config

    def number(key: str) -> float | None:
        value = getattr(text, key, None)
        return float(value) if isinstance(value, int | float) and value else None

    scale = 1.0
    for key in MULTIPLIERS:
        scale *= number(key) or 1.0
    scaling = number("logits_scaling") or 1.0
    divides = str(text.model_type).startswith("granite")
    scale *= 1 / scaling if divides else scaling
    cap = next((value for key in CAPS if (value := number(key)) is not None), None)
    return LogitShape(scale, cap)

"""What a model makes of its head's output before it calls it logits. The learner takes logprobs
chunk by chunk, past the model's own forward pass, and has to do the same: so it is read from the
model's config, and compared with the model's own logits before anything is learned.

Shapes: N tokens to learn from, C a chunk of them, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Sample
from sparring.learn.batches import collate
from sparring.learn.packing import at_tokens, read_rows

MULTIPLIERS = ("logit_scale", "lm_head_multiplier", "output_multiplier")  # Cohere, Falcon H1, …
CAPS = ("final_logit_softcapping", "output_logit_soft_cap")  # Gemma, xLSTM
TRIAL = 12  # tokens


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
    cap = next((found for key in CAPS if (found := number(key)) is not None), None)
    return LogitShape(scale, cap)


@torch.no_grad()
def check_head(model: Any) -> None:
    """Refuse a model whose own logprobs of a short sequence are not those the learner computes."""
    from sparring.learn.head import chunked_logprobs

    head = model.get_output_embeddings()
    if getattr(head, "weight", None) is None:
        raise ConfigError(f"{_refusal(model)}: it has no linear head")
    vocabulary = head.weight.shape[0]
    ids = [(3 + 7 * i * i) % vocabulary for i in range(TRIAL)]
    blank = [0.0] * TRIAL
    batch = collate([Sample(MAIN, ids, [0] + [1] * (TRIAL - 1), blank, blank)], 0, model.device)
    hidden_NH = at_tokens(read_rows(model, batch), batch)
    shape = logit_shape(model.config)
    ours_N, _ = chunked_logprobs(hidden_NH, head, batch.target_N, None, shape=shape)
    logits_NV = model(input_ids=batch.ids_RT, use_cache=False).logits[0].float()
    theirs_N = logits_NV.log_softmax(-1).gather(-1, batch.target_N[:, None])[:, 0]
    # Relative to what the model knows beyond the uniform: an untrained one knows very little.
    known_N = theirs_N + torch.tensor(float(vocabulary)).log()
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.05
    if not (ours_N - theirs_N).norm() <= tolerance * known_N.norm() + 1e-6:
        gap = float((ours_N - theirs_N).abs().max())
        raise ConfigError(
            f"{_refusal(model)}: its logprobs of a short text differ from the learner's by up to "
            f"{gap:.2g} nats. It does something to hidden states or logits that is not in "
            "sparring/models/logits.py; use another model, or add it there"
        )


def _refusal(model: Any) -> str:
    return f"{type(model).__name__} cannot be learned with: the learner goes by the model's head"

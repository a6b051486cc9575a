"""The learner takes logprobs chunk by chunk, past the model's own forward pass: they are compared
with the model's own logits before anything is learned.

Shapes: N tokens to learn from, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Sample
from sparring.learn.batches import collate
from sparring.learn.head import chunked_logprobs
from sparring.learn.packing import at_tokens, read_rows
from sparring.models.logits import logit_shape

TRIAL = 12  # tokens


@torch.no_grad()
def check_head(model: Any) -> None:
    """Refuse a model whose own logprobs of a short sequence are not those the learner computes."""
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

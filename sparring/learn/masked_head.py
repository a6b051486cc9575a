"""Logprobs of tokens that were drawn from the legal actions alone: the learner renormalises over
the same tokens as the engine did.

Shapes: N tokens to learn from, H hidden, A most allowed tokens of a position, U distinct ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.models.logits import LogitShape

Scores = tuple[Tensor, Tensor]  # a logprob and an entropy per token


def masked_logprobs(
    hidden_NH: Tensor,
    target_N: Tensor,
    temperature_N: Tensor | None,
    allowed_NA: Tensor,
    head: Any,
    shape: LogitShape,
    whole: Callable[..., Scores],
) -> Scores:
    """Each target's logprob and the entropy at its position: over its allowed tokens (padded with
    −1), or, where none are named, over the vocabulary by `whole`."""
    masked_N = (allowed_NA >= 0).any(-1)
    order_N = torch.cat([masked_N.nonzero()[:, 0], (~masked_N).nonzero()[:, 0]])
    legal, free = order_N.split([int(masked_N.sum()), int((~masked_N).sum())])

    def of(numbers: Tensor | None, at: Tensor) -> Any:
        return None if numbers is None else numbers[at]

    parts = [
        _over_allowed(
            hidden_NH[legal], target_N[legal], of(temperature_N, legal), allowed_NA[legal], head,
            shape,
        )
    ]  # fmt: skip
    if len(free):
        parts.append(
            whole(hidden_NH[free], targets_N=target_N[free], temperature_N=of(temperature_N, free))
        )
    back_N = order_N.argsort()
    logprob_N, entropy_N = (torch.cat(own)[back_N] for own in zip(*parts, strict=True))
    return logprob_N, entropy_N


def _over_allowed(
    hidden_NH: Tensor,
    target_N: Tensor,
    temperature_N: Tensor | None,
    allowed_NA: Tensor,
    head: Any,
    shape: LogitShape,
) -> Scores:
    """Only the logits of tokens that are allowed somewhere are computed."""
    distinct_U, index_NA = torch.unique(allowed_NA, return_inverse=True)
    token_U = distinct_U.clamp(min=0)
    bias = None if head.bias is None else head.bias[token_U]
    logits_NU = shape.of(F.linear(hidden_NH, head.weight[token_U], bias)).float()
    if temperature_N is not None:
        logits_NU = logits_NU / temperature_N[:, None]
    allowed_NU = torch.zeros_like(logits_NU, dtype=torch.bool).scatter(1, index_NA, True)
    allowed_NU &= distinct_U >= 0
    logprob_NU = logits_NU.masked_fill(~allowed_NU, -torch.inf).log_softmax(-1)
    # 0 · −inf is no number: what cannot be drawn adds nothing to the entropy.
    entropy_N = -(logprob_NU.exp() * logprob_NU.masked_fill(~allowed_NU, 0.0)).sum(-1)
    at_N1 = torch.searchsorted(distinct_U, target_N)[:, None]
    return logprob_NU.gather(-1, at_N1)[:, 0], entropy_N

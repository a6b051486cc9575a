"""The head of the model without its logits: logprobs and entropies for one chunk of places at a
time, and a backward pass by hand, which makes the chunk's logits again and turns them into their
own gradient where they lie.

Shapes: N tokens to learn from, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def chunked_logprobs(
    hidden_NH: Tensor,
    head: Any,
    targets_N: Tensor,
    temperature_N: Tensor | None,
    chunk: int = 1024,
) -> tuple[Tensor, Tensor]:
    """Each target's logprob and the entropy at its place, by a linear head; no temperatures means
    that all are 1. Logits exist for one chunk at a time, in the backward pass too, where they are
    computed again."""
    found: tuple[Tensor, Tensor] = _Chunks.apply(
        hidden_NH, head.weight, head.bias, targets_N, temperature_N, chunk
    )
    return found


class _Chunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        temperature_N: Tensor | None,
        chunk: int,
    ) -> tuple[Tensor, Tensor]:
        logprobs, entropies = [], []
        for at in _places(len(targets_N), chunk):
            logits_CV = _logits(hidden_NH[at], weight_VH, bias_V, _part(temperature_N, at))
            logprobs_CV = logits_CV.log_softmax(-1, dtype=_wide(logits_CV))
            logprobs.append(logprobs_CV.gather(-1, targets_N[at, None])[:, 0])
            entropies.append(_entropy(logprobs_CV))
        entropy_N = torch.cat(entropies)
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, temperature_N, entropy_N)
        ctx.chunk = chunk
        ctx.set_materialize_grads(False)  # an entropy that nobody asked for costs nothing
        return torch.cat(logprobs), entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, temperature_N, entropy_N = ctx.saved_tensors
        logprob_grad_N, entropy_grad_N = gradients
        wanted = ctx.needs_input_grad
        hidden_grad = torch.empty_like(hidden_NH) if wanted[0] else None
        weight_grad = torch.zeros_like(weight_VH) if wanted[1] else None
        bias_grad = torch.zeros_like(bias_V) if wanted[2] else None
        for at in _places(len(targets_N), ctx.chunk):
            temperature_C = _part(temperature_N, at)
            grad_CV = _logits_gradient(
                _logits(hidden_NH[at], weight_VH, bias_V, temperature_C),
                targets_N[at],
                entropy_N[at],
                _part(logprob_grad_N, at),
                _part(entropy_grad_N, at),
            )
            if temperature_C is not None:
                grad_CV.div_(temperature_C[:, None])
            grad_CV = grad_CV.to(hidden_NH.dtype)
            if hidden_grad is not None:
                torch.mm(grad_CV, weight_VH, out=hidden_grad[at])
            if weight_grad is not None:
                weight_grad.addmm_(grad_CV.T, hidden_NH[at])
            if bias_grad is not None:
                bias_grad += grad_CV.sum(0)
        return hidden_grad, weight_grad, bias_grad, None, None, None


def _places(count: int, chunk: int) -> list[slice]:
    return [slice(i, i + chunk) for i in range(0, count, chunk)]


def _part(numbers_N: Tensor | None, at: slice) -> Tensor | None:
    return None if numbers_N is None else numbers_N[at]


def _wide(logits: Tensor) -> torch.dtype:
    """What logits are summed in: float32 at least."""
    return torch.promote_types(logits.dtype, torch.float32)


def _logits(
    hidden_CH: Tensor, weight_VH: Tensor, bias_V: Tensor | None, temperature_C: Tensor | None
) -> Tensor:
    """At temperature 1 in the model's dtype, which a softmax widens without a copy."""
    logits_CV = F.linear(hidden_CH, weight_VH, bias_V)
    if temperature_C is None:
        return logits_CV
    return logits_CV.to(_wide(logits_CV)).div_(temperature_C[:, None])


def _entropy(logprobs_CV: Tensor) -> Tensor:
    """−Σ p·log p. As a product of rows and columns the terms themselves are never laid down."""
    return -torch.bmm(logprobs_CV.exp()[:, None], logprobs_CV[:, :, None])[:, 0, 0]


def _logits_gradient(
    logits_CV: Tensor,
    targets_C: Tensor,
    entropy_C: Tensor,
    logprob_grad_C: Tensor | None,
    entropy_grad_C: Tensor | None,
) -> Tensor:
    """With p the softmax and H its entropy: (1[target] − p)·g for the logprob's gradient g, and
    −p·(log p + H)·h for the entropy's gradient h."""
    given = logprob_grad_C if logprob_grad_C is not None else torch.zeros_like(entropy_C)
    if entropy_grad_C is None:
        grad_CV = logits_CV.softmax(-1, dtype=_wide(logits_CV)).mul_(-given[:, None])
    else:
        logprobs_CV = logits_CV.log_softmax(-1, dtype=_wide(logits_CV))
        p_CV = logprobs_CV.exp()
        logprobs_CV.add_(entropy_C[:, None]).mul_(entropy_grad_C[:, None]).add_(given[:, None])
        grad_CV = p_CV.mul_(logprobs_CV).neg_()
    return grad_CV.scatter_add_(-1, targets_C[:, None], given[:, None])

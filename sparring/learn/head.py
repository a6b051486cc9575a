"""The head of the model in chunks of positions: logprobs and entropies, and a backward pass by hand
that turns a chunk's logits into their own gradient. Where all logits are many, they are not kept
for it but computed again.

Shapes: N tokens to learn from, H hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sparring.learn.compile import compiled
from sparring.models.logits import LogitShape

# Bytes of logits that are kept from one pass to the other: computing them again is a quarter of the
# head's work. Beside what a GPU's model keeps of as many tokens they are few.
KEPT = {"cuda": 2 * 2**30, "cpu": 32 * 2**20}


def chunked_logprobs(
    hidden_NH: Tensor,
    head: Any,
    targets_N: Tensor,
    temperature_N: Tensor | None,
    chunk: int = 1024,
    *,
    fuse: bool = False,
    shape: LogitShape = LogitShape(),  # noqa: B008 (it cannot change)
) -> tuple[Tensor, Tensor]:
    """Each target's logprob and the entropy at its position, by a linear head whose output the
    model shapes; no temperatures means that all are 1. Fused, what is done to a chunk's logits is
    one or two passes over them."""
    scores: tuple[Tensor, Tensor] = _Chunks.apply(
        hidden_NH, head.weight, head.bias, targets_N, temperature_N, chunk, fuse, shape
    )
    return scores


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
        fuse: bool,
        shape: LogitShape,
    ) -> tuple[Tensor, Tensor]:
        scores = compiled(_scores) if fuse else _scores
        size = len(targets_N) * len(weight_VH) * weight_VH.element_size()
        keep = size <= KEPT.get(weight_VH.device.type, 0) and any(ctx.needs_input_grad)
        parts, kept = [], []
        for at in _chunks(len(targets_N), chunk):
            logits_CV = F.linear(hidden_NH[at], weight_VH, bias_V)
            parts.append(scores(logits_CV, targets_N[at], _part(temperature_N, at), shape))
            kept += [logits_CV] if keep else []
        logprob_N, entropy_N = (torch.cat(own) for own in zip(*parts, strict=True))
        ctx.save_for_backward(hidden_NH, weight_VH, bias_V, targets_N, temperature_N, entropy_N)
        ctx.chunk, ctx.fuse, ctx.shape, ctx.kept = chunk, fuse, shape, kept
        ctx.set_materialize_grads(False)  # an unused entropy costs nothing
        return logprob_N, entropy_N

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden_NH, weight_VH, bias_V, targets_N, temperature_N, entropy_N = ctx.saved_tensors
        logprob_grad_N, entropy_grad_N = gradients
        if logprob_grad_N is None:
            logprob_grad_N = torch.zeros_like(entropy_N)
        wanted = ctx.needs_input_grad
        hidden_grad = torch.empty_like(hidden_NH) if wanted[0] else None
        # From the second micro-batch on the products are added to what is there: beside a small
        # model's other gradients one more of the head's size is much, and adding it takes a pass.
        kept_grad = weight_VH.grad if weight_VH.is_leaf else None
        weight_grad = None
        if wanted[1]:
            weight_grad = torch.zeros_like(weight_VH) if kept_grad is None else kept_grad
        bias_grad = torch.zeros_like(bias_V) if wanted[2] else None
        gradient = compiled(_logits_gradient) if ctx.fuse else _logits_gradient
        for at in _chunks(len(targets_N), ctx.chunk):
            kept = ctx.kept.pop(0) if ctx.kept else None  # given up when its gradient is made
            grad_CV = gradient(
                F.linear(hidden_NH[at], weight_VH, bias_V) if kept is None else kept,
                targets_N[at],
                _part(temperature_N, at),
                logprob_grad_N[at],
                entropy_N[at],
                _part(entropy_grad_N, at),
                ctx.shape,
            )
            if hidden_grad is not None:
                torch.mm(grad_CV, weight_VH, out=hidden_grad[at])
            if weight_grad is not None:
                weight_grad.addmm_(grad_CV.T, hidden_NH[at])
            if bias_grad is not None:
                bias_grad += grad_CV.sum(0)
        new_grad = None if weight_grad is kept_grad else weight_grad
        return hidden_grad, new_grad, bias_grad, None, None, None, None, None


def _chunks(count: int, chunk: int) -> list[slice]:
    return [slice(i, i + chunk) for i in range(0, count, chunk)]


def _part(numbers_N: Tensor | None, at: slice) -> Tensor | None:
    return None if numbers_N is None else numbers_N[at]


def _logprobs(logits_CV: Tensor, temperature_C: Tensor | None) -> Tensor:
    """In float32 at least. At temperature 1 the softmax widens the logits without a copy."""
    wide = torch.promote_types(logits_CV.dtype, torch.float32)
    if temperature_C is not None:
        logits_CV = logits_CV.to(wide) / temperature_C[:, None]
    return logits_CV.log_softmax(-1, dtype=wide)


def _scores(
    logits_CV: Tensor, targets_C: Tensor, temperature_C: Tensor | None, shape: LogitShape
) -> tuple[Tensor, Tensor]:
    """The targets' logprobs, and the entropies −Σ p·log p."""
    logprobs_CV = _logprobs(shape.of(logits_CV), temperature_C)
    logprob_C = logprobs_CV.gather(-1, targets_C[:, None])[:, 0]
    return logprob_C, -logprobs_CV.exp().mul_(logprobs_CV).sum(-1)


def _logits_gradient(
    logits_CV: Tensor,
    targets_C: Tensor,
    temperature_C: Tensor | None,
    logprob_grad_C: Tensor,
    entropy_C: Tensor,
    entropy_grad_C: Tensor | None,
    shape: LogitShape,
) -> Tensor:
    """With p the softmax and H its entropy: (1[target] − p)·g for the logprob's gradient g, and
    −p·(log p + H)·h for the entropy's gradient h; in the logits' own dtype."""
    shaped_CV = shape.of(logits_CV)
    logprobs_CV = _logprobs(shaped_CV, temperature_C)
    p_CV = logprobs_CV.exp()
    if entropy_grad_C is None:
        grad_CV = p_CV.mul_(-logprob_grad_C[:, None])
    else:
        pull_CV = logprobs_CV.add_(entropy_C[:, None]).mul_(entropy_grad_C[:, None])
        grad_CV = p_CV.mul_(pull_CV.add_(logprob_grad_C[:, None])).neg_()
    if temperature_C is not None:
        grad_CV.div_(temperature_C[:, None])
        logprob_grad_C = logprob_grad_C / temperature_C
    # Not scattered: a comparison can be part of the same pass over the logits.
    words_V = torch.arange(logits_CV.shape[-1], device=logits_CV.device)
    grad_CV.add_((words_V == targets_C[:, None]) * logprob_grad_C[:, None])
    return shape.backward(grad_CV, shaped_CV).to(logits_CV.dtype)

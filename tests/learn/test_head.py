"""The head by hand against the head by autograd, in float64 and in bf16."""

from typing import Any

import pytest
import torch
from torch import Tensor

from sparring.learn import head as head_module
from sparring.learn.head import chunked_logprobs
from sparring.models.device import dtype_runs


def plain(hidden: Tensor, head: Any, targets: Tensor, temperature: Tensor) -> tuple[Tensor, Tensor]:
    logprobs = (head(hidden) / temperature[:, None]).log_softmax(-1)
    entropy = -(logprobs.exp() * logprobs).sum(-1)
    return logprobs[torch.arange(len(targets)), targets], entropy


@pytest.mark.parametrize("kept", [0, 2**20])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bonus", [0.0, 0.3])
@pytest.mark.parametrize(("chunk", "heated"), [(1, True), (3, True), (7, False), (100, True)])
def test_chunks_change_neither_values_nor_gradients(monkeypatch, chunk, heated, bonus, bias, kept):
    monkeypatch.setattr(head_module, "KEPT", {"cpu": kept})
    hidden = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(6, 11, bias=bias).double()
    targets, temperature = torch.randint(11, (7,)), torch.ones(7).double()
    if heated:
        temperature = torch.rand(7).double() + 0.5

    def both(logprobs: Tensor, entropy: Tensor) -> list[Tensor]:
        mix = (logprobs * torch.arange(7.0)).sum()
        if bonus:
            mix = mix + bonus * (entropy**2).sum()
        gradients = torch.autograd.grad(mix, [hidden, *head.parameters()])
        return [logprobs, entropy, *gradients]

    expected = both(*plain(hidden, head, targets, temperature))
    given = temperature if heated else None
    found = both(*chunked_logprobs(hidden, head, targets, given, chunk))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=1e-10)


def test_the_entropy_alone_has_its_gradient_too():
    hidden = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(6, 11).double()
    targets, temperature = torch.randint(11, (5,)), torch.ones(5).double()

    def entropies(hidden: Tensor) -> Tensor:
        return chunked_logprobs(hidden, head, targets, temperature, 2)[1]

    assert torch.autograd.gradcheck(entropies, (hidden,))


def test_low_precision_weights_are_scored_in_float32():
    if not dtype_runs("bfloat16", "cpu"):
        pytest.skip("products in bfloat16 fault on this CPU")
    hidden = torch.randn(9, 16, dtype=torch.bfloat16, requires_grad=True)
    head = torch.nn.Linear(16, 50, bias=False).bfloat16()
    targets = torch.randint(50, (9,))
    found = chunked_logprobs(hidden, head, targets, None, 4)
    expected = (head(hidden).float()).log_softmax(-1)
    assert found[0].dtype == found[1].dtype == torch.float32
    torch.testing.assert_close(found[0], expected[torch.arange(9), targets])
    a = torch.autograd.grad(found[0].sum(), [hidden, head.weight])
    b = torch.autograd.grad(expected[torch.arange(9), targets].sum(), [hidden, head.weight])
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, atol=0.02, rtol=0.02)


def test_a_frozen_head_still_passes_the_gradient_on():
    hidden = torch.randn(4, 6, requires_grad=True)
    head = torch.nn.Linear(6, 11).requires_grad_(False)
    targets = torch.zeros(4, dtype=torch.int64)
    chunked_logprobs(hidden, head, targets, torch.ones(4), 3)[0].sum().backward()
    assert hidden.grad is not None and hidden.grad.abs().sum() > 0
    assert head.weight.grad is None and head.bias.grad is None


@pytest.mark.parametrize("kept", [10 * 8 * 4 - 1, 10 * 8 * 4])
def test_no_chunk_sees_more_than_its_share_of_the_logits(monkeypatch, kept):
    monkeypatch.setattr(head_module, "KEPT", {"cpu": kept})
    rows = []
    real = head_module.F.linear

    def spy(hidden: Tensor, *words: Any) -> Tensor:
        rows.append(len(hidden))
        return real(hidden, *words)

    monkeypatch.setattr(head_module.F, "linear", spy)
    hidden = torch.randn(10, 5, requires_grad=True)
    targets = torch.zeros(10, dtype=torch.int64)
    logprobs, _ = chunked_logprobs(hidden, torch.nn.Linear(5, 8), targets, torch.ones(10), 4)
    assert rows == [4, 4, 2]
    logprobs.sum().backward()
    times = 1 if kept == 10 * 8 * 4 else 2
    assert rows == [4, 4, 2] * times, "the backward pass makes many logits again"


def test_a_second_micro_batch_adds_to_the_gradient_that_is_there():
    head = torch.nn.Linear(6, 11).double()
    hidden = torch.randn(2, 7, 6, dtype=torch.float64)
    targets = torch.randint(11, (2, 7))
    for rows, own in zip(hidden, targets, strict=True):
        sum(plain(rows, head, own, torch.ones(7).double())).sum().backward()
    expected = [p.grad.clone() for p in head.parameters()]
    head.zero_grad()
    kept = None
    for rows, own in zip(hidden, targets, strict=True):
        sum(chunked_logprobs(rows, head, own, None, 3)).sum().backward()
        kept = kept or head.weight.grad.data_ptr()
    assert head.weight.grad.data_ptr() == kept
    torch.testing.assert_close([p.grad for p in head.parameters()], expected)

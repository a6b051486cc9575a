"""Losses with numbers worked out by hand."""

import math

import pytest
import torch

from sparring.learn.losses import Totals, clipped_policy_loss, kl_k3, token_weights


def test_the_clip_holds_back_only_what_goes_too_far_the_wrong_way():
    ratio = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5])
    advantage = torch.tensor([2.0, 1.0, -1.0, 1.0, -1.0])
    loss, held = clipped_policy_loss(ratio.log(), torch.zeros(5), advantage, 0.2, 0.3)
    # A gain is cut at 1.3, a loss at 0.8; what makes things worse is never cut.
    torch.testing.assert_close(loss, torch.tensor([-2.0, -1.3, 1.5, -0.5, 0.8]))
    assert held.tolist() == [False, True, False, False, True]


def test_a_token_that_is_held_back_has_no_gradient():
    logprobs = torch.tensor([math.log(1.5), math.log(1.1)], requires_grad=True)
    loss, _ = clipped_policy_loss(logprobs, torch.zeros(2), torch.ones(2), 0.2, 0.2)
    loss.sum().backward()
    torch.testing.assert_close(logprobs.grad, torch.tensor([0.0, -1.1]))


def test_k3_by_hand():
    mine = torch.tensor([0.5, 0.25, 0.5]).log()
    reference = torch.tensor([0.5, 0.5, 0.25]).log()
    expected = [0.0, 2 - math.log(2) - 1, 0.5 + math.log(2) - 1]
    torch.testing.assert_close(kl_k3(mine, reference), torch.tensor(expected))


def test_k3_averages_to_the_true_divergence():
    policy, reference = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([0.2, 0.5, 0.3])
    mean = (policy * kl_k3(policy.log(), reference.log())).sum()
    torch.testing.assert_close(mean, (policy * (policy / reference).log()).sum())


def test_the_corrected_k3_has_the_gradient_of_the_true_divergence():
    """What the ratio is for: the mean gradient of k3 alone pulls towards another divergence."""
    logits = torch.tensor([0.9, 0.1, -0.7], requires_grad=True)
    reference = torch.tensor([0.2, 0.5, 0.3]).log()
    logprobs = logits.log_softmax(-1)
    weights = logprobs.detach().exp()

    def gradient(value: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value, logits, retain_graph=True)[0]

    true = gradient((logprobs.exp() * (logprobs - reference)).sum())
    ratio = (logprobs - logprobs.detach()).exp()
    k3 = kl_k3(logprobs, reference)
    torch.testing.assert_close(gradient((weights * ratio * k3).sum()), true)
    assert (gradient((weights * k3).sum()) - true).abs().max() > 0.02


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        # One sample of one token and one of three, of a step with 4 sequences and 10 tokens
        # in 2 micro-batches, where a reply may have 5.
        ("grpo", [1 / 4, 1 / 12, 1 / 12, 1 / 12]),
        ("bnpo", [1 / 8] * 4),
        ("dr_grpo", [1 / 20] * 4),
        ("dapo", [1 / 10] * 4),
    ],
)
def test_token_weights_by_hand(kind, expected):
    weights = token_weights(torch.tensor([0, 1, 1, 1]), kind, Totals(4, 10, 2, 5))
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_a_ratio_counts_for_no_more_than_the_cap() -> None:
    ratio = torch.tensor([0.5, 1.0, 5.0, 5.0])
    advantage = torch.tensor([-1.0, 1.0, -1.0, 1.0])
    new = ratio.log().requires_grad_()
    loss, held = clipped_policy_loss(new, torch.zeros(4), advantage, 0.2, 0.2, 2.0)
    assert loss.tolist() == pytest.approx([0.8, -1.0, 2.0, -1.2])
    assert held.tolist() == [True, False, True, True]
    loss.sum().backward()
    assert new.grad is not None and new.grad.tolist() == pytest.approx([0.0, -1.0, 0.0, 0.0])
    free, _ = clipped_policy_loss(new, torch.zeros(4), advantage, 0.2, 0.2)
    assert free.tolist() == pytest.approx([0.8, -1.0, 5.0, -1.2])

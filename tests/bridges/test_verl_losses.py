"""Losses and corrections against the real verl's: values and gradients on the same tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("verl", reason="verl is not installed; `make verl` installs it")

from torch import Tensor
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.rollout_corr_helper import (
    compute_rollout_correction_weights,
    compute_rollout_rejection_mask,
)
from verl.workers.config import ActorConfig

from sparring.learn import losses
from sparring.learn.losses import Totals, policy_loss, token_weights
from sparring.run.config import LearnConfig

LOW, HIGH, CAP = 0.2, 0.28, 3.0
AGGREGATIONS = {
    "dapo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}


@pytest.fixture
def data() -> dict[str, Tensor]:
    """Twelve sequences of up to nine tokens whose policies have moved far apart."""
    generator = torch.Generator().manual_seed(3)
    shape = (12, 9)
    old = -torch.rand(shape, generator=generator) * 2 - 0.05
    new = (old + torch.randn(shape, generator=generator) * 0.4).clamp(max=-0.01)
    lengths = torch.randint(1, 10, (12,), generator=generator)
    return {
        "old": old,
        "new": new,
        "advantages": torch.randn((12, 1), generator=generator).expand(shape).contiguous(),
        "mask": (torch.arange(9) < lengths[:, None]).float(),
    }


def flat(data: dict[str, Tensor], key: str) -> Tensor:
    return data[key][data["mask"].bool()]


def samples_of(data: dict[str, Tensor]) -> Tensor:
    return torch.arange(12)[:, None].expand(12, 9)[data["mask"].bool()]


def theirs(mode: str, data: dict[str, Tensor], aggregation: str) -> tuple[Tensor, Tensor]:
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=LOW,
        clip_ratio_low=LOW,
        clip_ratio_high=HIGH,
        clip_ratio_c=CAP,
        tau_pos=1.0,
        tau_neg=1.05,
    )
    new = data["new"].clone().requires_grad_()
    loss, _ = get_policy_loss_fn(mode)(
        old_log_prob=data["old"],
        log_prob=new,
        advantages=data["advantages"],
        response_mask=data["mask"],
        loss_agg_mode=AGGREGATIONS[aggregation],
        config=config,
    )
    loss.backward()
    assert new.grad is not None
    return loss.detach(), new.grad[data["mask"].bool()]


MODES = [(m, a) for m in ("vanilla", "gspo", "cispo", "dppo_tv", "dppo_kl") for a in AGGREGATIONS]


@pytest.mark.parametrize(("mode", "aggregation"), [*MODES, ("sapo", "grpo")])  # its only one there
def test_loss_and_gradient_equal_those_of_verl(
    mode: Any, aggregation: Any, data: dict[str, Tensor]
) -> None:
    cap = None if mode == "gspo" else CAP  # verl's GSPO has no second clip
    config = LearnConfig(loss_mode=mode, clip_low=LOW, clip_high=HIGH, ratio_cap=cap)
    new, sample_N = flat(data, "new").requires_grad_(), samples_of(data)
    each, acted = policy_loss(new, flat(data, "old"), flat(data, "advantages"), sample_N, config)
    totals = Totals(sequences=12, tokens=len(sample_N), max_tokens=9)
    loss = (each * token_weights(sample_N, aggregation, totals)).sum()
    loss.backward()
    expected, gradient = theirs(mode, data, aggregation)
    assert abs(float(expected)) > 1e-3 and float(gradient.abs().max()) > 1e-3
    torch.testing.assert_close(loss.detach(), expected)
    torch.testing.assert_close(new.grad, gradient)
    assert mode == "sapo" or acted.any()  # otherwise the clip was not tried


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("bounds", [(None, 1.3), (0.7, 1.3)])
def test_importance_weights_equal_those_of_verl(
    level: str, bounds: tuple[float | None, float], data: dict[str, Tensor]
) -> None:
    low, high = bounds
    log_ratio = data["new"] - data["old"]
    # verl: one bound truncates (TIS), two mask (IcePop).
    threshold: Any = high if low is None else f"{low}_{high}"
    expected, _ = compute_rollout_correction_weights(log_ratio, data["mask"], level, threshold)
    mode = f"{level}_{'truncate' if low is None else 'mask'}"
    kept = data["mask"].bool()
    ours = losses.importance_weights(log_ratio[kept], samples_of(data), mode, low, high)
    torch.testing.assert_close(ours, expected[kept])
    assert (ours == 0).any() or (ours == high).any()


@pytest.mark.parametrize(
    "kind",
    [f"{level}_{k}" for level in ("token", "seq_sum", "seq_mean") for k in ("k1", "k2", "k3")]
    + ["seq_max_k2", "seq_max_k3"],
)
def test_rejected_tokens_equal_those_of_verl(kind: str, data: dict[str, Tensor]) -> None:
    log_ratio = data["new"] - data["old"]
    k1 = kind.endswith("k1")
    bound = {"token": 0.02, "seq_sum": 0.4, "seq_mean": 0.08, "seq_max": 0.2}[kind[:-3]]
    threshold: Any = "0.8_1.2" if k1 else bound
    expected, _ = compute_rollout_rejection_mask(log_ratio, data["mask"], kind, threshold)
    low, high = (0.8, 1.2) if k1 else (None, bound)
    kept = data["mask"].bool()
    ours = losses.rejection_mask(log_ratio[kept], samples_of(data), kind, low, high)
    assert torch.equal(ours, expected[kept].bool())
    assert ours.any() and not ours.all()

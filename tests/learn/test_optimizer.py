"""The optimizer: low precision, clipping, one kernel for all, moments in eight bits."""

import math
import sys

import pytest
import torch
from test_learner import copied, distance

from sparring.core.errors import ConfigError
from sparring.learn.learner import Learner
from sparring.learn.optimizer import Optimizer, _flat_gradients
from sparring.run.config import LearnConfig


def bf16_optimizer() -> tuple[dict, Optimizer]:
    weights = {"w": torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))}
    return weights, Optimizer(weights, LearnConfig(betas=(0.9, 0.99)))


def test_low_precision_weights_gather_steps_that_are_too_small_for_them():
    weights, optimizer = bf16_optimizer()
    for _ in range(10):
        weights["w"].grad = torch.ones(4, dtype=torch.bfloat16)
        optimizer.step(lr=2**-11, max_norm=100.0)
    # Adam moves by lr each time; one such step is an eighth of what bfloat16 can tell at 1.
    torch.testing.assert_close(optimizer.masters["w"].data, torch.full((4,), 1 - 10 * 2**-11))
    assert weights["w"].dtype == torch.bfloat16
    assert torch.equal(weights["w"].data, optimizer.masters["w"].to(torch.bfloat16))
    assert weights["w"][0].item() < 1
    assert weights["w"].grad is None


def test_low_precision_masters_are_part_of_the_state():
    weights, first = bf16_optimizer()
    for _ in range(3):
        weights["w"].grad = torch.ones(4, dtype=torch.bfloat16)
        first.step(lr=2**-11, max_norm=100.0)
    others, second = bf16_optimizer()
    second.load(copied(first.state()))
    for w, optimizer in ((weights, first), (others, second)):
        w["w"].grad = torch.full((4,), -0.5, dtype=torch.bfloat16)
        optimizer.step(lr=2**-11, max_norm=100.0)
    assert torch.equal(first.masters["w"], second.masters["w"])
    assert torch.equal(weights["w"], others["w"])
    assert set(first.state()) == {"w/master", "w/step", "w/exp_avg", "w/exp_avg_sq"}


def test_the_gradient_is_cut_at_its_norm_and_a_broken_one_moves_nothing():
    weights = {"w": torch.nn.Parameter(torch.zeros(2))}
    optimizer = Optimizer(weights, LearnConfig())
    weights["w"].grad = torch.tensor([3.0, 4.0])
    assert optimizer.step(lr=0.1, max_norm=1.0) == pytest.approx(5.0)
    torch.testing.assert_close(
        optimizer.adam.state[weights["w"]]["exp_avg"], 0.1 * torch.tensor([0.6, 0.8])
    )
    before = weights["w"].detach().clone()
    weights["w"].grad = torch.tensor([1.0, math.inf])
    assert not math.isfinite(optimizer.step(lr=0.1, max_norm=1.0))
    assert torch.equal(weights["w"].data, before)


def test_one_kernel_steps_as_many_do_and_the_device_refuses_a_broken_gradient():
    """AdamW's fused form, which a GPU uses, here on the CPU: gradients in one buffer, and the
    check for finite numbers left to the kernel."""

    def weights() -> dict:
        generator = torch.Generator().manual_seed(0)
        return {k: torch.nn.Parameter(torch.randn(4, 3, generator=generator)) for k in "ab"}

    class Fused(Optimizer):
        def __init__(self, parameters, config):
            super().__init__(parameters, config)
            self.fused = True
            self.gradients, self._views = _flat_gradients(parameters)
            for group in self.adam.param_groups:
                group["fused"], group["foreach"] = True, False

    plain, fused = weights(), weights()
    config = LearnConfig(weight_decay=0.1)
    one, other = Optimizer(plain, config), Fused(fused, config)
    for step in range(4):
        for optimizer, own in ((one, plain), (other, fused)):
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in own.values())
            (loss * (float("nan") if step == 2 else 1.0)).backward()
        norms = [optimizer.step(0.1, 1.0) for optimizer in (one, other)]
        assert bool(norms[0].isfinite()) == bool(norms[1].isfinite()) == (step != 2)
        for key, value in plain.items():
            torch.testing.assert_close(fused[key], value, msg=f"{key} after step {step}")
    assert one.steps() == other.steps() == 3
    other.zero_grad()
    assert all(p.grad.data_ptr() >= other.gradients.data_ptr() for p in fused.values())
    before = copied(fused)
    (fused["a"].sum() + fused["b"].sum()).backward()
    other.step(0.1, 1.0, refused=torch.tensor(True))
    assert distance(before, copied(fused)) == 0


def test_moments_in_eight_bits_learn_the_same_and_go_on_from_their_state(
    make_policies, make_samples
):
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: sparring[8bit]")

    def learner(moments: str) -> Learner:
        return Learner(make_policies("full"), ["main"], LearnConfig(lr=1e-3, moments=moments))

    first, plain = learner("8bit"), learner("float32")
    start = copied(plain.policies.state("main"))
    for i in range(3):
        for one in (first, plain):
            one.fit(make_samples(seed=i), i)
    moved = distance(start, plain.policies.state("main"))
    off = distance(first.policies.state("main"), plain.policies.state("main"))
    assert 0 < off < moved / 4
    kept = first.state()["main.optimizer"]
    assert any(tensor.dtype == torch.uint8 for tensor in kept.values())
    second = learner("8bit")
    second.load({name: copied(tensors) for name, tensors in first.state().items()})
    assert second.optimizers["main"].steps() == 3
    assert first.fit(make_samples(seed=9), 3) == second.fit(make_samples(seed=9), 3)
    assert distance(first.policies.state("main"), second.policies.state("main")) == 0


def test_moments_in_eight_bits_are_refused_where_they_cannot_be_had(make_policies, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(ConfigError, match="needs bitsandbytes"):
        Learner(make_policies("lora"), ["main"], LearnConfig(moments="8bit"))

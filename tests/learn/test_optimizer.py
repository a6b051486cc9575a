"""The optimizer: low precision, clipping, one kernel for all, what saves memory."""

import math
import sys

import pytest
import torch
from test_learner import copied, distance

from sparring.core.errors import ConfigError
from sparring.learn import optimizer as optimizer_module
from sparring.learn.bf16_adam import Bfloat16AdamW, round_by_chance
from sparring.learn.learner import Learner
from sparring.learn.optimizer import Optimizer, _flat_gradients
from sparring.models.loading import load_model
from sparring.models.policies import wrap_model
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


@pytest.mark.parametrize("norm", [0.5, 100.0])
def test_parts_step_as_all_weights_at_once(monkeypatch, norm):
    """At most one part has its gradients in float32, and the norm is that of all."""
    found = []
    for part in (1, 13, 2**26):
        monkeypatch.setattr(optimizer_module, "PART", part)
        generator = torch.Generator().manual_seed(0)
        weights = {
            str(n): torch.nn.Parameter(torch.randn(n, generator=generator).bfloat16())
            for n in (5, 7, 30, 2)
        }
        optimizer = Optimizer(weights, LearnConfig())
        norms = []
        for _ in range(3):
            for p in weights.values():
                p.grad = torch.randn(p.shape, generator=generator).bfloat16()
            given = torch.cat([p.grad.float() for p in weights.values()])
            norms.append(optimizer.step(0.1, norm))
            torch.testing.assert_close(norms[-1], given.norm())
        found.append([*norms, *optimizer.masters.values(), *weights.values()])
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


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


SMALL = [
    {"moments": "bfloat16"},
    {"moments": "8bit"},
    {"quantize": "8bit", "weights": "lora"},
    {"quantize": "4bit", "weights": "lora", "moments": "bfloat16"},
]


@pytest.mark.parametrize("options", SMALL, ids=lambda options: "-".join(options.values()))
def test_what_saves_memory_learns_the_same_and_goes_on_from_its_state(make_samples, options):
    if options.get("moments") == "8bit" or options.get("quantize") == "4bit":
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: sparring[8bit]")

    def learner(**small: str) -> Learner:
        config = LearnConfig(**{"weights": "full", "lr": 1e-3, **small})
        return Learner(wrap_model(*load_model("nano"), config), ["main"], config)

    first, plain = learner(**options), learner(weights=options.get("weights", "full"))
    start = copied(plain.policies.state("main"))
    for i in range(3):
        for one in (first, plain):
            one.fit(make_samples(seed=i), i)
    moved = distance(start, plain.policies.state("main"))
    off = distance(first.policies.state("main"), plain.policies.state("main"))
    assert 0 < off < moved / 2
    dtypes = {tensor.dtype for tensor in first.state()["main.optimizer"].values()}
    wanted = {"bfloat16": torch.bfloat16, "8bit": torch.uint8}
    assert dtypes >= {wanted.get(options.get("moments", ""), torch.float32)}
    second = learner(**options)
    second.load({name: copied(tensors) for name, tensors in first.state().items()})
    assert second.optimizers["main"].steps() == 3
    assert first.fit(make_samples(seed=9), 3) == second.fit(make_samples(seed=9), 3)
    assert distance(first.policies.state("main"), second.policies.state("main")) == 0


def test_rounding_by_chance_keeps_the_mean_and_a_slow_decay():
    noise = torch.Generator().manual_seed(0)
    numbers = torch.tensor([1.001, -3.7, 1e-9, 0.0]).repeat(20_000, 1)
    rounded = round_by_chance(numbers, noise)
    assert rounded.dtype == torch.bfloat16
    low, high = rounded.float().amin(0), rounded.float().amax(0)
    assert ((high - low) <= numbers[0].abs() / 64).all()
    torch.testing.assert_close(rounded.double().mean(0), numbers[0].double(), rtol=1e-4, atol=0)
    weight = torch.nn.Parameter(torch.zeros(4096))
    adam = Bfloat16AdamW([weight], lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0)
    for step in range(40):
        weight.grad = torch.full_like(weight, float(step == 0))
        adam.step()
    # To the nearest, a second moment never falls by the thousandth that it should each time.
    square = adam.state[weight]["exp_avg_sq"].double()
    assert float(square.mean()) == pytest.approx(1e-3 * 0.999**39, rel=2e-3)


def test_moments_in_bfloat16_step_as_torch_does():
    weights = [torch.nn.Parameter(torch.linspace(-1, 1, 64)) for _ in range(2)]
    options = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": 0.1}
    small = Bfloat16AdamW([weights[0]], **options)
    whole = torch.optim.AdamW([weights[1]], **options)
    for step in range(5):
        for weight, adam in zip(weights, (small, whole), strict=True):
            weight.grad = torch.cos(torch.arange(64.0) + step)
            adam.step()
        if step == 0:  # nothing has been rounded yet
            torch.testing.assert_close(*weights, rtol=0, atol=1e-7)
    torch.testing.assert_close(*weights, rtol=0, atol=1e-3)


def test_moments_in_eight_bits_are_refused_where_they_cannot_be_had(make_policies, monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(ConfigError, match="needs bitsandbytes"):
        Learner(make_policies("lora"), ["main"], LearnConfig(moments="8bit"))

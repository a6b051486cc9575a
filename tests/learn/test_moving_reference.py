"""The magnet creeps after the policy, however coarse the numbers that the weights are kept in."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sparring.learn.learner import Learner
from sparring.models.loading import load_model
from sparring.models.policies import FullPolicies
from sparring.run.config import LearnConfig

RATE = 0.01


def learner(dtype: str) -> Learner:
    config = LearnConfig(weights="full", kl=0.1, reference="moving", reference_rate=RATE)
    return Learner(FullPolicies(*load_model("nano", dtype=dtype)), ["main"], config)


def shift(found: Learner, by: float) -> None:
    """Move the policy as its optimizer would: masters first, weights after."""
    optimizer = found.optimizers["main"]
    with torch.no_grad():
        for name, master in optimizer.masters.items():
            master.add_(by)
            if master is not optimizer.parameters[name]:
                optimizer.parameters[name].copy_(master)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_many_small_moves_add_up(dtype: str) -> None:
    found = learner(dtype)
    key = "model.norm.weight"  # ones: a bfloat16 next to 1 is 1/128 away
    shift(found, 0.25)
    for _ in range(100):
        found._move_reference("main")
    reference = found.policies.parameters(found.reference("main"))[key]
    assert reference.dtype == getattr(torch, dtype)
    expected = 1.25 - 0.25 * (1 - RATE) ** 100
    assert torch.allclose(reference.float(), torch.tensor(expected), atol=1 / 128)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_magnet_is_what_is_saved_and_loaded(dtype: str) -> None:
    found, other = learner(dtype), learner(dtype)
    shift(found, 0.25)
    for _ in range(3):
        found._move_reference("main")
    state = {k: {n: t.clone() for n, t in group.items()} for k, group in found.state().items()}
    assert all(t.dtype == torch.float32 for t in state["main.reference"].values())
    other.load(state)
    for one in (found, other):
        one._move_reference("main")
    for name, magnet in found.magnets["main"].items():
        assert torch.equal(magnet, other.magnets["main"][name])
    shown: list[dict[str, Any]] = [x.policies.state(x.reference("main")) for x in (found, other)]
    assert all(torch.equal(shown[0][name], shown[1][name]) for name in shown[0])


def test_a_fixed_reference_has_no_magnet() -> None:
    config = LearnConfig(weights="full", kl=0.1, reference="base")
    found = Learner(FullPolicies(*load_model("nano")), ["main"], config)
    assert found.magnets == {} and set(found.state()) == {"main.policy", "main.optimizer"}

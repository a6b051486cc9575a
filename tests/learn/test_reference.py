"""Moving references follow the policy, whatever dtype the weights have."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sparring.learn.learner import Learner
from sparring.models.loading import load_model
from sparring.models.policies import FullPolicies
from sparring.run.config import LearnConfig

RATE = 0.01


def learner(dtype: str, reference: str = "ema") -> Learner:
    config = LearnConfig(
        weights="full", kl=0.1, reference=reference, reference_rate=RATE, reference_every=3
    )
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
def test_the_reference_is_what_is_saved_and_loaded(dtype: str) -> None:
    found, other = learner(dtype), learner(dtype)
    shift(found, 0.25)
    for _ in range(3):
        found._move_reference("main")
    state = {k: {n: t.clone() for n, t in group.items()} for k, group in found.state().items()}
    assert all(t.dtype == torch.float32 for t in state["main.reference"].values())
    other.load(state)
    for one in (found, other):
        one._move_reference("main")
    for name, weights in found.references["main"].items():
        assert torch.equal(weights, other.references["main"][name])
    states: list[dict[str, Any]] = [x.policies.state(x.reference("main")) for x in (found, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_periodic_copies_and_the_running_average_by_hand() -> None:
    """Weights 1 + 0.25 n after the n-th update, and what each reference is then."""
    expected = {
        "copy": [1.0, 1.0, 1.75, 1.75, 1.75, 2.5],
        "average": [1.125, 1.25, 1.375, 1.5, 1.625, 1.75],
    }
    for reference, values in expected.items():
        found = learner("float32", reference)
        for update, value in enumerate(values):
            shift(found, 0.25)
            found._move_reference("main")
            own = found.policies.parameters(found.reference("main"))["model.norm.weight"]
            assert torch.allclose(own, torch.tensor(value)), (reference, update)


def test_a_reference_that_begins_anew_or_is_loaded_knows_how_often_it_has_followed() -> None:
    found, other = learner("float32", "average"), learner("float32", "average")
    for _ in range(3):
        shift(found, 0.25)
        found._move_reference("main")
    other.load(found.state())
    assert other.reference_updates == {"main": 3}
    found.restart(found.config)  # at 1.75: the mean of that and 2.0 is next
    shift(found, 0.25)
    found._move_reference("main")
    own = found.policies.parameters(found.reference("main"))["model.norm.weight"]
    assert torch.allclose(own, torch.tensor(1.875))


def test_a_config_without_one_leaves_the_reference_where_it_is() -> None:
    """As imitation does before self-play begins."""
    found = learner("float32")
    before = {k: w.clone() for k, w in found.policies.state(found.reference("main")).items()}
    usual = found.config
    found.restart(usual.model_copy(update={"kl": 0.0}))
    shift(found, 0.25)
    found._move_reference("main")
    found.load(found.state())
    found.config = usual
    after = found.policies.state(found.reference("main"))
    assert all(torch.equal(after[k], before[k]) for k in before)


def test_a_fixed_reference_has_no_weights_of_its_own() -> None:
    config = LearnConfig(weights="full", kl=0.1, reference="base")
    found = Learner(FullPolicies(*load_model("nano")), ["main"], config)
    assert found.references == {} and set(found.state()) == {"main.policy", "main.optimizer"}

"""An iteration that restarts learns as if there had been none before it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparring.core.types import Sample
from sparring.learn.learner import Learner
from sparring.models.loading import load_model
from sparring.models.policies import FullPolicies
from sparring.run.config import LearnConfig


@pytest.mark.parametrize("restart", [True, False])
def test_restarting_forgets_what_was_learned_before(
    make_policies: Callable[..., Any], make_samples: Callable[..., list[Sample]], restart: bool
) -> None:
    config = LearnConfig(objective="likelihood", restart=restart, lr=1e-2)

    def learned(*seeds: int) -> dict[str, torch.Tensor]:
        policies = make_policies("lora")
        learner = Learner(policies, ["main"], config)
        for seed in seeds:
            learner.fit(make_samples(6, seed=seed), 0)
        return {key: value.clone() for key, value in policies.state("main").items()}

    twice, once = learned(1, 2), learned(2)
    same = all(torch.equal(twice[key], once[key]) for key in once)
    assert same is restart


@pytest.mark.parametrize("objective", ["likelihood", "policy"])
def test_each_restart_begins_the_schedule_of_the_learning_rate_anew(
    make_policies: Callable[..., Any],
    make_samples: Callable[..., list[Sample]],
    monkeypatch: pytest.MonkeyPatch,
    objective: str,
) -> None:
    """Two warm-up steps, then a line to zero over the eight steps of each iteration."""
    config = LearnConfig(
        objective=objective, restart=True, lr=1.0, schedule="linear", lr_floor=0.0, warmup=2,
        epochs=2, minibatches=4,
    )  # fmt: skip
    learner = Learner(make_policies("lora"), ["main"], config)
    rates: list[float] = []
    monkeypatch.setattr(
        learner, "_step", lambda name, lr, refused: rates.append(lr) or torch.tensor(1.0)
    )
    for iteration in range(5):
        learner.fit(make_samples(8, seed=iteration), iteration, 5)
    of_one = [0.5 * 1.0, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    assert rates == pytest.approx(of_one * 5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_another_config_begins_anew_at_the_weights_that_there_are(dtype: str) -> None:
    """Masters, moments and the moving reference are those of the fitted weights."""
    config = LearnConfig(weights="full", kl=0.1, reference="ema")
    learner = Learner(FullPolicies(*load_model("nano", dtype=dtype)), ["main"], config)
    learner.restart(LearnConfig(weights="full", objective="likelihood", lr=1e-3))
    with torch.no_grad():  # bfloat16 products crash on some CPUs: weights are moved by hand
        for parameter in learner.policies.parameters("main").values():
            parameter.add_(0.5)
    learner.optimizers["main"].adam.step()
    learner.restart(config)
    optimizer, reference = learner.optimizers["main"], learner.reference("main")
    assert learner.config is config and not optimizer.adam.state
    for name, weight in learner.policies.state("main").items():
        assert torch.equal(optimizer.masters[name].to(weight.dtype), weight)
        assert torch.equal(learner.policies.state(reference)[name], weight)
        assert torch.equal(learner.references["main"][name].to(weight.dtype), weight)

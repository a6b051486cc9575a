"""An iteration that restarts learns as if there had been none before it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparring.learn.learner import Learner
from sparring.run.config import LearnConfig
from sparring.types import Sample


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

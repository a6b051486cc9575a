"""Layers computed again give the same gradients, dropout and all, and leave nothing behind."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from sparring.core.errors import ConfigError
from sparring.learn.learner import Learner
from sparring.models.loading import load_model, nano_tokenizer
from sparring.models.policies import FullPolicies, wrap_model
from sparring.run.config import LearnConfig


def gradients(samples: list, config: LearnConfig) -> tuple[list[torch.Tensor], int]:
    """Of one step; and how often a layer was computed."""
    policies = wrap_model(*load_model("nano"), config)
    policies.add("main")
    with torch.no_grad():
        for p in policies.parameters("main").values():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    learner = Learner(policies, ["main"], config)
    calls = []
    with policies.using("main") as model:
        norm = model.get_decoder().layers[0].input_layernorm
    norm.register_forward_hook(lambda *_: calls.append(1))
    with learner._dropout(0):
        learner._accumulate("main", samples)
    found = [p.grad for p in policies.parameters("main").values() if p.grad is not None]
    with policies.using("main") as model:
        assert "forward" not in vars(model.get_decoder().layers[0])
    return found, len(calls)


@pytest.mark.parametrize("objective", ["policy", "likelihood"])
@pytest.mark.parametrize("weights", ["full", "lora"])
def test_the_same_gradients_for_twice_the_work(make_samples, weights, objective):
    options: dict[str, Any] = {"weights": weights, "objective": objective, "lora_dropout": 0.3}
    plain, once = gradients(make_samples(6), LearnConfig(**options))
    again, twice = gradients(make_samples(6), LearnConfig(**options, gradient_checkpointing=True))
    assert (once, twice) == (1, 2)
    assert len(plain) == len(again) > 10
    for one, other in zip(plain, again, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("option", ["gradient_checkpointing", "compile"])
def test_a_model_without_layers_is_refused(option):
    config = GPT2Config(vocab_size=261, n_embd=32, n_layer=2, n_head=4)
    policies = FullPolicies(AutoModelForCausalLM.from_config(config), nano_tokenizer())
    with pytest.raises(ConfigError, match=f"learn.{option} .* GPT2LMHeadModel has none"):
        Learner(policies, ["main"], LearnConfig(**{option: True}))

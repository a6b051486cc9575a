"""What the learner calls a logprob is what the model calls one, whatever it does to its logits."""

import asyncio
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    FalconH1Config,
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
)

from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sample, Sampling
from sparring.engines.local.decoder import unsupported
from sparring.engines.local.engine import TransformersEngine
from sparring.learn.batches import collate
from sparring.learn.head import chunked_logprobs
from sparring.learn.head_check import check_head
from sparring.learn.learner import Learner
from sparring.models.loading import nano_tokenizer
from sparring.models.logits import LogitShape, logit_shape
from sparring.models.policies import FullPolicies, LoraPolicies, Policies
from sparring.run.config import LearnConfig

SIZES: dict[str, Any] = {
    "vocab_size": 261,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
    "initializer_range": 0.2,
}
CONFIGS = {
    "llama": (LlamaConfig(**SIZES), LogitShape()),
    "granite": (GraniteConfig(**SIZES, logits_scaling=8.0), LogitShape(1 / 8)),
    "cohere": (CohereConfig(**SIZES, logit_scale=0.0625), LogitShape(0.0625)),
    "gemma2": (Gemma2Config(**SIZES, final_logit_softcapping=3.0), LogitShape(1.0, 3.0)),
    "gemma3": (Gemma3TextConfig(**SIZES), LogitShape()),
    "gemma3-capped": (
        Gemma3TextConfig(**SIZES, final_logit_softcapping=3.0),
        LogitShape(1.0, 3.0),
    ),
}


def policies_of(kind: str, weights: str = "full") -> Policies:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[kind][0]).eval()
    if weights == "lora":
        return LoraPolicies(model, nano_tokenizer(), r=4, alpha=8)
    return FullPolicies(model, nano_tokenizer())


def logprobs_of(model: Any, sample: Sample) -> torch.Tensor:
    """By the model's own forward pass."""
    ids = torch.tensor([sample.ids])
    logprobs = model(input_ids=ids).logits[0, :-1].float().log_softmax(-1)
    said = logprobs.gather(-1, ids[0, 1:, None])[:, 0]
    return said[torch.tensor(sample.mask[1:]).bool()]


@pytest.mark.parametrize("weights", ["full", "lora"])
@pytest.mark.parametrize("kind", CONFIGS)
def test_logprobs_and_gradients_are_those_of_the_models_own_forward_pass(
    make_samples: Any, kind: str, weights: str
) -> None:
    policies = policies_of(kind, weights)
    assert logit_shape(policies.config) == CONFIGS[kind][1]
    learner = Learner(policies, ["main"], LearnConfig(weights=weights))  # type: ignore[arg-type]
    parameters = list(policies.parameters("main").values())
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(0.02 * torch.randn(parameter.shape))
    samples = make_samples(5)
    batch = collate(samples, 0, "cpu")
    with policies.using("main") as model:
        ours, _ = learner.logprobs(model, batch)
        theirs = torch.cat([logprobs_of(model, sample) for sample in samples])
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        mix = torch.arange(1.0, len(ours) + 1)
        found = torch.autograd.grad((ours * mix).sum(), parameters)
        expected = torch.autograd.grad((theirs * mix).sum(), parameters)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_engine_samples_with_the_same_logprobs(kind: str) -> None:
    """So the canary is silent, by the fast way or transformers' own."""
    policies = policies_of(kind)
    learner = Learner(policies, ["main"], LearnConfig(weights="full"))
    engine = TransformersEngine(policies)
    asked = Request("a", "main", [{"role": "user", "content": "go"}], Sampling(max_tokens=8), 3)
    turn = asyncio.run(engine.act(asked))
    n, m = len(turn.prompt_ids), len(turn.token_ids)
    ids = turn.prompt_ids + turn.token_ids
    sample = Sample("main", ids, [0] * n + [1] * m, [0.0] * (n + m), [0.0] * n + turn.logprobs)
    batch = collate([sample], 0, "cpu")
    with torch.no_grad(), policies.using("main") as model:
        ours, _ = learner.logprobs(model, batch)
        assert bool(unsupported(model)) is (kind != "llama")
    torch.testing.assert_close(ours, batch.logprob_N, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("objective", ["policy", "likelihood", "preference"])
def test_a_model_that_does_something_else_is_refused(objective: str) -> None:
    """SFT and DPO too, which have no canary."""
    policies = policies_of("llama")
    with policies.using("base") as model:
        real = model.lm_head.forward
        model.lm_head.forward = lambda hidden: 1.1 * real(hidden)
        with pytest.raises(ConfigError, match="LlamaForCausalLM cannot be learned with"):
            Learner(policies, ["main"], LearnConfig(weights="full", objective=objective))  # type: ignore[arg-type]


def test_other_names_for_a_scale() -> None:
    assert logit_shape(FalconH1Config(lm_head_multiplier=0.5)) == LogitShape(0.5)
    assert logit_shape(GraniteConfig(logits_scaling=4)) == LogitShape(0.25)
    torch.manual_seed(0)
    tiny = AutoModelForCausalLM.from_config(
        GraniteConfig(**{**SIZES, "initializer_range": 1e-3}, logits_scaling=8.0)
    )
    check_head(tiny.eval())
    tiny.config.model_type = "hyperclovax"  # which multiplies by the same key
    with pytest.raises(ConfigError, match="differ from the learner's"):
        check_head(tiny)


@pytest.mark.parametrize("shape", [LogitShape(0.3), LogitShape(1.0, 2.0), LogitShape(1.7, 1.5)])
def test_the_gradient_by_hand_is_that_of_autograd(shape: LogitShape) -> None:
    hidden = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(6, 11).double()
    targets, temperature = torch.randint(11, (5,)), torch.rand(5).double() + 0.5

    def both(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return chunked_logprobs(hidden, head, targets, temperature, 2, shape=shape)

    plain = (shape.of(head(hidden)) / temperature[:, None]).log_softmax(-1)
    torch.testing.assert_close(both(hidden)[0], plain[torch.arange(5), targets])
    assert torch.autograd.gradcheck(both, (hidden,))

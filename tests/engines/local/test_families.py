"""Every family that the engine computes itself, as a small random model in float32, token for token
against transformers' own `generate`; and what goes through it instead, with a line in the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
import torch
import transformers as hf

from sparring.core.tree import Infoset
from sparring.core.types import Request, Sampling, Turn
from sparring.engines.local import engine as engine_module
from sparring.engines.local.engine import PromptTooLong, TransformersEngine
from sparring.engines.local.families import FAMILIES
from sparring.engines.local.runner import Runner
from sparring.models.loading import nano_tokenizer
from sparring.models.policies import FullPolicies

SHAPE = {
    "vocab_size": 261,
    "eos_token_id": 1,
    "bos_token_id": None,
    "pad_token_id": 0,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
BOTH = ["sliding_attention", "full_attention"] * 2
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama 3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama with biases": ("Llama", {"attention_bias": True}),
    "mistral": ("Mistral", {"sliding_window": 20}),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3 with a window": ("Qwen3", {"use_sliding_window": True, "sliding_window": 20,
                                      "layer_types": BOTH, "head_dim": 16}),
    "smollm2": ("Llama", {"tie_word_embeddings": True, "num_attention_heads": 3,
                          "num_key_value_heads": 1}),
    "smollm3": ("SmolLM3", {"no_rope_layer_interval": 2}),
    "phi3": ("Phi3", {"sliding_window": 20}),
    "phi4": ("Phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                          "partial_rotary_factor": 0.5}}),
    "olmo2": ("Olmo2", {}),
    "gemma3": ("Gemma3Text", {"sliding_window": 20, "layer_types": BOTH, "head_dim": 16,
                              "query_pre_attn_scalar": 24}),
    "gemma3 with capped logits": ("Gemma3Text", {"sliding_window": 20, "layer_types": BOTH,
                                                 "head_dim": 16, "final_logit_softcapping": 2.0}),
}  # fmt: skip
TEXTS = ("a", "and so on and on", "tell me more " * 4)


def make(kind: str, options: dict[str, Any]) -> FullPolicies:
    config = getattr(hf, f"{kind}Config")(**{**SHAPE, **options})
    name = {"Gemma3Text": "Gemma3ForCausalLM"}.get(kind, f"{kind}ForCausalLM")
    torch.manual_seed(0)
    model = getattr(hf, name)(config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "norm" in key or "bias" in key:  # all ones or zeros would hide where they belong
                weight.add_(0.5 * torch.randn(weight.shape))
            else:
                weight.mul_(4)
    return FullPolicies(model, nano_tokenizer())


def ask(text: str, number: int, previous: Turn | None = None, tokens: int = 12) -> Request:
    plan = Sampling(temperature=0.0, max_tokens=tokens)
    messages = [{"role": "user", "content": text}]
    return Request("s", "base", messages, plan, number, (number,), previous)


async def talk(engine: TransformersEngine) -> list[Turn]:
    first = await asyncio.gather(*(engine.act(ask(text, i)) for i, text in enumerate(TEXTS)))
    more = (engine.act(ask("go on", i, turn)) for i, turn in enumerate(first))
    return [*first, *await asyncio.gather(*more)]


@pytest.mark.parametrize("name", MODELS)
def test_a_family_draws_what_transformers_generates(name: str) -> None:
    policies = make(*MODELS[name])
    engine = TransformersEngine(policies)
    turns = asyncio.run(talk(engine))
    assert all(isinstance(runner, Runner) for runner in engine._all_runners())
    with policies.using("base") as model, torch.no_grad():
        for turn in turns:
            ids = torch.tensor([turn.prompt_ids])
            out = model.generate(ids, max_new_tokens=12, do_sample=False)
            assert turn.token_ids == out[0, ids.shape[1] :].tolist()
            both = torch.tensor([turn.prompt_ids + turn.token_ids])
            logprobs = model(both).logits[0, ids.shape[1] - 1 : -1].log_softmax(-1)
            drawn = logprobs.gather(-1, both[0, ids.shape[1] :, None])[:, 0]
            assert turn.logprobs == pytest.approx(drawn.tolist(), abs=5e-5)


def test_every_family_is_tried() -> None:
    configs = {
        getattr(hf, f"{kind}Config")(**{**SHAPE, **o}).model_type for kind, o in MODELS.values()
    }
    assert configs == set(FAMILIES)


LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 6,
    "long_factor": [2.0] * 6, "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("Qwen3Moe", {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
         "qwen3_moe is not one of llama"),
        ("Phi3", {"rope_parameters": LONG_ROPE}, "(longrope) depends on the length"),
        ("Llama", {"hidden_act": "gelu"}, "its MLP has the activation gelu"),
    ],
)  # fmt: skip
def test_other_models_go_through_transformers_and_the_log_says_so(
    kind: str, options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    policies = make(kind, options)
    engine_module._say.cache_clear()  # it is said once
    with caplog.at_level(logging.INFO):
        turns = asyncio.run(talk(TransformersEngine(policies)))
    assert "transformers' own forward pass" in caplog.text and reason in caplog.text
    with policies.using("base") as model, torch.no_grad():
        for turn in turns[:1]:
            ids = torch.tensor([turn.prompt_ids])
            out = model.generate(ids, max_new_tokens=12, do_sample=False)
            assert turn.token_ids == out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("kind", ["Qwen3Next", "FalconH1"])
def test_models_with_linear_attention_go_on_when_others_are_done(kind: str) -> None:
    """Also where prompts are alike, which are read once."""
    policies = make(kind, {})
    engine = TransformersEngine(policies)

    async def answers() -> list[Turn]:
        lengths = (("a", 3), ("tell me more " * 4, 12), ("a", 7), ("and so on", 5))
        requests = (ask(text, i, tokens=n) for i, (text, n) in enumerate(lengths))
        return list(await asyncio.gather(*map(engine.act, requests)))

    with policies.using("base") as model, torch.no_grad():
        for turn in asyncio.run(answers()):
            ids = torch.tensor([turn.prompt_ids])
            out = model.generate(ids, max_new_tokens=len(turn.token_ids), do_sample=False)
            assert turn.token_ids == out[0, ids.shape[1] :].tolist()


def test_of_a_model_that_sees_the_part_that_speaks_says_how_long_a_sequence_may_be() -> None:
    """Gemma 3 of 4B and more: neither the context nor the vocabulary stands in its own config."""
    eye = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "image_size": 28,
           "num_attention_heads": 2, "patch_size": 14}  # fmt: skip
    text = {**SHAPE, "sliding_window": 20, "head_dim": 16}
    config = hf.Gemma3Config(text_config=text, vision_config=eye, image_token_index=200)
    policies = FullPolicies(hf.Gemma3ForConditionalGeneration(config).eval(), nano_tokenizer())
    assert policies.context == 512
    engine = TransformersEngine(policies)
    with pytest.raises(PromptTooLong, match="512 positions"):
        asyncio.run(engine.act(ask("x" * 510, 0)))
    asked = [Infoset("a", "s", "b or c?", ("b", "c"))]
    [chances] = engine.probabilities("base", asked, Sampling(max_tokens=1))
    assert len(chances) == 2 and 0 < sum(chances) < 1

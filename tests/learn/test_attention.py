"""Rows padded on the right need no mask: the same numbers, whichever way a model attends."""

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, OPTConfig

from sparring.learn.batches import Batch, collate, seen
from sparring.learn.learner import Learner
from sparring.models.loading import nano_tokenizer
from sparring.models.policies import FullPolicies
from sparring.run.config import LearnConfig

SMALL: dict[str, Any] = {
    "vocab_size": 261,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
SHAPES = {
    "grouped": LlamaConfig(**SMALL, intermediate_size=64, num_key_value_heads=2),
    "sliding window": MistralConfig(
        **SMALL, intermediate_size=64, num_key_value_heads=2, sliding_window=4
    ),
    "learned positions": OPTConfig(**SMALL, ffn_dim=64, word_embed_proj_dim=32),
}


def small(shape: str, attention: str) -> FullPolicies:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(SHAPES[shape], attn_implementation=attention)
    return FullPolicies(model, nano_tokenizer())


def masked(model: Any, batch: Batch, lengths: list[int]) -> Tensor:
    """The hidden states that are read from, with a mask over the pads."""
    width = batch.ids_RT.shape[1]
    mask = torch.tensor([[1] * n + [0] * (width - n) for n in lengths])
    read = model.get_decoder()(input_ids=batch.ids_RT, attention_mask=mask, use_cache=False)
    return read.last_hidden_state[batch.row_N, batch.position_N]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_mask_is_needed_where_pads_are_on_the_right(shape, attention, make_samples):
    policies = small(shape, attention)
    learner = Learner(policies, ["main"], LearnConfig(weights="full"))
    samples = make_samples(6)
    batch = collate(samples, 0, "cpu")
    lengths = [len(seen(s)) for s in samples]
    assert len(set(lengths)) > 1, "without pads there is nothing to show"
    weights = list(policies.parameters("main").values())
    found = []
    with policies.using("main") as model:
        for hidden in (learner.hidden(model, batch), masked(model, batch, lengths)):
            loss = (learner.head_logprobs(model, hidden, batch)[0] * batch.advantage_N).sum()
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
            found.append([loss.detach(), *(g for g in gradients if g is not None)])
    for free, with_mask in zip(*found, strict=True):
        torch.testing.assert_close(free, with_mask, atol=1e-5, rtol=1e-4)


def test_without_a_mask_attention_is_asked_for_its_causal_form(monkeypatch, make_samples):
    """What flash attention needs: no mask, is_causal, and key heads that are not copied."""
    asked: list[dict[str, Any]] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Any, **words: Any) -> Tensor:
        asked.append(words)
        return real(*args, **words)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    policies = small("grouped", "sdpa")
    learner = Learner(policies, ["main"], LearnConfig(weights="full"))
    asked.clear()  # of the check that the learner begins with
    with policies.using("main") as model:
        learner.hidden(model, collate(make_samples(6), 0, "cpu"))
    assert len(asked) == 2
    for words in asked:
        assert words["attn_mask"] is None and words["is_causal"] and words["enable_gqa"]

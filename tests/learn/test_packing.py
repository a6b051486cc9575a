"""Packed rows teach what unpacked ones teach, and a model that lets sequences leak is refused."""

import random
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, BloomConfig, Gemma3TextConfig, MistralConfig

from sparring.core.errors import ConfigError
from sparring.core.types import Lesson, Pair, Sample, members
from sparring.learn import batches
from sparring.learn import packing as packing_module
from sparring.learn.batches import collate, pack
from sparring.learn.learner import Learner
from sparring.models.loading import nano_tokenizer
from sparring.models.policies import FullPolicies
from sparring.run.config import LearnConfig


def pairs_of(samples: list[Sample]) -> list[Lesson]:
    return [Pair(a, b) for a, b in zip(samples[0::2], samples[1::2], strict=True)]


def siblings(prompts: int, each: int) -> list[Sample]:
    """Groups of samples that begin with the same prompt, of which two are the same throughout."""
    dice = random.Random(1)
    found = []
    for _ in range(prompts):
        prompt = [dice.randrange(5, 261) for _ in range(dice.randrange(3, 12))]
        for _ in range(each):
            said = [dice.randrange(5, 261) for _ in range(dice.randrange(1, 9))]
            nothing = [0.0] * len(prompt)
            found.append(
                Sample(
                    "main",
                    prompt + said,
                    [0] * len(prompt) + [1] * len(said),
                    nothing + [dice.gauss(0, 1)] * len(said),
                    nothing + [-5.0] * len(said),
                )
            )
        found[-1].ids, found[-1].mask = list(found[-2].ids), list(found[-2].mask)
        found[-1].advantages = [0.5 * m for m in found[-1].mask]
        found[-1].logprobs = [-4.0 * m for m in found[-1].mask]
    return found


def step(policies: Any, lessons: list[Lesson], **options: Any) -> list[torch.Tensor]:
    """The numbers and gradients of one step."""
    learner = Learner(policies, ["main"], LearnConfig(aggregation="grpo", **options))
    stats = learner._accumulate("main", lessons)
    gradients = [p.grad for p in policies.parameters("main").values() if p.grad is not None]
    return [torch.tensor(list(stats.values())), *gradients]


@pytest.mark.parametrize("budget", [16384, 40])
@pytest.mark.parametrize("objective", ["likelihood", "policy", "preference"])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_packed_rows_teach_what_unpacked_ones_teach(
    make_policies, make_samples, kind, objective, budget
):
    samples = make_samples(12, temperature=0.7)
    lessons = pairs_of(samples) if objective == "preference" else samples
    found = []
    for packing in (False, True):
        options = {"objective": objective, "packing": packing, "tokens_per_batch": budget}
        found.append(step(make_policies(kind), lessons, weights=kind, **options))
    assert len(found[0]) == len(found[1]) > 10
    for plain, packed in zip(*found, strict=True):
        torch.testing.assert_close(packed.float(), plain.float(), atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_no_sequence_sees_another(make_policies, make_samples, attention):
    policies = make_policies("full")
    learner = Learner(policies, ["main"], LearnConfig(packing=True))
    samples = make_samples(8)
    micro, width = pack(samples, 16384)
    batch = collate(micro[0], 0, "cpu", width)
    assert len(batch.ids_RT) < len(samples), "nothing was packed"
    with torch.no_grad(), policies.using("main") as model:
        model.set_attn_implementation(attention)
        together = learner.logprobs(model, batch)[0]
        alone = [learner.logprobs(model, collate([s], 0, "cpu"))[0] for s in micro[0]]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("most", [None, 2])
@pytest.mark.parametrize("budget", [16384, 60])
@pytest.mark.parametrize("objective", ["likelihood", "policy", "preference"])
def test_a_prompt_that_is_read_once_teaches_the_same(make_policies, objective, budget, most):
    samples = siblings(5, 6)
    lessons = pairs_of(samples) if objective == "preference" else samples
    found = []
    for packed in (False, True):
        options = {"objective": objective, "packing": packed, "tokens_per_batch": budget}
        options |= {"micro_batch": most, "weights": "full", "entropy": 0.1}
        found.append(step(make_policies("full"), lessons, **options))
    for plain, packed in zip(*found, strict=True):
        torch.testing.assert_close(packed.float(), plain.float(), atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_siblings_do_not_see_each_other(make_policies, attention):
    policies = make_policies("full")
    learner = Learner(policies, ["main"], LearnConfig(packing=True))
    (micro,), width = pack(siblings(4, 5), 16384)
    batch = collate(micro, 0, "cpu", width)
    unshared = sum(len(s.ids) - 1 for s in micro)
    assert int((batch.packed.piece_RT >= 0).sum()) < 0.7 * unshared, "nothing was shared"
    with torch.no_grad(), policies.using("main") as model:
        model.set_attn_implementation(attention)
        together = learner.logprobs(model, batch)[0]
        alone = [learner.logprobs(model, collate([s], 0, "cpu"))[0] for s in micro]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_a_shared_prompt_by_hand():
    def sample(*ids: int) -> Sample:
        n = len(ids) - 3
        return Sample("main", list(ids), [0] * 3 + [1] * n, [1.0] * (n + 3), [0.0] * (n + 3))

    lessons = [sample(1, 2, 3, 10, 11), sample(1, 2, 3, 20, 21, 22), sample(7, 8, 9, 30, 31)]
    batch = collate(lessons, 0, "cpu", 8)
    assert batch.ids_RT.tolist() == [[1, 2, 3, 10, 20, 21], [7, 8, 9, 30, 0, 0]]
    assert batch.packed.position_RT.tolist() == [[0, 1, 2, 3, 3, 4], [0, 1, 2, 3, 0, 0]]
    assert batch.packed.piece_RT.tolist() == [[0, 0, 0, 1, 2, 2], [3, 3, 3, 4, -1, -1]]
    assert batch.packed.before_RT.tolist() == [[0, 0, 0, 0, 0, 0], [3, 3, 3, 3, -1, -1]]
    assert batch.row_N.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert batch.position_N.tolist() == [2, 3, 2, 4, 5, 2, 3]
    assert batch.target_N.tolist() == [10, 11, 20, 21, 22, 30, 31]
    assert batch.packed.pieces is None  # 5 × 3 × 5 pairs by piece, 2 × 6 × 6 by row


def test_attention_by_piece_by_hand():
    def sample(*ids: int) -> Sample:
        return Sample("main", list(ids), [0, 0, 1, 1, 1], [1.0] * 5, [0.0] * 5)

    batch = collate([sample(1, 2, 9, 8, 7), sample(1, 2, 6, 5, 4)], 0, "cpu", 8)
    assert batch.ids_RT.tolist() == [[1, 2, 9, 8, 6, 5]]
    pieces = batch.packed.pieces
    assert pieces.query_PL.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert pieces.key_PK.tolist() == [[0, 1, 0, 0], [0, 1, 2, 3], [0, 1, 4, 5]]
    assert pieces.output_RT.tolist() == [[0, 1, 2, 3, 4, 5]]
    seen = pieces.mask_P1LK[:, 0].int().tolist()
    assert seen == [[[1, 0, 0, 0], [1, 1, 0, 0]], *[[[1, 1, 1, 0], [1, 1, 1, 1]]] * 2]


def test_attention_by_piece_equals_the_dense_mask_and_goes_with_checkpointing(make_policies):
    lessons = siblings(3, 6)
    (micro,), width = pack(lessons, 16384)
    assert collate(micro, 0, "cpu", width).packed.pieces is not None
    results = [
        step(make_policies("full"), lessons, weights="full", packing=True, **options)
        for options in ({}, {"gradient_checkpointing": True})  # which has a dense mask
    ]
    assert len(results[0]) == len(results[1]) > 10
    for by_piece, dense in zip(*results, strict=True):
        torch.testing.assert_close(by_piece, dense, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [Gemma3TextConfig, MistralConfig])
def test_layers_that_look_through_a_window_are_refused(kind):
    config = kind(
        vocab_size=261, hidden_size=32, intermediate_size=64, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=4,
    )  # fmt: skip
    policies = FullPolicies(AutoModelForCausalLM.from_config(config), nano_tokenizer())
    with pytest.raises(ConfigError, match="leave it off"):
        Learner(policies, ["main"], LearnConfig(packing=True))


def test_a_model_that_lets_them_leak_is_refused(monkeypatch, make_policies):
    monkeypatch.setattr(packing_module, "_mask", lambda model, packed: None)
    with pytest.raises(ConfigError, match="do not see each other in one row"):
        Learner(make_policies("lora"), ["main"], LearnConfig(packing=True))


def test_a_model_without_positions_is_refused():
    config = BloomConfig(vocab_size=261, hidden_size=32, n_layer=2, n_head=4)
    policies = FullPolicies(AutoModelForCausalLM.from_config(config), nano_tokenizer())
    with pytest.raises(ConfigError, match="BloomForCausalLM do; leave it off"):
        Learner(policies, ["main"], LearnConfig(packing=True))


def test_packing_by_hand(monkeypatch):
    monkeypatch.setattr(batches, "ROW", 1)

    def sample(n: int) -> Sample:
        return Sample("main", list(range(n, 2 * n)), [0] + [1] * (n - 1), [1.0] * n, [0.0] * n)

    lessons = [sample(n) for n in (3, 7, 4)]  # of which 2, 6 and 3 places are read
    (micro,), width = pack(lessons, 100)
    assert width == 6 and [len(s.ids) for s in micro] == [7, 4, 3]
    batch = collate(micro, 0, "cpu", width)
    assert batch.ids_RT.tolist() == [[7, 8, 9, 10, 11, 12], [4, 5, 6, 3, 4, 0]]
    assert batch.packed.position_RT.tolist() == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 1, 0]]
    assert batch.row_N.tolist() == [0] * 6 + [1] * 5
    assert batch.position_N.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]


def test_nothing_is_lost_and_budget_and_number_hold():
    dice = random.Random(0)
    lessons: list[Lesson] = []
    for _ in range(60):
        ids = [dice.randrange(5, 261) for _ in range(dice.randrange(2, 30))]
        lessons.append(Sample("main", ids, [1] * len(ids), [1.0] * len(ids), [0.0] * len(ids)))
    for most in (None, 3):
        micro, width = pack(lessons, 120, most)
        assert sorted(map(id, lessons)) == sorted(id(x) for some in micro for x in some)
        for some in micro:
            shape = collate([s for x in some for s in members(x)], 0, "cpu", width).ids_RT.shape
            assert shape[0] * shape[1] <= 120 and (most is None or len(some) <= most)


def test_flex_attention_sees_what_the_dense_mask_shows(make_policies, monkeypatch):
    """Forward only, by torch's own eager form of it: on a CPU it has no backward pass."""
    from torch.nn.attention.flex_attention import flex_attention
    from transformers.integrations import flex_attention as integration

    called = []

    def eager(*args: Any, training: bool, **options: Any) -> torch.Tensor:
        called.append(options["block_mask"])
        return flex_attention(*args, **options)

    monkeypatch.setattr(integration, "compile_friendly_flex_attention", eager)
    policies = make_policies("full")
    batch = collate(siblings(3, 4), 0, "cpu", width=64)
    assert batch.packed is not None and len(batch.ids_RT) > 1
    with torch.no_grad(), policies.using("main") as model:
        dense = packing_module.at_tokens(packing_module.read_rows(model, batch), batch)
        assert not called
        monkeypatch.setattr(packing_module, "FLEX", True)
        flex = packing_module.at_tokens(packing_module.read_rows(model, batch), batch)
        assert len(called) == len(model.get_decoder().layers)
        assert model.config._attn_implementation == "sdpa"
    torch.testing.assert_close(flex, dense, atol=1e-5, rtol=1e-4)


def test_reading_unpacked_rows_does_not_look_for_packed_ones(make_policies, monkeypatch):
    """The look makes the host wait for the device in each micro-batch."""
    looked = []
    name = "find_packed_sequence_indices"
    monkeypatch.setitem(packing_module._asked, name, looked.append)
    policies = make_policies("full")
    with torch.no_grad(), policies.using("main") as model:
        packing_module.read_rows(model, collate(siblings(2, 2), 0, "cpu"))
        assert not looked
        model.get_decoder()(input_ids=torch.ones(1, 4, dtype=torch.int64), use_cache=False)
        assert len(looked) == 1  # whoever else calls the model is not concerned

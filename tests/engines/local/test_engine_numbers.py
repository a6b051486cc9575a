"""The engine's probabilities and logprobs are the learner's."""

import asyncio
import copy

import pytest
import torch
from test_engine import PROMPTS, Chatter, answer, ask
from test_engine import engine as engine

from sparring.core.collect import Job, collect
from sparring.core.tree import Infoset
from sparring.core.types import Sampling, Task
from sparring.credit.samples import to_samples
from sparring.engines.local import decoder, row_counts
from sparring.engines.local.engine import TransformersEngine
from sparring.learn.learner import CanaryError, Learner
from sparring.models.loading import make_nano
from sparring.run.config import LearnConfig


def test_probabilities_are_those_of_a_plain_forward_pass(engine):
    """Of prompts of unlike lengths, read in one batch."""
    asked = [Infoset(text, "s", text, ("0", "1")) for text in PROMPTS]
    found = engine.probabilities("main", asked, Sampling(max_tokens=1))
    for prompt, row in zip(PROMPTS, found, strict=True):
        turn = answer(engine, [ask(prompt, temperature=0, max_tokens=1)])[0]
        with torch.no_grad(), engine.policies.using("main") as model:
            chance = model(torch.tensor([turn.prompt_ids])).logits[0, -1].softmax(-1)
        want = [float(chance[engine.chat.encode(text)[0]]) for text in "01"]
        assert row == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("published", [True, False])
def test_the_canary_fires_when_weights_are_not_published(make_policies, published):
    """An engine with weights of its own, as on another machine, that misses an update."""
    policies = make_policies("lora")
    far = TransformersEngine(copy.deepcopy(policies))
    learner = Learner(policies, ["main"], LearnConfig(lr=0.03), canary=0.05)

    def iteration(number: int) -> dict[str, float]:
        work = [
            Job(
                f"{i}",
                "chatter",
                Chatter(),
                Task(str(i)),
                i,
                {"s": "main"},
                "",
                frozenset({"main"}),
            )
            for i in range(16)
        ]
        episodes = asyncio.run(collect(work, far.act, sampling=Sampling(max_tokens=4)))
        samples = to_samples(episodes, [[(-1.0) ** i] for i in range(16)])
        return learner.fit(samples, number)

    assert iteration(0)["learn/canary"] < 1e-5
    if published:
        far.policies.load("main", policies.state("main"))
        assert iteration(1)["learn/canary"] < 1e-5
        return
    before = {key: value.clone() for key, value in policies.state("main").items()}
    with pytest.raises(CanaryError, match=r"'main' .*nats per token .*published to the engine"):
        iteration(1)
    assert all(torch.equal(before[key], value) for key, value in policies.state("main").items())
    assert policies.version("main") == 1


@pytest.mark.parametrize("onednn", [decoder.ONEDNN, False])
def test_a_product_is_the_exact_one_to_rounding(onednn):
    x, weight, bias = torch.randn(12, 96), torch.randn(40, 96), torch.randn(40)
    exact = x.double() @ weight.double().T
    for given, want in ((None, exact), (bias, exact + bias)):
        assert torch.allclose(decoder.product(x, weight, given, onednn).double(), want, atol=1e-4)


@pytest.mark.parametrize("others_agree", [True, False])
def test_where_the_rows_of_onednn_do_not_agree_torchs_own_products_are_taken(
    monkeypatch, caplog, others_agree
):
    """As on a processor where oneDNN sums up in another order for another number of rows."""
    product = decoder.product

    def by_rows(x, weight, bias, onednn):
        moved = onednn or not others_agree
        return product(x, weight, bias, False) * (1 + 1e-6 * len(x) * moved)

    monkeypatch.setattr(decoder, "product", by_rows)
    row_counts._invariant_step.cache_clear()
    try:
        found = decoder.Decoder.of(make_nano())
        step, agrees = row_counts.invariant_step(found)
        assert agrees == others_agree and step >= 4
        assert not found.head.onednn and not found.layers[0].qkv.onednn
        assert ("lockstep only" in caplog.text) != others_agree
    finally:
        row_counts._invariant_step.cache_clear()

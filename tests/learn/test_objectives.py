"""Demonstrations and pairs on the one learner: their numbers, and when dropout is at work."""

import math

import pytest
import torch

from sparring.core.types import Pair, Sample, members
from sparring.learn.batches import by_budget, collate, deal
from sparring.learn.learner import Learner
from sparring.learn.losses import Totals
from sparring.learn.objectives import (
    likelihood_objective,
    policy_objective,
    preference_objective,
)
from sparring.models.loading import load_model
from sparring.models.policies import wrap_model
from sparring.run.config import LearnConfig


def shown(ids: list[int], prompt: int, weight: float = 1.0, policy: str = "main") -> Sample:
    mask = [0] * prompt + [1] * (len(ids) - prompt)
    return Sample(policy, ids, mask, [weight * m for m in mask], [0.0] * len(ids))


def lora(dropout: float = 0.0, seed: int = 0):
    model, tokenizer = load_model("nano")
    config = LearnConfig(lora_r=4, lora_alpha=8, lora_dropout=dropout)
    policies = wrap_model(model, tokenizer, config, seed=seed)
    policies.add("main")
    return policies


def test_likelihood_is_the_weighted_mean_of_negative_logprobs():
    batch = collate([shown([5, 6, 7, 8], 2), shown([5, 9, 7], 2, weight=3.0)], 0, "cpu")
    logprobs = torch.tensor([-1.0, -2.0, -4.0])
    totals = Totals(sequences=2, tokens=3)
    loss, stats = likelihood_objective(logprobs, batch, totals, LearnConfig())
    assert float(loss) == pytest.approx((1 + 2 + 3 * 4) / 3)
    assert float(stats["nats_per_token"]) == pytest.approx(7 / 3)
    by_sample, _ = likelihood_objective(logprobs, batch, totals, LearnConfig(aggregation="grpo"))
    assert float(by_sample) == pytest.approx((3 / 2 + 12) / 2)


def test_a_loss_that_is_shown_does_not_go_by_the_order_of_its_tokens():
    generator = torch.Generator().manual_seed(0)
    count = 3000
    logprobs, advantages = torch.randn(2, count, generator=generator)
    config, totals = LearnConfig(), Totals(sequences=count, tokens=count)

    def stats(order: torch.Tensor) -> dict[str, float]:
        samples = [shown([5, 6, 7], 2, float(a)) for a in advantages[order]]
        batch = collate(samples, 0, "cpu")
        own = logprobs[order]
        _, found = policy_objective(own, own.abs(), batch, totals, config, entropy_bonus=0.1)
        return {key: float(value) for key, value in found.items()}

    first = stats(torch.arange(count))
    for _ in range(5):
        other = stats(torch.randperm(count, generator=generator))
        assert other == pytest.approx(first, rel=1e-13)


def test_preference_is_the_logistic_loss_of_what_was_gained_over_the_reference():
    chosen, rejected = shown([5, 6, 7, 8], 2), shown([5, 6, 9], 2)
    chosen.logprobs, rejected.logprobs = [0, 0, -1.0, -1.0], [0, 0, -2.0]
    batch = collate([chosen, rejected], 0, "cpu")
    logprobs = torch.tensor([-0.5, -0.5, -4.0])  # +1 on the chosen, −2 on the rejected
    config = LearnConfig(beta=0.5)
    loss, stats = preference_objective(logprobs, batch, Totals(sequences=1, tokens=3), config)
    assert float(loss) == pytest.approx(math.log(1 + math.exp(-1.5)))
    assert (stats["chosen"], stats["rejected"]) == (pytest.approx(0.5), pytest.approx(-1.0))
    assert stats["margin"] == pytest.approx(1.5) and stats["accuracy"] == 1.0


def test_fitting_demonstrations_raises_their_likelihood_and_nothing_asks_for_a_canary(policies):
    config = LearnConfig(objective="likelihood", lr=3e-3, batch=2, epochs=3)
    learner = Learner(policies, ["main"], config, canary=1e-9)
    lessons = [shown([5, 6, 7, 8 + i], 2) for i in range(5)]
    first = learner.fit(lessons, 0)
    last = learner.fit(lessons, 1)
    assert last["learn/nats_per_token"] < first["learn/nats_per_token"]
    assert first["learn/steps"] == 9 and "learn/canary" not in first


def test_fitting_pairs_prefers_the_chosen(policies):
    config = LearnConfig(objective="preference", lr=3e-3, batch=2, epochs=4)
    learner = Learner(policies, ["main"], config)
    pairs = [Pair(shown([5, 6, 7, 30 + i], 2), shown([5, 6, 9], 2)) for i in range(4)]
    for pair in pairs:
        for sample in members(pair):
            batch = collate([sample], 0, "cpu")
            with torch.no_grad(), policies.using("main") as model:
                found = iter(learner.logprobs(model, batch)[0].tolist())
            sample.logprobs = [next(found) if m else 0.0 for m in sample.mask]
    first = learner.fit(pairs[:1], 0)
    last = learner.fit(pairs, 1)
    assert first["learn/loss"] <= math.log(2) + 1e-6
    assert last["learn/accuracy"] == 1.0 and last["learn/margin"] > 0


def test_a_pair_is_never_parted_and_a_deal_takes_all():
    pairs = [Pair(shown([5] * (4 + i), 2), shown([6] * 3, 2)) for i in range(5)]
    micro = by_budget(pairs, 16)
    assert [len(m) for m in micro] == [2, 1, 1, 1]
    dealt = deal(pairs, 2, torch.Generator().manual_seed(0))
    assert [len(part) for part in dealt] == [2, 2, 1]
    assert {id(p) for part in dealt for p in part} == {id(p) for p in pairs}


def test_dropout_is_at_work_in_fitting_only_and_drawn_by_the_place_of_the_step():
    policies = lora(0.5)
    with torch.no_grad():
        for parameter in policies.parameters("main").values():
            parameter.add_(0.1)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad(), policies.fitting("main") as model:
        one, two = (model(ids).logits for _ in range(2))
    assert not torch.equal(one, two)
    with torch.no_grad(), policies.using("main") as model:
        one, two = (model(ids).logits for _ in range(2))
    assert torch.equal(one, two)


@pytest.mark.parametrize("disturb", [False, True])
def test_dropout_is_the_same_for_the_same_seed_whatever_else_was_drawn(disturb):
    found = []
    for again in (False, True):
        policies = lora(0.5)
        config = LearnConfig(objective="likelihood", lr=1e-2, batch=2, lora_dropout=0.5)
        learner = Learner(policies, ["main"], config, seed=4)
        lessons = [shown([5, 6, 7, 8 + i], 2) for i in range(4)]
        for iteration in range(2):
            if disturb and again:
                torch.rand(3)
            stats = learner.fit(lessons, iteration, 2)
        found.append((stats, policies.state("main")))
    (a, first), (b, second) = found
    assert a == b
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_the_rate_falls_by_optimizer_steps_under_supervision(make_policies):
    config = LearnConfig(
        objective="likelihood", lr=1.0, schedule="linear", lr_floor=0.0, batch=1, warmup=2
    )
    learner = Learner(make_policies("lora"), ["main"], config)
    taken: list[float] = []
    step = learner.optimizers["main"].step  # it counts; the weights stay where they are
    learner.optimizers["main"].step = lambda lr, *more: taken.append(lr) or step(0.0, *more)  # type: ignore
    lessons = [shown([5, 6, 7, 8 + i], 2) for i in range(2)]
    for iteration in range(2):
        learner.fit(lessons, iteration, 2)
    assert taken == pytest.approx([0.5, 0.75, 0.5, 0.25])


@pytest.mark.parametrize("objective", ["likelihood", "preference"])
def test_kl_stop_is_of_samples_and_stops_no_demonstrations(objective):
    config = LearnConfig(objective=objective, kl_stop=1e-9, epochs=2, lora_r=4, lora_alpha=8)
    learner = Learner(lora(), ["main"], config)
    one, other = shown([5, 6, 7, 8], 2), shown([5, 6, 9, 8], 2)
    stats = learner.fit([Pair(one, other)] if objective == "preference" else [one, other], 0)
    assert stats["learn/steps"] == 2 and "learn/stopped" not in stats

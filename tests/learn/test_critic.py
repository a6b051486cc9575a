"""The critic: its loss by numbers, what it learns, when PPO stops, what a restart keeps."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparring.core.types import Episode, Sample, Task, Turn
from sparring.credit.gae import Gae
from sparring.learn.critic import Critic, clipped_value_loss
from sparring.learn.learner import Learner
from sparring.run.config import LearnConfig


def test_the_value_loss_by_numbers() -> None:
    values, old = torch.tensor([1.0, 0.5, -1.0]), torch.tensor([0.0, 0.4, 0.0])
    loss, held = clipped_value_loss(values, old, torch.tensor([2.0, 1.0, 0.0]), 0.2)
    # 1.0 is held at 0.2: (0.2 − 2)² beats (1 − 2)². 0.5 is near. −1 is worse than −0.2.
    assert loss.tolist() == pytest.approx([0.5 * 1.8**2, 0.5 * 0.25, 0.5 * 1.0])
    assert held.tolist() == [True, False, False]


def judged(
    samples: list[Sample], learner: Learner, gain: Callable[[Sample], float]
) -> list[Sample]:
    for sample, values in zip(samples, learner.values(samples), strict=True):
        spread = iter(values)
        sample.values = [next(spread) if m else 0.0 for m in sample.mask]
        sample.returns = [gain(sample) * m for m in sample.mask]
        sample.advantages = [r - v for r, v in zip(sample.returns, sample.values, strict=True)]
    return samples


def with_own_logprobs(samples: list[Sample], learner: Learner) -> list[Sample]:
    """As if the policy itself had said them."""
    from sparring.learn.batches import collate

    for sample in samples:
        batch = collate([sample], 0, "cpu")
        with torch.no_grad(), learner.policies.using("main") as model:
            found = iter(learner.logprobs(model, batch)[0].tolist())
        sample.logprobs = [next(found) if m else 0.0 for m in sample.mask]
    return samples


def test_values_come_back_in_the_order_of_the_samples(
    policies: Any, make_samples: Callable[..., list[Sample]]
) -> None:
    learner = Learner(policies, ["main"], LearnConfig(tokens_per_batch=20), critic=True)
    samples = make_samples(8)
    assert learner.values(samples) == [[0.0] * sum(s.mask) for s in samples]
    with torch.no_grad():
        learner.critics["main"].weight.normal_(generator=torch.Generator().manual_seed(0))
    alone = [learner.values([s])[0] for s in samples]
    for together, single in zip(learner.values(samples), alone, strict=True):
        assert together == pytest.approx(single, abs=1e-4)
    assert len({round(v, 4) for values in alone for v in values}) > 8


def test_the_critic_learns_what_to_expect_and_shares_the_backbone(
    policies: Any, make_samples: Callable[..., list[Sample]]
) -> None:
    config = LearnConfig(lr=1e-3, critic_lr=3e-2, epochs=12, value_clip=10.0)
    learner = Learner(policies, ["main"], config, critic=True)
    samples = with_own_logprobs(make_samples(6), learner)
    judged(samples, learner, lambda s: 1.0 if len(s.ids) % 2 else -1.0)
    for sample in samples:
        sample.advantages = [0.0] * len(sample.ids)  # only the critic has something to learn
    before = {k: v.clone() for k, v in policies.state("main").items()}
    first = learner.fit(samples, 0)
    again = learner.fit(samples, 1)
    assert again["learn/value_loss"] < first["learn/value_loss"] / 2
    moved = [k for k, v in policies.state("main").items() if not torch.equal(v, before[k])]
    assert moved  # the value's gradient went into the policy's own weights


@pytest.mark.parametrize("rewards", [[0.98] * 6, [1.0, 0.2, 1.0, 0.2, 1.0, 0.2]])
def test_a_policy_whose_games_all_end_alike_stays_as_it_is(
    make_policies: Callable[..., Any],
    make_samples: Callable[..., list[Sample]],
    rewards: list[float],
) -> None:
    """A critic that has learned nothing yet is no reason to move: with equal rewards and λ below 1
    neither policy nor critic moves by a digit, with rewards that differ both do."""
    policies = make_policies("full")
    learner = Learner(policies, ["main"], LearnConfig(lr=1e-3, epochs=2), critic=True)
    credit = Gae(gamma=1.0, trace=0.9)
    credit.use_values(learner.values)
    before = {key: tensor.clone() for key, tensor in policies.state("main").items()}
    for iteration in range(2):
        episodes = []
        for sample, reward in zip(
            with_own_logprobs(make_samples(6), learner), rewards, strict=True
        ):
            start = sample.mask.index(1)
            said, logprobs = sample.ids[start:], sample.logprobs[start:]
            turn = Turn("a", "main", "", "", 0, sample.ids[:start], said, logprobs, trainable=True)
            own = Episode("e", "g", Task("t"), 0, turns=[turn], rewards={"a": reward})
            episodes.append(own)
        learner.fit(credit.samples(episodes), iteration)
    alike = len(set(rewards)) == 1
    moved = [k for k, v in policies.state("main").items() if not torch.equal(v, before[k])]
    assert (moved == []) == alike
    assert bool(learner.critics["main"].weight.any()) != alike


def test_epochs_end_when_the_policy_has_moved_far_enough(
    make_policies: Callable[..., Any], make_samples: Callable[..., list[Sample]]
) -> None:
    def steps(limit: float | None) -> dict[str, float]:
        config = LearnConfig(lr=3e-3, epochs=8, minibatches=2, kl_stop=limit)
        learner = Learner(make_policies("full"), ["main"], config, critic=True)
        samples = with_own_logprobs(make_samples(8), learner)
        return learner.fit(judged(samples, learner, lambda s: s.ids[0] % 3 - 1.0), 0)

    free, held = steps(None), steps(0.01)
    assert free["learn/steps"] == 16 and "learn/stopped" not in free
    assert 1 <= held["learn/steps"] < 16 and held["learn/stopped"] == 1
    assert steps(1e9)["learn/stopped"] == 0


def test_critic_and_its_optimizer_are_part_of_the_learners_state(
    make_policies: Callable[..., Any], make_samples: Callable[..., list[Sample]]
) -> None:
    def lesson(learner: Learner, seed: int) -> list[Sample]:
        samples = with_own_logprobs(make_samples(6, seed), learner)
        return judged(samples, learner, lambda s: s.ids[0] % 3 - 1.0)

    def learner() -> Learner:
        return Learner(make_policies("lora"), ["main"], LearnConfig(lr=1e-3, epochs=2), critic=True)

    whole = learner()
    whole.fit(lesson(whole, 1), 0)
    state = {f: {k: v.clone() for k, v in group.items()} for f, group in whole.state().items()}
    assert {"main.critic", "main.critic_optimizer"} <= set(state)
    expected = whole.fit(lesson(whole, 2), 1)
    resumed = learner()
    resumed.load(state)
    assert resumed.fit(lesson(resumed, 2), 1) == expected
    for key, value in whole.critics["main"].state().items():
        assert torch.equal(value, resumed.critics["main"].state()[key])
        assert value.abs().sum() > 0


def test_a_critic_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="another model: its weight has 8 entries there and 4"):
        Critic(4, "cpu").load(Critic(8, "cpu").state())

"""The learner moves what it should, by what it should, and stops when the canary does."""

import copy
import math

import pytest
import torch

from sparring.learn.batches import collate
from sparring.learn.learner import CanaryError, Learner
from sparring.run.config import LearnConfig


def copied(state: dict) -> dict:
    return {key: value.detach().clone() for key, value in state.items()}


def distance(a: dict, b: dict) -> float:
    return sum(float((a[key].float() - b[key].float()).abs().sum()) for key in a)


def own_logprobs(learner: Learner, samples: list, name: str = "main") -> torch.Tensor:
    batch = collate(samples, 0, "cpu")
    with torch.no_grad(), learner.policies.using(name) as model:
        return learner.logprobs(model, batch)[0]


def on_policy(learner: Learner, samples: list) -> list:
    """The samples as if the learner's own weights had just said them."""
    for sample in samples:
        said = iter(own_logprobs(learner, [sample]).tolist())
        sample.logprobs = [next(said) if m else 0.0 for m in sample.mask]
    return samples


def test_learning_raises_what_was_good_and_leaves_the_base_alone(policies, make_samples):
    learner = Learner(policies, ["main"], LearnConfig(lr=1e-3), canary=0.1)
    samples = on_policy(learner, make_samples(8))
    for i, sample in enumerate(samples):
        sample.advantages = [(1.0 if i % 2 else -1.0) * m for m in sample.mask]
    before = own_logprobs(learner, samples)
    unmoved = own_logprobs(learner, samples, "base")
    stats = learner.fit(samples, 0)
    moved = own_logprobs(learner, samples) - before
    advantage = collate(samples, 0, "cpu").advantage_N
    assert float((moved * advantage).mean()) > 1e-3
    assert torch.equal(own_logprobs(learner, samples, "base"), unmoved)
    assert policies.version("main") == 1 and policies.version("base") == 0
    assert stats["learn/canary"] < 1e-5
    assert stats["learn/grad_norm"] > 0
    assert stats["learn/steps"] == 1


def test_two_learners_of_one_base_do_not_touch_each_other(make_policies, make_samples):
    policies = make_policies("lora", ("alice", "bob", "carol"))
    learner = Learner(policies, ["alice", "bob"], LearnConfig(lr=1e-3))
    before = {name: copied(policies.state(name)) for name in ("alice", "bob", "carol")}
    stats = learner.fit(make_samples(4, policy="alice"), 0)
    assert distance(before["alice"], policies.state("alice")) > 0
    assert distance(before["bob"], policies.state("bob")) == 0
    assert "learn/alice/loss" in stats and "learn/bob/loss" not in stats
    learner.fit(make_samples(4, policy="bob") + make_samples(4, policy="carol"), 1)
    assert distance(before["bob"], policies.state("bob")) > 0
    assert distance(before["carol"], policies.state("carol")) == 0


@pytest.mark.parametrize("reference", ["base", "ema"])
def test_a_reference_holds_back_without_stopping_the_learning(policies, make_samples, reference):
    config = LearnConfig(lr=1e-3, kl=0.1, reference=reference)
    learner = Learner(policies, ["main"], config)
    before = copied(policies.state("main"))
    stats = learner.fit(make_samples(), 0)
    assert stats["learn/grad_norm"] > 1e-3
    assert distance(before, policies.state("main")) > 0


def test_kl_alone_pulls_the_policy_back_to_its_reference(policies, make_samples):
    learner = Learner(policies, ["main"], LearnConfig(lr=2e-3, kl=1.0))
    samples = make_samples(8)
    for sample in samples:
        sample.advantages = [0.0] * len(sample.ids)
    found = [learner.fit(on_policy(learner, samples), i)["learn/kl"] for i in range(6)]
    assert found[-1] < found[0] / 2


def test_the_moving_reference_follows_at_its_rate(policies, make_samples):
    config = LearnConfig(lr=1e-2, kl=0.1, reference="ema", reference_rate=0.25)
    learner = Learner(policies, ["main"], config)
    start = copied(policies.state("main"))
    assert distance(start, policies.state("reference_main")) == 0
    learner.fit(make_samples(), 0)
    now = policies.state("main")
    expected = {key: start[key] + 0.25 * (now[key] - start[key]) for key in start}
    reference = policies.state("reference_main")
    for key, value in expected.items():
        torch.testing.assert_close(reference[key], value, atol=1e-6, rtol=1e-5)
    assert 0 < distance(start, reference) < distance(start, now)


def test_a_uniform_reference_is_the_exact_divergence_to_equal_chances(policies, make_samples):
    learner = Learner(policies, ["main"], LearnConfig(kl=1.0, reference="uniform"))
    stats = learner.fit(make_samples(), 0)
    vocabulary = policies.config.vocab_size
    assert policies.names() == ["base", "main"]
    assert stats["learn/kl"] == pytest.approx(
        math.log(vocabulary) - stats["learn/entropy"], abs=1e-5
    )


def test_a_uniform_reference_raises_the_entropy(make_policies, make_samples):
    learner = Learner(
        make_policies("full"), ["main"], LearnConfig(lr=3e-3, kl=1.0, reference="uniform")
    )
    samples = make_samples()
    for sample in samples:
        sample.advantages = [0.0] * len(sample.ids)
    kl = [learner.fit(samples, i)["learn/kl"] for i in range(4)]
    assert kl[3] < kl[0] / 2


def test_the_pull_to_the_reference_moves_in_a_line(make_policies, make_samples):
    def loss(kl: float, kl_end: float | None, iteration: int) -> float:
        config = LearnConfig(kl=kl, kl_end=kl_end)
        learner = Learner(make_policies("full"), ["main"], config)
        return learner.fit(make_samples(), iteration, 4)["learn/loss"]

    assert loss(0.8, 0.0, 1) == pytest.approx(loss(0.6, None, 0))
    assert loss(0.8, 0.0, 1) != pytest.approx(loss(0.8, None, 0))


def test_the_learners_own_logprobs_are_noted_before_the_first_step(make_policies, make_samples):
    """Two steps with engine's and learner's logprobs kept apart: in the first the loss's ratio is 1
    for every token, whatever the engine said, and nothing is clipped."""
    config = LearnConfig(lr=1e-9, minibatches=2, importance_sampling_mode="token_truncate")
    policies, samples = make_policies("full"), make_samples()
    learner = Learner(policies, ["main"], config)
    stats = learner.fit(samples, 0)
    assert stats["learn/clip_rate"] == 0 and stats["learn/canary"] > 0.1
    for sample in samples:
        batch = collate([sample], 0, "cpu")
        with torch.no_grad(), policies.using("main") as model:
            own, _ = learner.logprobs(model, batch)
        torch.testing.assert_close(batch.old_logprob_N, own, atol=1e-5, rtol=1e-5)
    alone = Learner(make_policies("full"), ["main"], LearnConfig(lr=1e-9, minibatches=2))
    assert alone.fit(make_samples(), 0)["learn/clip_rate"] > 0


def test_without_kl_there_is_no_reference_to_carry(policies):
    Learner(policies, ["main"], LearnConfig(reference="ema"))
    assert policies.names() == ["base", "main"]


def test_micro_batches_do_not_change_the_step(make_policies, make_samples):
    found = []
    for budget in (10_000, 20):
        policies = make_policies("full")
        config = LearnConfig(lr=1e-3, tokens_per_batch=budget, head_chunk=3, aggregation="grpo")
        learner = Learner(policies, ["main"], config)
        stats = learner.fit(make_samples(12), 0)
        found.append((copied(policies.state("main")), stats))
    (one, a), (many, b) = found
    assert distance(one, many) / sum(v.numel() for v in one.values()) < 1e-6
    for key in ("loss", "canary", "entropy", "clip_rate", "grad_norm"):
        assert a[f"learn/{key}"] == pytest.approx(b[f"learn/{key}"], abs=1e-5)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError(),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Expected mha_graph.execute(handle, pack, space).is_good() to be true"),
    ],
)
def test_a_step_that_does_not_fit_the_memory_is_taken_in_smaller_parts(
    make_policies, make_samples, monkeypatch, caplog, error
):
    whole, small = (
        Learner(make_policies("full", ()), ["main"], LearnConfig(weights="full", lr=1e-3))
        for _ in range(2)
    )
    samples = make_samples(8)
    loss = small._loss

    def full(name, batch, *more):
        if batch.ids_RT.numel() > 60:
            raise error
        return loss(name, batch, *more)

    monkeypatch.setattr(small, "_loss", full)
    expected, found = whole.fit(samples, 0), small.fit(samples, 0)
    assert found["learn/grad_norm"] == pytest.approx(expected["learn/grad_norm"], rel=1e-4)
    assert distance(whole.policies.state("main"), small.policies.state("main")) < 1e-3
    assert small.budget < small.config.tokens_per_batch
    assert "out of memory" in caplog.text
    monkeypatch.setattr(small, "_loss", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(type(error)):  # no part is small enough
        small.fit(samples, 1)


def test_epochs_and_minibatches_make_their_steps(make_policies, make_samples):
    policies = make_policies("lora")
    config = LearnConfig(lr=1e-3, epochs=2, minibatches=3)
    stats = Learner(policies, ["main"], config).fit(make_samples(12), 0)
    assert stats["learn/steps"] == 6


def test_the_entropy_bonus_raises_entropy(make_policies, make_samples):
    policies = make_policies("full", spread=0.1)
    learner = Learner(policies, ["main"], LearnConfig(lr=1e-3, entropy=1.0))
    samples = make_samples(8)
    for sample in samples:
        sample.advantages = [0.0] * len(sample.ids)
    found = [learner.fit(samples, i)["learn/entropy"] for i in range(5)]
    assert found[-1] > found[0] + 0.01


def test_the_canary_fires_before_anything_moves(policies, make_samples):
    learner = Learner(policies, ["main"], LearnConfig(lr=1e-2), canary=0.1)
    samples = on_policy(learner, make_samples())
    before = copied(policies.state("main"))
    for sample in samples:
        sample.logprobs = [x - 0.2 * m for x, m in zip(sample.logprobs, sample.mask, strict=True)]
    with pytest.raises(CanaryError, match=r"'main' .* by 0\.2000 nats .*limit 0\.1.*published"):
        learner.fit(samples, 0)
    assert distance(before, policies.state("main")) == 0
    assert policies.version("main") == 0
    # Nor does the refused gradient leak into the next step.
    alone = copy.deepcopy(samples)
    stats = learner.fit(on_policy(learner, alone), 1)
    fresh = Learner(policies, ["main"], LearnConfig(lr=1e-2))
    policies.load("main", before)
    assert stats["learn/grad_norm"] == pytest.approx(fresh.fit(alone, 1)["learn/grad_norm"])


def test_the_canary_fires_on_nonsense(policies, make_samples):
    learner = Learner(policies, ["main"], LearnConfig(), canary=0.1)
    samples = make_samples()
    samples[0].logprobs[-1] = math.nan
    with pytest.raises(CanaryError):
        learner.fit(samples, 0)


def test_learning_rate_schedules_by_hand(make_policies):
    def rates(iterations: int, **options) -> list[float]:
        learner = Learner(make_policies("lora", ()), ["main"], LearnConfig(lr=1.0, **options))
        return [learner.lr(i, iterations) for i in range(iterations)]

    assert rates(4) == [1.0] * 4
    assert rates(4, warmup=4) == [0.25, 0.5, 0.75, 1.0]
    assert rates(4, schedule="linear", lr_floor=0.3) == [1.0, 0.75, 0.5, 0.3]
    assert rates(4, schedule="cosine", lr_floor=0.2) == pytest.approx(
        [1.0, 0.2 + 0.8 * (1 + 0.5**0.5) / 2, 0.6, 0.2 + 0.8 * (1 - 0.5**0.5) / 2]
    )


def test_the_cosine_schedule_is_that_of_transformers(make_policies):
    from transformers import get_cosine_schedule_with_warmup

    config = LearnConfig(lr=1.0, schedule="cosine", lr_floor=0.0)
    learner = Learner(make_policies("lora", ()), ["main"], config)
    adam = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = get_cosine_schedule_with_warmup(adam, 0, 12)
    for position in range(12):
        assert learner.lr(position, 12) == pytest.approx(theirs.get_last_lr()[0])
        adam.step()
        theirs.step()


def test_warm_up_goes_on_where_it_was_however_many_steps_iterations_have(
    make_policies, make_samples
):
    """Demonstrations, one a step: five in the first iteration, two in the next, after a restart."""
    config = LearnConfig(objective="likelihood", lr=1e-3, warmup=10, batch=1)
    first = Learner(make_policies("lora"), ["main"], config)
    assert first.fit(make_samples(5), 0, 3)["learn/lr"] == pytest.approx(5e-4)
    second = Learner(make_policies("lora"), ["main"], config)
    second.load(first.state())
    assert second.fit(make_samples(2), 1, 3)["learn/lr"] == pytest.approx(7e-4)


@pytest.mark.parametrize("reference", ["base", "ema", "copy", "average", "uniform"])
def test_a_run_continues_from_its_state_to_the_last_bit(
    make_policies, make_samples, reference, tmp_path
):
    from safetensors.torch import load_file, save_file

    config = LearnConfig(
        lr=1e-3,
        kl=0.1,
        kl_end=0.0,
        reference=reference,
        reference_every=3,
        minibatches=2,
        weight_decay=0.1,
    )
    first = Learner(make_policies("lora"), ["main"], config)
    for i in range(2):
        first.fit(make_samples(seed=i), i)
    for name, tensors in first.state().items():
        save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / name)
    second = Learner(make_policies("lora", spread=0.5), ["main"], config)
    second.load({name: load_file(tmp_path / name) for name in first.state()})
    for i in range(2, 4):
        assert first.fit(make_samples(seed=i), i, 8) == second.fit(make_samples(seed=i), i, 8)
    for name, tensors in first.state().items():
        for key, value in tensors.items():
            assert torch.equal(value, second.state()[name][key]), f"{name} {key}"


def test_what_is_done_meanwhile_is_done_once_all_steps_are_queued(policies, make_samples):
    learner = Learner(policies, ["main"], LearnConfig(minibatches=2))
    steps: list[int] = []
    adam = learner.optimizers["main"]
    learner.fit(make_samples(8), 0, meanwhile=lambda: steps.append(adam.steps()))
    assert steps == [2]

"""Our losses and advantages against those of the real trl package, on the same weights and tokens.

TRL's own GRPOTrainer is built and its own loss is run; nothing of it is written again here.
"""

from pathlib import Path

import pytest
import torch
from lazily import imported

from sparring.credit.group_relative import centred
from sparring.learn.batches import collate
from sparring.learn.learner import Learner
from sparring.learn.losses import Totals
from sparring.models.loading import load_model
from sparring.run.config import LearnConfig

trl = imported("trl", "trl is a dev dependency: pip install trl")
datasets = imported("datasets", "trl's trainer needs datasets")

MAX_TOKENS = 8
KINDS = ("grpo", "bnpo", "dr_grpo", "dapo")


@pytest.fixture(scope="module")
def nano_folder(tmp_path_factory):
    """Nano on disk, because TRL reads its reference model from where its model came from."""
    folder = tmp_path_factory.mktemp("nano")
    model, tokenizer = load_model("nano")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def make_trainer(nano_folder: Path, tmp_path: Path):
    def make(rewards=None, **options):
        config = trl.GRPOConfig(
            output_dir=str(tmp_path),
            bf16=False,
            use_cpu=True,
            report_to=[],
            gradient_checkpointing=False,
            num_generations=options.pop("num_generations", 2),
            per_device_train_batch_size=options.pop("batch", 2),
            gradient_accumulation_steps=1,
            max_completion_length=MAX_TOKENS,
            model_init_kwargs={"dtype": "float32"},
            **options,
        )
        trainer = trl.GRPOTrainer(
            model=str(nano_folder),
            reward_funcs=lambda completions, **_: rewards or [0.0] * len(completions),
            args=config,
            train_dataset=datasets.Dataset.from_dict({"prompt": ["a", "b"]}),
        )
        trainer.current_gradient_accumulation_steps = 1  # train() sets these, and is not run here
        trainer.model.train()
        return trainer

    return make


def trl_inputs(trainer, samples):
    """The samples as TRL lays them out: prompts padded left, replies padded right."""
    prompts = [[i for i, m in zip(s.ids, s.mask, strict=True) if not m] for s in samples]
    replies = [[i for i, m in zip(s.ids, s.mask, strict=True) if m] for s in samples]
    width, length = max(map(len, prompts)), max(map(len, replies))

    def right(rows, fill, dtype):
        return torch.tensor([[*r, *[fill] * (length - len(r))] for r in rows], dtype=dtype)

    inputs = {
        "prompt_ids": torch.tensor([[0] * (width - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
        "completion_ids": right(replies, 0, torch.int64),
        "completion_mask": right([[1] * len(r) for r in replies], 0, torch.int64),
        "advantages": torch.tensor([s.advantages[-1] for s in samples]),
        "old_per_token_logps": right(
            [s.logprobs[-len(r) :] for s, r in zip(samples, replies, strict=True)],
            0.0,
            torch.float32,
        ),
        "num_items_in_batch": torch.tensor(float(sum(map(len, replies)))),
    }
    if trainer.beta:
        with torch.no_grad():
            inputs["ref_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
                trainer.ref_model,
                torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
                torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
                length,
            )
    return inputs


@pytest.mark.parametrize(("temperature", "correction"), [(1.0, True), (0.7, False)])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradient_equal_those_of_trl(
    kind, temperature, correction, make_trainer, make_policies, make_samples
):
    policies = make_policies("full", spread=0.02)
    samples = make_samples(6, temperature=temperature)
    trainer = make_trainer(
        loss_type=kind,
        beta=0.3,
        epsilon=0.2,
        epsilon_high=0.28,
        temperature=temperature,
        use_bias_correction_kl=correction,
    )
    same_weights(trainer, policies)
    theirs = trainer._compute_loss(trainer.model, trl_inputs(trainer, samples))
    theirs.backward()
    theirs = theirs.detach()

    config = LearnConfig(
        aggregation=kind, kl=0.3, kl_correction=correction, clip_low=0.2, clip_high=0.28
    )
    learner = Learner(policies, ["main"], config, max_tokens=MAX_TOKENS)
    batch = collate(samples, pad=0, device="cpu")
    totals = Totals(len(samples), len(batch.target_N), 1, MAX_TOKENS)
    ours, stats = learner._loss("main", batch, totals)
    ours.backward()

    assert abs(float(theirs)) > 1e-3, "a loss of nothing proves nothing"
    assert float(ours.detach()) == pytest.approx(float(theirs), abs=1e-5)
    metrics = trainer._metrics["train"]
    assert stats["kl"] == pytest.approx(metrics["kl"][-1], abs=1e-5)
    assert stats["kl"] > 1e-3
    assert stats["entropy"] == pytest.approx(metrics["entropy"][-1], abs=1e-4)
    assert 0 < stats["clip_rate"] == pytest.approx(metrics["clip_ratio/region_mean"][-1])
    assert_same_gradients(policies, trainer)


MODES = {
    "gspo": (
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "delta": 1.5},
        {"loss_mode": "gspo", "aggregation": "grpo", "ratio_cap": 1.5},
    ),
    "gspo, mean over tokens": (
        {"loss_type": "dapo", "importance_sampling_level": "sequence"},
        {"loss_mode": "gspo", "aggregation": "dapo"},
    ),
    # TRL's CISPO has no lower bound, and its upper one is the ratio itself.
    "cispo": (
        {"loss_type": "cispo", "epsilon_high": 1.28},
        {"loss_mode": "cispo", "aggregation": "dapo", "clip_low": 1.0},
    ),
    "sapo": (
        {"loss_type": "sapo", "sapo_temperature_pos": 0.9, "sapo_temperature_neg": 1.4},
        {
            "loss_mode": "sapo",
            "aggregation": "grpo",
            "sapo_temperature_pos": 0.9,
            "sapo_temperature_neg": 1.4,
        },
    ),
    "two-sided clip": ({"loss_type": "dapo", "delta": 1.5}, {"ratio_cap": 1.5}),
    "off-policy sequence mask": (
        {"loss_type": "dr_grpo", "off_policy_mask_threshold": 0.01},
        {"aggregation": "dr_grpo", "off_policy_mask_threshold": 0.01},
    ),
}


@pytest.mark.parametrize("name", MODES)
def test_other_losses_and_their_gradients_equal_those_of_trl(
    name, make_trainer, make_policies, make_samples
):
    policies, samples = make_policies("full", spread=0.02), make_samples(6)
    options, own = MODES[name]
    trainer = make_trainer(beta=0.0, **{"epsilon": 0.2, "epsilon_high": 0.28, **options})
    same_weights(trainer, policies)
    theirs = trainer._compute_loss(trainer.model, trl_inputs(trainer, samples))
    theirs.backward()
    config = LearnConfig(**{"clip_low": 0.2, "clip_high": 0.28, **own})
    learner = Learner(policies, ["main"], config, max_tokens=MAX_TOKENS)
    batch = collate(samples, pad=0, device="cpu")
    totals = Totals(len(samples), len(batch.target_N), 1, MAX_TOKENS)
    ours, stats = learner._loss("main", batch, totals)
    ours.backward()
    assert abs(theirs.item()) > 1e-3
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5)
    assert_same_gradients(policies, trainer)
    if "mask" in name:
        assert 0 < stats["masked_rate"] < 1


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_mask"])
def test_engines_and_learners_logprobs_are_kept_apart_as_in_trl(
    mode, make_trainer, make_policies, make_samples
):
    """TRL with vLLM's logprobs: the weights are the learner's over the engine's, the loss's ratio
    is of the learner's alone. The trainer makes the ratios while it generates, which needs vLLM;
    here they are verl's formula, which is compared with the real verl elsewhere."""
    policies, samples = make_policies("full", spread=0.02), make_samples(6)
    low, high = (0.2, 6.0) if mode.startswith("sequence") else (0.4, 1.8)
    config = LearnConfig(
        importance_sampling_mode=mode,
        importance_sampling_clip_min=low if mode.endswith("mask") else None,
        importance_sampling_clip_max=high,
        minibatches=2,
    )
    learner = Learner(policies, ["main"], config, max_tokens=MAX_TOKENS)
    learner._keep_logprobs("main", samples)
    trainer = make_trainer(beta=0.0, epsilon=0.2, loss_type="dapo")
    same_weights(trainer, policies)
    inputs = trl_inputs(trainer, samples)
    mask, engine = inputs["completion_mask"], inputs["old_per_token_logps"]
    with torch.no_grad():
        inputs["old_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model,
            torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            torch.cat([inputs["prompt_mask"], mask], 1),
            mask.shape[1],
        )
    ratio = (inputs["old_per_token_logps"] - engine) * mask
    ratio = (ratio.sum(1, keepdim=True) if mode.startswith("sequence") else ratio).exp()
    kept = (ratio >= low) & (ratio <= high)
    inputs["importance_sampling_ratio"] = (
        ratio.clamp(max=high) if mode.endswith("truncate") else ratio * kept
    )
    trainer.use_vllm = True  # its loss then takes the ratios
    with torch.no_grad():  # so that ratio and clip have something to do, as after a step
        for policy in (trainer.model, policies):
            weights = dict(policy.named_parameters()) if policy is trainer.model else None
            for parameter in (weights or policies.parameters("main")).values():
                parameter.mul_(1.1)
    theirs = trainer._compute_loss(trainer.model, inputs)
    theirs.backward()
    batch = collate(samples, pad=0, device="cpu")
    totals = Totals(len(samples), len(batch.target_N), 1, MAX_TOKENS)
    ours, stats = learner._loss("main", batch, totals)
    ours.backward()
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-5) and abs(ours.item()) > 1e-3
    assert_same_gradients(policies, trainer)
    assert stats["clip_rate"] > 0 and abs(stats["importance_weight"] - 1) > 1e-3


def same_weights(trainer, policies):
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            parameter.copy_(policies.parameters("main")[name])


def assert_same_gradients(policies, trainer):
    theirs = dict(trainer.model.named_parameters())
    for name, parameter in policies.parameters("main").items():
        torch.testing.assert_close(
            parameter.grad, theirs[name].grad, atol=2e-5, rtol=1e-3, msg=name
        )


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_add_up_to_what_trl_accumulates(
    kind, make_trainer, make_policies, make_samples
):
    """Two micro-batches of three, as gradient accumulation over two steps in TRL."""
    policies = make_policies("full", spread=0.02)
    samples = sorted(make_samples(6), key=lambda s: (len(s.ids), s.ids))
    halves = samples[:3], samples[3:]
    trainer = make_trainer(loss_type=kind, beta=0.0, epsilon=0.2)
    trainer.current_gradient_accumulation_steps = 2
    trainer.args.steps_per_generation = 2
    same_weights(trainer, policies)
    tokens = torch.tensor(float(sum(sum(s.mask) for s in samples)))
    theirs = 0.0
    for half in halves:
        inputs = {**trl_inputs(trainer, half), "num_items_in_batch": tokens}
        theirs += trainer._compute_loss(trainer.model, inputs).item()
    config = LearnConfig(aggregation=kind)
    learner = Learner(policies, ["main"], config, max_tokens=MAX_TOKENS)
    totals = Totals(len(samples), int(tokens), 2, MAX_TOKENS)
    ours = sum(learner._loss("main", collate(half, 0, "cpu"), totals)[0].item() for half in halves)
    assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_group_relative_advantages_equal_those_of_trl(scale, make_trainer):
    rewards = [1.0, -1.5, 0.5, 0.0, 2.0, 2.0, 2.0, 2.0]  # two groups of four, one of them flat
    trainer = make_trainer(rewards, num_generations=4, batch=8, scale_rewards=scale)
    prompts = [{"prompt": p} for p in ["a"] * 4 + ["b"] * 4]
    theirs = trainer._generate_and_score_completions(prompts)["advantages"].tolist()
    halves = rewards[:4], rewards[4:]
    ours = [a for half in halves for a in centred(half, scale=scale, batch=rewards)]
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert max(map(abs, ours)) > 0.9

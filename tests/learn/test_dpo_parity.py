"""Our DPO against the real trl package: its own trainer and loss, the same weights and pairs."""

import random
from pathlib import Path

import pytest
import torch
from lazily import imported

from sparring.core.types import Pair, Sample, members
from sparring.learn.batches import collate
from sparring.learn.learner import Learner
from sparring.learn.losses import Totals
from sparring.models.loading import load_model
from sparring.run.config import LearnConfig
from sparring.training.preference import add_reference

trl = imported("trl", "trl is a dev dependency: pip install trl")
datasets = imported("datasets", "trl's trainer needs datasets")


def make_pairs(n: int = 4) -> list[Pair]:
    rng = random.Random(0)

    def sample(prompt: list[int], length: int) -> Sample:
        ids = [*prompt, *[rng.randrange(5, 261) for _ in range(length)]]
        mask = [0] * len(prompt) + [1] * length
        return Sample("main", ids, mask, [float(m) for m in mask], [0.0] * len(ids))

    found = []
    for _ in range(n):
        prompt = [rng.randrange(5, 261) for _ in range(3 + rng.randrange(4))]
        found.append(
            Pair(sample(prompt, 1 + rng.randrange(6)), sample(prompt, 1 + rng.randrange(6)))
        )
    return found


def make_trainer(folder: Path, out: Path, beta: float):
    model, tokenizer = load_model("nano")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = trl.DPOConfig(
        output_dir=str(out),
        beta=beta,
        loss_type=["sigmoid"],
        bf16=False,
        use_cpu=True,
        report_to=[],
        gradient_checkpointing=False,
        per_device_train_batch_size=4,
        model_init_kwargs={"dtype": "float32"},
        disable_dropout=True,
    )
    rows = {"prompt": ["a"], "chosen": ["b"], "rejected": ["c"]}
    return trl.DPOTrainer(
        model=str(folder),
        args=config,
        train_dataset=datasets.Dataset.from_dict(rows),
        processing_class=tokenizer,
    )


def trl_inputs(trainer, pairs: list[Pair]):
    def parts(sample: Sample) -> tuple[list[int], list[int]]:
        at = sample.mask.index(1)
        return sample.ids[:at], sample.ids[at:]

    return trainer.data_collator(
        [
            {
                "prompt_ids": parts(pair.chosen)[0],
                "chosen_ids": parts(pair.chosen)[1],
                "rejected_ids": parts(pair.rejected)[1],
            }
            for pair in pairs
        ]
    )


@pytest.mark.parametrize("beta", [0.1, 0.5])
def test_loss_gradient_and_rewards_equal_those_of_trl(beta, tmp_path, make_policies):
    policies, pairs = make_policies("full", spread=0.02), make_pairs()
    trainer = make_trainer(tmp_path / "nano", tmp_path / "out", beta)
    with torch.no_grad():
        for name, parameter in trainer.model.named_parameters():
            parameter.copy_(policies.parameters("main")[name])
    trainer.model.train()
    theirs = trainer._compute_loss(trainer.model, trl_inputs(trainer, pairs), False)
    theirs.backward()

    learner = Learner(policies, ["main"], LearnConfig(objective="preference", beta=beta))
    add_reference(learner, pairs)
    batch = collate([s for pair in pairs for s in members(pair)], 0, "cpu")
    ours, stats = learner._loss("main", batch, Totals(len(pairs), len(batch.target_N)))
    ours.backward()

    assert abs(float(ours.detach()) - 0.6931) > 1e-4, "a loss where nothing moved proves nothing"
    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-5)
    metrics = trainer._metrics["train"]
    for key, name in (
        ("chosen", "rewards/chosen"),
        ("rejected", "rewards/rejected"),
        ("margin", "rewards/margins"),
        ("accuracy", "rewards/accuracies"),
    ):
        assert stats[key] == pytest.approx(metrics[name][-1], abs=1e-5), name
    their_gradients = dict(trainer.model.named_parameters())
    for name, parameter in policies.parameters("main").items():
        torch.testing.assert_close(
            parameter.grad, their_gradients[name].grad, atol=2e-5, rtol=1e-3, msg=name
        )


def test_the_reference_of_an_adapter_is_the_model_without_it(make_policies):
    policies, pairs = make_policies("lora"), make_pairs(2)
    learner = Learner(policies, ["main"], LearnConfig(objective="preference"))
    add_reference(learner, pairs)
    sample = pairs[0].chosen
    alone, _ = load_model("nano")
    with torch.no_grad():
        logprobs = alone(torch.tensor([sample.ids])).logits[0].log_softmax(-1)
    for t, mask in enumerate(sample.mask):
        wanted = float(logprobs[t - 1, sample.ids[t]]) if mask else 0.0
        assert sample.logprobs[t] == pytest.approx(wanted, abs=1e-4)

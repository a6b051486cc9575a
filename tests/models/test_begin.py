"""A run that begins with weights from elsewhere has them at iteration 0, and never asks for them
again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lives import Moment, train, whole
from safetensors.torch import load_file

from sparring.core.errors import ConfigError
from sparring.models.export import export_policy
from sparring.models.loading import load_model, make_nano, nano_tokenizer
from sparring.models.policies import FullPolicies, LoraPolicies
from sparring.models.trained import find_trained
from sparring.run import checkpoint
from sparring.run.config import Config, load_recipe, make_config
from sparring.run.rundir import RunDir
from sparring.training.state import Parts, build, resume_from


def config_of(weights: str, **more: Any) -> Config:
    learn = {"weights": weights, "lora_r": 4, "lora_alpha": 8, "policies": ["ann", "ben"]}
    learn |= more.pop("learn", {})
    data = {
        "policy": "nano",
        "games": {"kuhn": {"style": "terse"}},
        "players": {"first": "ann", "second": "ben"},
        "engine": {"device": "cpu", "dtype": "float32"},
        **more,
    }
    return make_config({**data, "learn": learn})


def moved(parts: Parts, by: dict[str, float]) -> None:
    with torch.no_grad():
        for name, amount in by.items():
            for parameter in parts.learner.policies.parameters(name).values():
                parameter.add_(amount)


def first_run(path: Path, weights: str, **more: Any) -> Path:
    """A run whose two policies went different ways."""
    config = config_of(weights, **more)
    parts, run = build(config), RunDir.open(path, config, resume=False)
    resume_from(run, parts)
    moved(parts, {"ann": 0.05, "ben": -0.05})
    parts.save(run, 3)
    return path


def weights_of(policy: str) -> dict[str, torch.Tensor]:
    found = find_trained(policy)
    assert found is not None
    return load_file(found.file)


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("name", ["2026-11-20T12:00", "kuhn@5", "a:b@best:c"])
def test_a_runs_folder_may_be_named_like_a_step_or_a_policy(tmp_path: Path, name: str) -> None:
    run = first_run(tmp_path / name, "lora")
    for policy, who in ((f"{run}:ann", "ann"), (f"{run}@3:ben", "ben"), (f"{run}@last:ann", "ann")):
        found = find_trained(policy)
        assert found is not None and (found.name, run in found.file.parents) == (who, True)
    with pytest.raises(ConfigError, match="has the policies ann, ben"):
        find_trained(str(run))
    assert find_trained(f"{tmp_path}/none:there") is None
    assert find_trained("") is None
    with pytest.raises(ConfigError, match=r"there is no run '.*/none'"):
        find_trained(f"{tmp_path}/none@3:there")


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_each_policy_begins_where_it_is_told_and_the_base_stays(
    tmp_path: Path, weights: str
) -> None:
    source = first_run(tmp_path / "first", weights)
    crossed = {"ann": f"{source}@3:ben", "ben": f"{source}:ann"}
    config = config_of(weights, begin=crossed, learn={"restart": True})
    parts, plain = build(config), build(config_of(weights))
    policies = parts.learner.policies
    assert equal(policies.state("ann"), weights_of(f"{source}@3:ben"))
    assert equal(policies.state("ben"), weights_of(f"{source}@3:ann"))
    assert equal(parts.learner.beginnings["ann"], weights_of(f"{source}@3:ben"))
    ids = torch.arange(5, 30)[None]
    with torch.no_grad(), policies.using("base") as model:
        said = model(ids).logits
    with torch.no_grad(), plain.learner.policies.using("base") as model:
        assert torch.equal(said, model(ids).logits)
    run = RunDir.open(tmp_path / "second", config, resume=False)
    assert resume_from(run, parts) == 0
    assert equal(weights_of(f"{run.path}@0:ann"), weights_of(f"{source}@3:ben"))
    shutil.rmtree(source)
    again = build(config, run.path)
    moved(parts, {"ann": 0.1})
    assert equal(again.learner.beginnings["ann"], weights_of(f"{run.path}@0:ann"))


def test_an_adapter_of_peft_begins_a_run(tmp_path: Path) -> None:
    model, tokenizer = load_model("nano")
    tuned = LoraPolicies(model, tokenizer, r=4, alpha=8)
    tuned.add("sft")
    with torch.no_grad():
        for parameter in tuned.parameters("sft").values():
            parameter.add_(0.1)
    export_policy(tuned, "sft", "nano", tmp_path / "adapter")
    begun = build(config_of("lora", begin={"ben": str(tmp_path / "adapter")})).learner.policies
    assert equal(begun.state("ben"), tuned.state("sft"))
    assert not equal(begun.state("ann"), tuned.state("sft"))


def test_whole_weights_begin_as_any_model_of_the_same_make(tmp_path: Path) -> None:
    other = FullPolicies(make_nano(7), nano_tokenizer())
    export_policy(other, "base", "", tmp_path / "model")
    parts = build(config_of("full", begin={"ann": str(tmp_path / "model")}))
    assert equal(parts.learner.policies.state("ann"), other.state("base"))
    odd = make_nano(7)
    odd.config.num_attention_heads, odd.config.num_key_value_heads, odd.config.head_dim = 2, 1, 96
    odd.save_pretrained(tmp_path / "odd")
    nano_tokenizer().save_pretrained(tmp_path / "odd")
    with pytest.raises(ConfigError, match=r"begin\.ann.*another make: num_attention_heads"):
        build(config_of("full", begin={"ann": str(tmp_path / "odd")}))


@pytest.mark.parametrize("name", ["sliding_window", "final_logit_softcapping"])
def test_weights_of_a_model_that_computes_otherwise_are_no_beginning(tmp_path: Path, name) -> None:
    odd = make_nano(7)
    setattr(odd.config, name, 16)
    odd.save_pretrained(tmp_path / "odd")
    nano_tokenizer().save_pretrained(tmp_path / "odd")
    with pytest.raises(ConfigError, match=rf"another make: {name} differ"):
        build(config_of("full", begin={"ann": str(tmp_path / "odd")}))


def test_what_a_run_cannot_begin_with_is_refused(tmp_path: Path) -> None:
    lora, full = first_run(tmp_path / "lora", "lora"), first_run(tmp_path / "full", "full")
    other = first_run(tmp_path / "other", "lora", seed=5)
    wide = first_run(tmp_path / "wide", "lora", learn={"lora_r": 8})
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4}))
    for name, policy, said in (
        ("an", f"{lora}:ann", r"no policy 'an' learns in this run; did you mean 'ann'"),
        ("ann", f"{lora}", r"say which"),
        ("ann", f"{other}:ann", r"nano \(seed 5\), and this run on nano \(seed 0\)"),
        ("ann", f"{wide}:ann", r"rank 8.*learn.lora_r=8 learn.lora_alpha=8"),
        ("ann", f"{full}:ann", r"whole weights, and learn.weights is lora"),
        ("ann", f"{tmp_path}/nowhere", r"begin\.ann.*neither a run nor a folder"),
        ("ann", f"{tmp_path}/nowhere@3", r"there is no run"),
        ("ann", str(torn), r"no adapter_model"),
        ("ann", "nano", r"neither a run.*`policy`"),
    ):
        with pytest.raises(ConfigError, match=said):
            build(config_of("lora", begin={name: policy}))
    with pytest.raises(ConfigError, match="sparring merge"):
        build(config_of("full", begin={"ann": f"{lora}:ann"}))
    with pytest.raises(ConfigError, match=r"begin\.ann.*nowhere"):
        build(config_of("full", begin={"ann": f"{tmp_path}/nowhere"}))


@pytest.mark.parametrize(
    ("weights", "restart"), [("lora", "false"), ("lora", "true"), ("full", "true")]
)
def test_a_begun_run_that_died_resumes_without_what_it_began_with(
    tmp_path: Path, weights: str, restart: str
) -> None:
    how = (f"learn.weights={weights}", "learn.lora_r=4", "iterations=4", "collect.episodes=12")
    first = train("kuhn", tmp_path / "first", *how)
    assert first.code == 0, first.err
    # What restarts is fitted to what others said: the canary has nothing to compare.
    how = (*how, "begin.main=first@last", f"learn.restart={restart}", "canary=100")
    life = train("kuhn", tmp_path / "whole", *how)
    assert life.code == 0, life.err
    run = tmp_path / "run"
    assert train("kuhn", run, *how, die_at=Moment("000003.jsonl.gz")).code == -9
    assert checkpoint.steps(run / "checkpoints") == [0, 2]
    assert equal(weights_of(f"{run}@0"), weights_of(f"{tmp_path}/first@last"))
    (tmp_path / "first").rename(tmp_path / "gone")
    life = train("kuhn", run, *how, resume=True)
    assert life.code == 0, life.err
    assert whole(run) == whole(tmp_path / "whole")


def test_a_wrong_beginning_leaves_nothing_behind(tmp_path: Path) -> None:
    for words in ("begin.mian=kuhn@3", "begin.main=nowhere", "begin.main=nowhere@2"):
        life = train("kuhn", tmp_path / "run", words)
        assert life.code == 2 and "Traceback" not in life.err, life.err
        assert list(tmp_path.iterdir()) == []
    assert load_recipe("kuhn").begin == {}

"""A policy is found by what a person calls it, and what cannot be found is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling
from sparring.engines.load import add_policy, load_engine
from sparring.models.trained import find_trained
from sparring.run.config import make_config
from sparring.run.rundir import RunDir
from sparring.training.state import build, resume_from


def make_run(path: Path, weights: str, players: dict[str, str] | None = None) -> RunDir:
    """A run with checkpoints 0 and 3, the later one moved away from the base."""
    config = make_config(
        {
            "policy": "nano",
            "seed": 3,
            "games": {"kuhn": {"style": "terse"}},
            "players": players or {},
            "learn": {"weights": weights, "lora_r": 4, "policies": list((players or {}).values())},
            "engine": {"device": "cpu", "dtype": "float32"},
        }
    )
    parts = build(config)
    run = RunDir.open(path, config, resume=False)
    resume_from(run, parts)
    for name in parts.learner.optimizers:
        with torch.no_grad():
            for parameter in parts.learner.policies.parameters(name).values():
                parameter.add_(0.1)
    parts.save(run, 3)
    return run


def say(engine: object, policy: str) -> list[int]:
    request = Request(
        "x", policy, [{"role": "user", "content": "hello"}], Sampling(max_tokens=8), seed=1
    )
    return asyncio.run(engine.act(request)).token_ids  # type: ignore[attr-defined]


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_checkpoints_of_a_run_speak_each_with_their_own_weights(
    tmp_path: Path, weights: str
) -> None:
    run = make_run(tmp_path / "run", weights)
    last, name = load_engine(str(run.path), device="cpu")
    first, _ = load_engine(f"{run.path}@0", device="cpu")
    assert name == "main"
    assert say(last, "main") != say(first, "main")
    add_policy(last, f"{run.path}@0", "old")
    assert say(last, "old") == say(first, "main")
    assert say(last, "main") == say(load_engine(f"{run.path}@3", device="cpu")[0], "main")


@pytest.mark.parametrize("weights", ["full", "lora"])
def test_a_base_engine_takes_whichever_kind_comes_first(tmp_path: Path, weights: str) -> None:
    run = make_run(tmp_path / "run", weights)
    engine, name = load_engine("nano", device="cpu")
    assert name == "base"
    if weights == "full":
        add_policy(engine, f"{run.path}@3", "trained")
        assert say(engine, "trained") == say(load_engine(f"{run.path}@3", device="cpu")[0], "main")
    else:  # an adapter of another base model would be nonsense on this one
        with pytest.raises(ConfigError, match=r"seed 3.*seed 0"):
            add_policy(engine, f"{run.path}@3", "trained")


def test_a_whole_base_model_joins_a_run_of_whole_models(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "full")
    engine, _ = load_engine(str(run.path), device="cpu")
    add_policy(engine, "nano", "plain")
    assert say(engine, "plain") == say(load_engine("nano", device="cpu")[0], "base")


def test_a_run_of_several_policies_is_asked_by_name(tmp_path: Path) -> None:
    players = {"first": "author", "second": "predictor"}
    run = make_run(tmp_path / "run", "lora", players)
    with pytest.raises(ConfigError, match=r"author, predictor.*@3:author"):
        load_engine(str(run.path), device="cpu")
    assert load_engine(f"{run.path}@0:predictor", device="cpu")[1] == "predictor"
    assert load_engine(f"{run.path}:author", device="cpu")[1] == "author"


def test_what_cannot_be_found_is_said(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "full")
    with pytest.raises(ConfigError, match="no checkpoint 7; it has: 0, 3"):
        load_engine(f"{run.path}@7")
    with pytest.raises(ConfigError, match="no best checkpoint"):
        load_engine(f"{run.path}@best")
    with pytest.raises(ConfigError, match="there is no run"):
        load_engine(f"{tmp_path}/nowhere@3")
    with pytest.raises(ConfigError, match=r"no policy .*nowhere.*no folder.*did you mean .*run'"):
        load_engine(str(tmp_path / "nowhere"))
    damaged = run.checkpoints / "step_000003" / "state.json"
    damaged.write_text("{}")
    with pytest.raises(ConfigError, match=r"damaged.*state.json"):
        load_engine(f"{run.path}@3")


def test_a_run_means_its_best_checkpoint_where_it_has_one(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "full")
    (run.checkpoints / "best").symlink_to("step_000000")
    found = find_trained(str(run.path))
    assert found is not None and found.file.parent.name == "step_000000"
    last = find_trained(f"{run.path}@last")
    assert last is not None and last.file.parent.name == "step_000003"

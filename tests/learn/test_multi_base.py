"""Two base models of unlike shape in one run: each learns by itself, and they play each other."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
import torch
from lives import Moment, sparring, train, whole
from narrow import make_narrow
from safetensors.torch import load_file

from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling, View
from sparring.engines.load import add_policy, load_engine
from sparring.engines.local.multi_base import embedded
from sparring.models.trained import find_trained
from sparring.run.config import Config, load_recipe
from sparring.run.rundir import read_lines
from sparring.training.state import build

SEATS = ("players.first=ben", "learn.policies=[ben]", "learn.lora_r=4", "learn.weights=lora")


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    return make_narrow(tmp_path / "models" / "narrow")


def kuhn(*more: str) -> Config:
    return load_recipe("kuhn", [*SEATS, *more], smoke=True)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_each_policy_stands_on_its_own_base(narrow: Path, kind: str) -> None:
    parts = build(kuhn(f"bases.ben={narrow}", f"learn.weights={kind}", "learn.kl=0"))
    policies = parts.learner.policies
    sizes = {}
    for name in ("main", "ben", "base"):
        with policies.using(name) as model:
            sizes[name] = model.config.hidden_size
    assert sizes == {"main": 192, "ben": 96, "base": 192}
    assert sorted(parts.learner.optimizers) == ["ben", "main"]
    assert set(parts.learner.state()) >= {"main.policy", "ben.policy", "ben.optimizer"}


def test_legal_actions_are_spelled_by_the_base_that_is_asked(narrow: Path) -> None:
    engine = embedded(build(kuhn(f"bases.ben={narrow}")).learner.policies)
    view = View(None, ("bet", "pass"))
    plan = Sampling(max_tokens=4, mask_actions=True)
    chat = engine.of("ben").chat
    chat.encode = lambda text: [7] if text == "bet" else [8, 9]  # another tokenizer's

    def spelled(policy: str) -> set[int]:
        trie = engine._trie(Request("first", policy, [], plan, 0, (0,), view=view))
        return set(trie.allowed(()))

    assert spelled("ben") == {7, 8} and not spelled("main") & {7, 8}


def test_what_bases_do_not_go_with_is_refused(narrow: Path, tmp_path: Path) -> None:
    for more, said in (
        (("bases.bem=nano",), "no policy 'bem' learns.*did you mean 'ben'"),
        ((f"bases.ben={narrow}", "ray.replicas=1"), "embedded engine"),
        (("bases.ben=nowhere",), "no policy 'nowhere'"),
    ):
        with pytest.raises(ConfigError, match=said):
            build(kuhn(*more))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["models"]


def test_a_run_on_two_bases_that_died_equals_one_that_did_not(narrow: Path, tmp_path: Path) -> None:
    how = (*SEATS, "bases.ben=models/narrow", "iterations=4", "collect.episodes=12", "learn.kl=0.1")
    life = train("kuhn", tmp_path / "whole", *how)
    assert life.code == 0, life.err
    for line in read_lines(tmp_path / "whole" / "metrics.jsonl"):
        assert line["learn/ben/grad_norm"] > 0 and line["learn/ben/canary"] < 1e-3
    run = tmp_path / "run"
    assert train("kuhn", run, *how, die_at=Moment("000003.jsonl.gz")).code == -9
    life = train("kuhn", run, *how, resume=True)
    assert life.code == 0, life.err
    assert whole(run) == whole(tmp_path / "whole")


def test_those_who_played_each_other_meet_again(narrow: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    life = train(
        "kuhn", run, *SEATS, "bases.ben=models/narrow", "iterations=2", "collect.episodes=8"
    )
    assert life.code == 0, life.err
    words = (f"{run}@2:main", "--against", f"{run}@2:ben", "--games", 4, "--json")
    life = sparring("arena", *words, cwd=tmp_path)
    assert life.code == 0, life.err
    begun = build(kuhn(f"bases.ben={narrow}", f"begin.ben={run}@2:ben")).learner.policies
    there = find_trained(f"{run}@2:ben")
    assert there is not None
    kept = load_file(there.file)
    assert all(torch.equal(kept[key], value) for key, value in begun.state("ben").items())
    (tmp_path / "moved").mkdir()
    for name in ("run", "models"):  # both together
        shutil.move(tmp_path / name, tmp_path / "moved" / name)
    run = tmp_path / "moved" / "run"
    engine, name = load_engine(f"{run}@2:main", device="cpu")
    add_policy(engine, f"{run}@0:ben", "old")

    def say(policy: str) -> int:
        asked = [{"role": "user", "content": "hello"}]
        turn = asyncio.run(engine.act(Request("x", policy, asked, Sampling(max_tokens=4), 1)))
        with engine.policies.using(policy) as model:
            return len(turn.token_ids) and model.config.hidden_size

    assert (say(name), say("old")) == (192, 96)

"""The adversary with whole weights: two models that have nothing in common but where they began."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch
from lives import sparring
from safetensors.torch import load_file

from sparring.evaluate.crossplay import crossplay
from sparring.learn.export import export_policy
from sparring.learn.models import make_nano, nano_tokenizer
from sparring.learn.policies import FullPolicies
from sparring.run.config import load_recipe
from sparring.run.rundir import RunDir, read_lines
from sparring.sandbox import probe
from sparring.train import train

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
SEATS = ("generator", "discriminator")
HOW = (
    *("learn.weights=full", "learn.lr=1e-3", "tracking.tensorboard=false", "evaluate.every=9"),
    *("games.adversarial_tests.stages=[informal, code]", "collect.episodes=24"),
    *("checkpoint.every=1", "checkpoint.keep=9"),
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one make, of which neither is the base, play and learn by turns."""
    folder = tmp_path_factory.mktemp("full")
    begin = []
    for seed, seat in enumerate(SEATS, 5):
        export_policy(FullPolicies(make_nano(seed), nano_tokenizer()), "base", "", folder / seat)
        begin.append(f"begin.{seat}={folder / seat}")
    train(load_recipe("adversarial", [*HOW, *begin], smoke=True), folder / "run")
    return folder / "run"


def weights(run: Path, step: int, seat: str) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step_{step:06d}" / f"{seat}.policy.safetensors")


def test_whoever_learns_moves_and_the_other_stays(played: Path) -> None:
    one, other = (weights(played, 0, seat) for seat in SEATS)
    assert not any(torch.equal(one[key], other[key]) for key in one if "norm" not in key)
    moved = set()
    for line in read_lines(played / "metrics.jsonl"):
        step = line["iteration"]
        for seat in SEATS if step else ():
            old, new = weights(played, step - 1, seat), weights(played, step, seat)
            assert len(new) == 20  # every parameter of nano
            learned = seat == line["schedule/learner"] and line[f"learn/{seat}/grad_norm"] > 0
            assert any(not torch.equal(old[key], new[key]) for key in old) is learned, (step, seat)
            moved |= {seat} if learned else set()
    assert moved == set(SEATS)


def test_such_a_run_solves_and_meets_itself(played: Path, tmp_path: Path) -> None:
    asyncio.run(crossplay(RunDir.existing(played), 2))
    met = json.loads((played / "crossplay.json").read_text())
    assert met["names"] == ["untrained", "stage 1", "stage 2"] and met["problems"] == 2
    words = ("solve", "--checkpoint", played, "--problem", "Twice n.", "--max-tokens", 4)
    more = ("--signature", "def twice(n: int) -> int:", "--attempts", 2, "--output", "o.json")
    life = sparring(*words, *more, cwd=tmp_path)
    assert life.code == 0, life.err
    [result] = json.loads((tmp_path / "o.json").read_text())["results"]
    assert len(result["attempts"]) == 2


def test_the_two_models_meet_in_the_arena(played: Path, tmp_path: Path) -> None:
    words = (f"{played}@last:generator", "--against", f"{played}@last:discriminator")
    life = sparring("arena", *words, "--game", "kuhn", "--games", 4, "--json", cwd=tmp_path)
    assert life.code == 0, life.err
    assert json.loads(life.out)["games"] == 4

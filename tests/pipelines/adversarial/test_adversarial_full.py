"""The adversary with a model of its own in each seat: two of one make, and two of unlike ones."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import torch
from lives import facts, sparring
from narrow import make_narrow
from safetensors.torch import load_file

from sparring.core.types import Sampling
from sparring.judge.sandbox import probe
from sparring.models.export import export_policy
from sparring.models.loading import make_nano, nano_tokenizer
from sparring.models.policies import FullPolicies
from sparring.pipelines.adversarial.crossplay import crossplay
from sparring.pipelines.adversarial.solve import load_solver, one_problem
from sparring.run.config import load_recipe
from sparring.run.rundir import RunDir, read_lines
from sparring.training.loop import train

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


def test_models_of_unlike_shape_learn_against_each_other(tmp_path: Path) -> None:
    narrow, run = make_narrow(tmp_path / "narrow"), tmp_path / "run"
    how = [*HOW[1:], "learn.weights=lora", f"bases.discriminator={narrow}"]
    train(load_recipe("adversarial", how, smoke=True), run)
    sizes = {}
    for seat in SEATS:
        folder = run / "checkpoints" / "step_000006"
        sizes[seat] = load_file(folder / f"{seat}.critic.safetensors")["weight"].shape[0]
        lines = list(read_lines(run / "metrics.jsonl"))
        steps = [line for line in lines if line.get(f"learn/{seat}/steps", 0) > 0]
        assert [line["schedule/learner"] for line in steps] == [seat] * len(steps) != []
        assert all(line[f"learn/{seat}/canary"] < 1e-3 for line in steps)
    assert sizes == {"generator": 192, "discriminator": 96}
    half = Path(shutil.copytree(run, tmp_path / "half", symlinks=True))
    for step in (4, 5, 6):
        shutil.rmtree(half / "checkpoints" / f"step_{step:06d}")
    train(load_recipe("adversarial", how, smoke=True), half, resume=True)
    assert facts(half) == facts(run)
    last = Path("checkpoints", "step_000006", "manifest.json")  # with the checksum of every file
    assert (half / last).read_text() == (run / last).read_text()
    asyncio.run(crossplay(RunDir.existing(run), 1))
    met = json.loads((run / "crossplay.json").read_text())
    assert met["names"] == ["untrained", "stage 1", "stage 2"]
    solver = load_solver(str(run), device="cpu", sampling=Sampling(max_tokens=4))
    problem = one_problem("Twice n.", "def twice(n: int) -> int:", None)
    [attempt] = asyncio.run(solver.solve(problem, 1, None))
    assert solver.discriminator == "discriminator" and set(attempt.stages) == {"informal", "code"}

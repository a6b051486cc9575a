"""Alice as a policy that learns: what she is heard to say and the judge accepts trains her adapter,
which leaves the round in peft's form and is a policy from then on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lives import sparring
from safetensors.torch import load_file

from sparring.core.scripted import programs
from sparring.core.types import Request, Sampling, Turn
from sparring.engines.load import load_engine
from sparring.engines.players import Players
from sparring.judge.sandbox import probe
from sparring.models.trained import ADAPTER_WEIGHTS, find_trained
from sparring.pipelines.equivalence.game import Equivalence
from sparring.pipelines.equivalence.prompts import terse_line, written
from sparring.run.config import load_recipe
from sparring.run.rundir import read_lines
from sparring.training.loop import train
from sparring.training.state import build

pytestmark = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
HOW = [
    *("players.alice=alice", "iterations=2", "collect.episodes=3", "learn.epochs=1"),
    *("equivalence.threshold=0", "equivalence.easy=1", "pairs.data=null", "learn.lr=1e-2"),
    *("tracking.tensorboard=false", "evaluate.final=0", "evaluate.ladder=0"),
    "games.equivalence.work=20000",
]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rounds in which nano sits in Alice's seat, and a teacher who rewrites by rule puts words
    into her mouth: a random model has none that a judge would accept."""
    rules, speak, view = programs(Equivalence()), Players.act, Equivalence._view

    async def seen(game: Equivalence, policy: str, *given: Any) -> Any:
        return await view(game, "scripted", *given)

    async def prompted(players: Players, request: Request) -> Turn:
        if request.policy != "alice":
            return await speak(players, request)
        text = rules.scripts["scripted"](request)
        return Turn(request.seat, request.policy, request.messages[-1]["content"], text)

    path = tmp_path_factory.mktemp("alice") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Players, "act", prompted)
        patch.setattr(Equivalence, "_view", seen)
        train(load_recipe("equivalence", HOW, smoke=True), path)
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_accepted_becomes_her_records_and_moves_her(played: Path) -> None:
    for number, line in enumerate(read_lines(played / "metrics.jsonl"), 1):
        folder = played / f"iteration_{number}"
        [summary] = rows(folder / "seq_summary.jsonl")
        records = rows(folder / "alice_training_data.jsonl")
        assert len(records) == summary["alice_records"] >= summary["accepted"] > 0
        accepted = rows(folder / "iteration_data.jsonl")
        outputs = {record["id"]: record["output"] for record in records}
        for row in accepted:  # of P's of one line she writes only what Q returns
            one = terse_line(row["p"], "terse")
            assert written("python", row["q"], row.get("input"), one) == outputs[row["id"]]
        assert line["learn/alice/steps"] > 0 and line["learn/alice/grad_norm"] > 0
    sizes = [len(rows(p)) for p in sorted(played.glob("iteration_*/alice_training_data.jsonl"))]
    assert len(sizes) == 2 and sizes[0] < sizes[1]  # cumulative


@pytest.mark.parametrize("seat", ["alice", "bob"])
def test_the_adapter_of_a_round_is_that_of_its_checkpoint(played: Path, seat: str) -> None:
    start = load_file(played / "checkpoints" / "step_000000" / f"{seat}.policy.safetensors")
    for number in (1, 2):
        folder = played / f"iteration_{number}" / f"{seat}_adapters"
        told = json.loads((folder / "adapter_config.json").read_text())
        assert (told["r"], told["base_model_name_or_path"]) == (8, "nano")
        state = load_file(folder / ADAPTER_WEIGHTS)
        bare = {key.removeprefix("base_model.model."): value for key, value in state.items()}
        kept = f"{played}@{number}:{seat}"
        saved = find_trained(kept)
        assert saved is not None
        want = load_file(saved.file)
        assert bare.keys() == want.keys()
        assert all(torch.equal(bare[key], want[key]) for key in want)
        assert any(not torch.equal(bare[key], start[key]) for key in start)


def test_her_adapter_is_loaded_by_peft_and_speaks_as_her_checkpoint_does(played: Path) -> None:
    from peft import PeftModel

    from sparring.models.loading import load_model

    folder = played / "iteration_2" / "alice_adapters"
    request = Request("alice", "", [{"role": "user", "content": "?"}], Sampling(max_tokens=12), 3)

    def say(policy: str) -> list[float]:
        engine, request.policy = load_engine(policy, device="cpu")
        return asyncio.run(engine.act(request)).logprobs

    assert say(str(folder)) == say(f"{played}@2:alice") != say(f"{played}@0:alice")
    model, _ = load_model("nano")
    ids = torch.arange(5, 40)[None]
    engine, name = load_engine(str(folder), device="cpu")
    with torch.no_grad(), engine.policies.using(name) as mine:
        want = mine(ids).logits
    with torch.no_grad():
        assert torch.allclose(PeftModel.from_pretrained(model, folder)(ids).logits, want, atol=1e-5)


def test_she_is_gone_on_with_by_finetune_and_by_a_second_run(played: Path, tmp_path: Path) -> None:
    folder = played / "iteration_1" / "alice_adapters"
    data = played / "iteration_2" / "alice_training_data.jsonl"
    words = ("finetune", "--model", "nano", "--data", data, "--role", "alice", "--epochs", 1)
    life = sparring(*words, "--from", folder, "--out", "on", cwd=tmp_path)
    assert life.code == 0, life.err
    saved, begun = find_trained(f"{played}@1:alice"), find_trained(f"{tmp_path}/on@0:alice")
    assert saved is not None and begun is not None
    want, state = load_file(saved.file), load_file(begun.file)
    assert all(torch.equal(state[key], value) for key, value in want.items())
    config = load_recipe("equivalence", [*HOW, f"begin.alice={folder}"], smoke=True)
    state = build(config).learner.policies.state("alice")
    assert all(torch.equal(state[key], value) for key, value in want.items())

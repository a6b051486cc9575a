"""The real verl: its dataset class reads what is exported, its worker runs the agent loop on a stub
server, its hydra tree resolves the config, and its own checks pass it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make verl` installs it")

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

from sparring.bridges.verl import GameLoop, compute_score
from sparring.bridges.verl_export import export
from sparring.core.types import MAIN, Sample
from sparring.credit.group_relative import centred
from sparring.models.loading import nano_tokenizer
from sparring.run.games import load_game
from sparring.training.instances import AGENT, Instance, Source, read_parquet, write_parquet
from sparring.training.selfplay import Plan, play_plan

TERSE = {"style": "terse", "size": 2, "hard": 1, "max_length": 4}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Games of nano with itself, and what `sparring export verl` makes of them."""
    folder = tmp_path_factory.mktemp("verl")
    play_plan(Plan("matching", "nano", games=24, options=TERSE), folder / "games", device="cpu")
    export(folder / "games", folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def config(exported: Path) -> Any:
    """The exported config on verl's own tree, resolved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARRING_EXPORT", str(exported))
        with initialize_config_dir(str(exported), version_base=None):
            found = compose("sparring")
        OmegaConf.resolve(found)
    return found


class Server:
    """What verl's rollout servers are to an agent loop: ids in, ids and logprobs out."""

    def __init__(self, *said: str, steps: tuple[int, ...] = (), tokenizer: Any = None) -> None:
        self.said, self.asked, self.steps = said, list[dict[str, Any]](), steps
        self.tokenizer = tokenizer or nano_tokenizer()

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.asked.append({"id": request_id, "prompt": prompt_ids, **sampling_params})
        await asyncio.sleep(0)
        turn = sum(a["id"].split("-")[0] == request_id.split("-")[0] for a in self.asked) - 1
        ids = self.tokenizer.encode(self.said[turn % len(self.said)], add_special_tokens=False)
        step = self.steps[turn] if self.steps else None  # as verl's client puts it there
        return TokenOutput(
            token_ids=ids,
            log_probs=[-0.5] * len(ids),
            stop_reason="completed",
            extra_fields={"min_global_steps": step, "max_global_steps": step},
        )


def worker(config: Any, server: Server) -> Any:
    return AgentLoopWorker(config, server)  # type: ignore[arg-type]


def batch(config: Any, path: str, count: int) -> DataProto:
    """The first rows, the way verl's trainer hands them to a worker."""
    data = RLHFDataset(path, nano_tokenizer(), config.data)
    rows = collate_fn([data[i] for i in range(count)])
    found = DataProto.from_single_dict(rows)
    found.non_tensor_batch["priority"] = np.arange(count)
    return found


def test_verls_dataset_class_reads_the_rows(exported: Path, config: Any) -> None:
    source, rows = read_parquet(exported / "train.parquet")
    data = RLHFDataset(config.data.train_files, nano_tokenizer(), config.data)
    assert len(data) == len(rows) == 5 and source == Source("matching", TERSE)
    row = data[0]
    assert row["raw_prompt"] == [{"role": "user", "content": rows[0].prompt[0]["content"]}]
    assert row["data_source"] == "sparring/matching" and row["agent_name"] == AGENT
    assert [data[i]["index"] for i in range(5)] == [0, 1, 2, 3, 4]
    assert json.loads(row["reward_model"]["ground_truth"])["optimum"] > 0
    assert row["extra_info"]["seat"] == ""  # both seats learn from the one row


def test_verls_dataset_class_reads_recorded_instances_too(exported: Path, config: Any) -> None:
    """Two for each game, and all of a table under one index."""
    path = exported.parent / "games" / "train.parquet"
    data = RLHFDataset(str(path), nano_tokenizer(), config.data)
    assert len(data) == 5 * 4 * 2
    indices = [data[i]["index"] for i in range(len(data))]
    assert indices == [table for table in range(5) for _ in range(8)]


def test_verls_worker_plays_the_game_with_its_server(exported: Path, config: Any) -> None:
    server = Server("A", "0", "y")
    rows = batch(config, str(exported.parent / "games" / "train.parquet"), 2)
    found = asyncio.run(worker(config, server).generate_sequences(rows))
    assert len(found) == 2 and len(server.asked) == 6
    first, second = (found[i] for i in range(2))
    assert [rows.non_tensor_batch["extra_info"][i]["seat"] for i in range(2)] == ["first", "second"]
    # The first seat said A and y, the second 0; what they heard is there and not learned from.
    said = nano_tokenizer().encode("A", add_special_tokens=False)
    assert first.batch["responses"][0] == said[0] and first.batch["response_mask"].sum() == 2
    assert second.batch["response_mask"].sum() == 1
    length = int(first.batch["attention_mask"][config.data.max_prompt_length :].sum())
    heard = first.batch["responses"][:length][first.batch["response_mask"][:length] == 0]
    assert "0" in nano_tokenizer().decode(heard)
    data = json.loads(rows.non_tensor_batch["reward_model"][0]["ground_truth"])
    score = (data["table"][0][0] + data["table"][1][1]) / data["optimum"]
    for one in (first, second):
        assert float(one.batch["rm_scores"].sum()) == pytest.approx(score)
    assert found.non_tensor_batch["game_reward"].tolist() == pytest.approx([score] * 2)
    # The second prompt of a seat is its first one, what it said, and what came between.
    mine = [a["prompt"] for a in server.asked if a["id"] == server.asked[0]["id"]]
    assert mine[1][: len(mine[0]) + 1] == [*mine[0], *said]
    assert {a["max_tokens"] for a in server.asked} == {1}
    assert {a["top_k"] for a in server.asked} == {-1}


def run_loop(config: Any, server: Server, row: dict[str, Any]) -> Any:
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    loop = GameLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=server.tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
    )
    return loop.run({"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True}, **row)


def row_of(game: str, seat: str, **options: Any) -> dict[str, Any]:
    task = load_game(game, **options).task(3)
    extra = {"game": game, "options": json.dumps(options), "seat": seat, "task_id": task.id}
    truth = {"style": "rule", "ground_truth": json.dumps(task.data)}
    return {
        "extra_info": extra,
        "reward_model": truth,
        "raw_prompt": [{"role": "user", "content": "?"}],
    }


def test_a_row_without_a_seat_brings_all_perspectives_of_one_game(config: Any) -> None:
    row = row_of("matching", "", **TERSE)

    async def one() -> Any:
        return await run_loop(config, Server("A", "0", "y"), row)

    first, second = asyncio.run(one())
    assert first.reward_score == second.reward_score > 0
    assert (sum(first.response_mask), sum(second.response_mask)) == (2, 1)
    assert first.extra_fields["reward_extra_info"]["void"] == 0


def test_which_weights_spoke_goes_along(config: Any) -> None:
    """verl's trainer reads both from every sequence, and fails on one that has none."""
    row = row_of("matching", "", **TERSE) | {"global_steps": 8}

    async def span(server: Server) -> set[tuple[int, int]]:
        outputs = await run_loop(config, server, row)
        outputs = outputs if isinstance(outputs, list) else [outputs]
        names = ("min_global_steps", "max_global_steps")
        return {tuple(one.extra_fields[name] for name in names) for one in outputs}

    assert asyncio.run(span(Server("A", "0", "y", steps=(5, 6, 7)))) == {(5, 7)}
    assert asyncio.run(span(Server("A", "0", "y"))) == {(7, 7)}  # those before the row's own step


def test_any_game_is_played_with_each_seats_own_reward(config: Any) -> None:
    """Kuhn poker: zero-sum, and every question a conversation of its own."""

    async def one(seat: str) -> Any:
        return await run_loop(config, Server("b", "p"), row_of("kuhn", seat, style="terse"))

    first, second = asyncio.run(one("first")), asyncio.run(one("second"))
    assert (first.reward_score, second.reward_score) == (1.0, -1.0)
    assert first.response_ids == nano_tokenizer().encode("b", add_special_tokens=False)


def test_thoughts_are_no_part_of_what_a_game_reads(config: Any) -> None:
    tokenizer = nano_tokenizer()
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.chat_template += "{# </think> #}"

    async def one() -> Any:
        server = Server("<think>bet?</think>b", "<think>no</think>p", tokenizer=tokenizer)
        return await run_loop(config, server, row_of("kuhn", "first", style="terse"))

    output = asyncio.run(one())
    assert output.reward_score == 1.0  # a bet and a fold: nobody forfeited
    assert len(output.response_ids) == len(output.response_mask) == 1 + 4 + 1 + 1


def test_a_seat_that_was_never_asked_learns_nothing(config: Any) -> None:
    async def one() -> Any:
        return await run_loop(config, Server("nonsense"), row_of("kuhn", "second", style="terse"))

    output = asyncio.run(one())
    assert output.response_mask == [0] and output.reward_score == 0.5  # the other one forfeited


def test_a_void_game_trains_nobody(config: Any) -> None:
    row = row_of("matching", "first", **TERSE)
    row["reward_model"]["ground_truth"] = json.dumps({"table": [[1]]})

    async def one() -> Any:
        return await run_loop(config, Server("A"), row)

    output = asyncio.run(one())
    assert sum(output.response_mask) == 0 and output.reward_score == 0.0
    assert output.extra_fields["reward_extra_info"]["void"] == 1.0


def test_the_config_resolves_on_verls_tree_and_passes_its_checks(
    config: Any, monkeypatch: pytest.MonkeyPatch, exported: Path
) -> None:
    validate_config(config, use_reference_policy=False, use_critic=False)
    assert config.algorithm.adv_estimator == "grpo"
    assert config.actor_rollout_ref.rollout.n == 4
    assert config.actor_rollout_ref.rollout.agent.default_agent_loop == AGENT
    assert config.data.train_batch_size == 5  # as many as there are rows
    assert Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).is_file()
    monkeypatch.setenv("SPARRING_EXPORT", str(exported))
    monkeypatch.setenv("TRAIN_BATCH_SIZE", "128")
    monkeypatch.setenv("MICRO_BATCH_SIZE", "16")
    with initialize_config_dir(str(exported), version_base=None):
        found = compose("sparring")
    assert found.data.train_batch_size == 128
    assert found.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 16


def test_the_launch_script_hands_verl_this_config(exported: Path, tmp_path: Path) -> None:
    """With a python that only says what it was asked to run."""
    echo = tmp_path / "python"
    echo.write_text('#!/bin/sh\necho "$SPARRING_EXPORT" "$@"\n')
    echo.chmod(0o755)
    done = subprocess.run(
        [exported / "launch.sh", "trainer.nnodes=2"],
        env={**os.environ, "PYTHON": str(echo)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [
        str(exported), "-m", "verl.trainer.main_ppo",
        "--config-path", str(exported), "--config-name", "sparring", "trainer.nnodes=2",
    ]  # fmt: skip


def test_verl_finds_the_reward_function(config: Any) -> None:
    task = load_game("matching", style="short", size=2, hard=1).task(0)
    score = get_custom_reward_fn(config)
    assert score is not None
    given = {"data_source": "sparring/matching", "ground_truth": json.dumps(task.data)}
    straight = task.data["table"][0][0] + task.data["table"][1][1]
    said = "[propose] Ada: Parsing, Ben: Vision"
    assert score(solution_str=said, **given) == straight / task.data["optimum"]
    assert score(solution_str="[propose] Ada: Parsing, Ben: Parsing", **given) == 0.0
    assert score(solution_str="[message] hm", **given) == 0.0
    brought = {"reward_extra_info": {"game_reward": 0.75}}
    assert score(solution_str="", extra_info=brought, **given) == 0.75
    with pytest.raises(ValueError, match="default_agent_loop"):
        compute_score("sparring/kuhn", "b", "{}")


def test_a_seat_of_a_game_that_is_not_won_together_has_its_own_row(tmp_path: Path) -> None:
    from sparring.bridges.verl_export import rows_to_play

    task = load_game("kuhn", style="terse").task(0)
    sample = Sample(MAIN, [1, 2], [0, 1], [0.0, 0.0], [0.0, -1.0])
    found = [
        Instance(0, seat, "e", task, 0.0, [{"role": "user", "content": "J"}], sample)
        for seat in ("first", "second", "first")
    ]
    rows = rows_to_play(found, Source("kuhn", {"style": "terse"}))
    assert [row.seat for row in rows] == ["first", "second"]
    write_parquet(tmp_path / "train.parquet", Source("kuhn", {}), rows, "train")
    assert read_parquet(tmp_path / "train.parquet")[1][0].task == task


def test_verls_trainer_compares_the_games_of_a_table_and_both_seats_share_it() -> None:
    """Four games on one table, two sequences each, under the keys that verl's trainer gives."""
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    rewards = [1.0, 0.5, 0.5, 0.0]
    keys = [f"table_{game}_{seat}" for game in range(4) for seat in range(2)]
    scores = torch.zeros(8, 3)
    scores[:, 2] = torch.tensor(rewards).repeat_interleave(2)
    mask = torch.ones(8, 3)
    data = DataProto.from_single_dict(
        {
            "token_level_rewards": scores,
            "response_mask": mask,
            "uid": np.array(["table"] * 8, dtype=object),
        }
    )
    found = compute_advantage_for_multi_trajectories(
        data, keys, "grpo", num_repeat=4, norm_adv_by_std_in_grpo=False
    )
    expected = torch.tensor(centred(rewards)).repeat_interleave(2)
    assert torch.allclose(found.batch["advantages"], expected[:, None] * mask)

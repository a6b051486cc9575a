"""verl's own PPO trainer on what `sparring export verl` writes, and its checkpoint as a policy."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make verl` installs it")

from sparring.bridges.verl_export import export
from sparring.models.loading import load_model
from sparring.run.config import make_config
from sparring.training.loop import train
from sparring.training.selfplay import Plan, play_plan

TERSE = {"style": "terse", "size": 2, "hard": 1, "max_length": 4, "penalty": 1}
KEYS = (
    *("trainer.total_training_steps=2", "trainer.total_epochs=2", "trainer.save_freq=2"),
    *("trainer.test_freq=-1", "trainer.val_before_train=False", "trainer.device=cpu"),
    "actor_rollout_ref.actor.checkpoint.save_contents=[model,hf_model]",
    # What a GPU does by itself: padding, attention and precision for a CPU.
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    *("actor_rollout_ref.actor.use_torch_compile=False", "actor_rollout_ref.actor.strategy=fsdp2"),
    "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision="
    "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
    # Ray counts cores and GPUs by what it is told; with fewer than its actors ask for, verl waits.
    *("ray_kwargs.ray_init.num_cpus=16", "+ray_kwargs.ray_init.num_gpus=1"),
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    *("actor_rollout_ref.rollout.agent.num_workers=1", "reward.num_workers=1"),
    "data.dataloader_num_workers=0",
)


@pytest.mark.skipif(
    os.environ.get("SPARRING_FULL") != "1",
    reason="two minutes of one core; SPARRING_FULL=1 runs it",
)
def test_verls_trainer_takes_two_steps_and_its_checkpoint_plays(tmp_path: Path) -> None:
    """On a CPU; only vLLM is replaced, by transformers behind verl's own interface of a server."""
    config = {
        "policy": "nano",
        "iterations": 1,
        "games": {"matching": TERSE},
        "sampling": {"max_tokens": 1},
        "collect": {"episodes": 16, "group": 4},
        "credit": {"kind": "group_relative", "seats": "together"},
        "learn": {"weights": "full", "lr": 1e-3},
        "begin": {"main": "scripted:400"},
        "evaluate": {"games": 0, "final": 0, "ladder": 0},
        "engine": {"device": "cpu", "dtype": "float32"},
    }
    train(make_config(config), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out")
    here = Path(__file__).parent
    command = [str(tmp_path / "out" / "launch.sh"), *KEYS]
    more = {
        "PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")]),
        "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
        "VERL_ENGINE_DEVICE": "cuda",  # the engine that verl registers, on OnCPU's device
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
    }
    log = tmp_path / "verl.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,  # hydra writes there
            env={**os.environ, **more},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=1800)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    text = log.read_text()
    assert code == 0, text[-3000:]
    steps = re.findall(r"step:(\d) - (.*)", text)
    assert [number for number, _ in steps] == ["1", "2"]
    for _, line in steps:
        figures = dict(re.findall(r"(\S+):([-0-9.e]+)", line))
        # What was drawn is what the trainer computes, token by token.
        assert float(figures["training/rollout_probs_diff_max"]) < 1e-5
        assert float(figures["actor/grad_norm"]) > 0
    saved = tmp_path / "out" / "checkpoints" / "global_step_2" / "actor" / "huggingface"
    before, after = (
        load_model(str(path))[0].state_dict() for path in (tmp_path / "out" / "model", saved)
    )
    assert before.keys() == after.keys()
    assert any(not before[name].equal(after[name]) for name in before)
    played = play_plan(
        Plan("matching", str(saved), games=8, options=TERSE), tmp_path / "games", device="cpu"
    )
    assert played["games"] == 8 and played["void"] == 0

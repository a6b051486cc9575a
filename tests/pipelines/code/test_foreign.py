"""A config of the sources' own shape is answered with the keys that say the same here, and our
recipes take those keys."""

from pathlib import Path

import pytest
import yaml

from sparring.core.errors import ConfigError
from sparring.pipelines.code.foreign import ELSEWHERE, KEYS
from sparring.run.config import load_recipe

# The shape and the values that the GRPO project's page shows.
GRPO = """
model:
  id: "Qwen/Qwen2.5-1.5B"
  cache_dir: "./model_cache"
training_args:
  learning_rate: 0.00002
  per_device_train_batch_size: 8
  max_steps: 90
  num_generations: 2
evaluation:
  enabled: true
  num_questions: 5
  eval_interval_steps: 20
  temperature: 0.2
  timeout_seconds: 10
vllm:
  enabled: false
  gpu_memory_utilization: 0.85
  max_model_len: 2048
"""


def test_the_answer_is_a_command_that_works(tmp_path: Path):
    path = tmp_path / "grpo_code_execution.yaml"
    path.write_text(GRPO)
    with pytest.raises(ConfigError) as refused:
        load_recipe(str(path))
    said = str(refused.value)
    assert "model.id → policy=Qwen/Qwen2.5-1.5B" in said
    assert "model.cache_dir → the variable HF_HOME" in said
    *_, command = said.splitlines()
    _, _, words = command.partition("sparring train ")
    recipe, *overrides = words.split()
    assert recipe == "grpo-code-execution"
    config = load_recipe(recipe, overrides)
    assert config.policy == "Qwen/Qwen2.5-1.5B" and config.learn.lr == 2e-5
    assert (config.iterations, config.collect.group, config.collect.episodes) == (90, 2, 8)
    mbpp = config.mbpp
    assert (mbpp.enabled, mbpp.problems, mbpp.every, mbpp.temperature) == (True, 5, 20, 0.2)
    assert config.engine.kind == "transformers" and config.engine.vllm.max_model_len == 2048
    assert list(tmp_path.iterdir()) == [path]


# A value for every key that can be said here, as TRL's config would have it.
VALUES = {
    "model.id": "nano",
    "model.name": "nano",
    "training_args.loss_type": "dr_grpo",
    "training_args.importance_sampling_level": "sequence",
    "training_args.scale_rewards": True,
    "training_args.vllm_importance_sampling_mode": "token_mask",
    "training_args.lr_scheduler_type": "linear",
    "training_args.top_p": 0.9,
    "training_args.gradient_checkpointing": True,
    "training_args.bf16": True,
    "training_args.fp16": True,
    "evaluation.enabled": True,
    "evaluation.dataset_path": "mbpp.jsonl",
    "evaluation.temperature": 0.5,
    "vllm.enabled": True,
    "vllm.gpu_memory_utilization": 0.5,
}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_that_is_named_is_one_of_ours(key: str, tmp_path: Path):
    section, _, name = key.partition(".")
    path = tmp_path / "spiral_self_play.yaml"
    path.write_text(yaml.safe_dump({section: {name: VALUES.get(key, 2)}}))
    with pytest.raises(ConfigError, match="The same here") as refused:
        load_recipe(str(path))
    recipe, *overrides = str(refused.value).splitlines()[-1].partition("train ")[2].split()
    assert recipe == "spiral" and overrides, refused.value
    load_recipe(recipe, overrides)


def test_what_is_said_elsewhere_or_not_at_all_is_named(tmp_path: Path):
    path = tmp_path / "grpo.yaml"
    args = {"output_dir": "out", "lr_scheduler_type": "polynomial", "push_to_hub": False}
    path.write_text(yaml.safe_dump({"training_args": args}))
    with pytest.raises(ConfigError) as refused:
        load_recipe(str(path))
    said = str(refused.value)
    assert "training_args.output_dir → --run FOLDER" in said
    assert "lr_scheduler_type → learn.schedule, which is constant, linear or cosine" in said
    assert "training_args.push_to_hub → nothing here says this" in said
    assert set(ELSEWHERE) >= {"model.cache_dir", "training_args.output_dir"}


@pytest.mark.parametrize("recipe", ["grpo-code-execution", "tictactoe"])
def test_mbpps_variables_have_the_last_word_in_every_recipe(recipe: str, monkeypatch):
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "10")
    monkeypatch.setenv("MBPP_DATASET_PATH", "/custom/path")
    typed = ["mbpp.enabled=true", "mbpp.problems=3", "mbpp.data=a.jsonl"]
    mbpp = load_recipe(recipe, typed).mbpp
    assert (mbpp.problems, mbpp.data) == (10, "/custom/path")
    off = load_recipe(recipe, ["mbpp.enabled=false"]).mbpp
    assert off.data != "/custom/path"
    monkeypatch.setenv("MBPP_EVAL_NUM_QUESTIONS", "[")
    with pytest.raises(ConfigError, match="MBPP_EVAL_NUM_QUESTIONS is not YAML"):
        load_recipe(recipe, typed)

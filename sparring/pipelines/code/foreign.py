"""Configs in the shape of other projects (`model`, `training_args`, `evaluation`, `vllm`): answered
with the keys that say the same here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

SECTIONS = ("model", "training_args", "evaluation", "vllm")
Translate = Callable[[Any], dict[str, Any]]


def _when(key: str, yes: Any, no: Any = None) -> Translate:
    return lambda value: {key: yes} if value else ({} if no is None else {key: no})


LOSS_TYPES = {
    "cispo": {"learn.loss_mode": "cispo", "learn.aggregation": "dapo"},
    "sapo": {"learn.loss_mode": "sapo", "learn.aggregation": "grpo"},
}
KEYS: dict[str, str | Translate] = {  # a key that means the same, or what it becomes
    "model.id": "policy",
    "model.name": "policy",
    "training_args.learning_rate": "learn.lr",
    "training_args.max_steps": "iterations",
    "training_args.num_generations": "collect.group",
    "training_args.per_device_train_batch_size": "collect.episodes",
    "training_args.max_completion_length": "sampling.max_tokens",
    "training_args.temperature": "sampling.temperature",
    "training_args.top_p": "sampling.top_p",
    "training_args.top_k": "sampling.top_k",
    "training_args.beta": "learn.kl",
    "training_args.num_iterations": "learn.epochs",
    "training_args.epsilon": lambda value: {"learn.clip_low": value, "learn.clip_high": value},
    "training_args.epsilon_high": "learn.clip_high",
    "training_args.delta": "learn.ratio_cap",
    "training_args.loss_type": lambda value: LOSS_TYPES.get(value, {"learn.aggregation": value}),
    "training_args.importance_sampling_level": lambda value: {
        "learn.loss_mode": "gspo" if value == "sequence" else "vanilla"
    },
    "training_args.scale_rewards": lambda value: {
        "credit.scale_rewards": {True: "group", False: "none"}.get(value, value)
    },
    "training_args.off_policy_mask_threshold": "learn.off_policy_mask_threshold",
    "training_args.vllm_importance_sampling_mode": "learn.importance_sampling_mode",
    "training_args.vllm_importance_sampling_clip_min": "learn.importance_sampling_clip_min",
    "training_args.vllm_importance_sampling_clip_max": "learn.importance_sampling_clip_max",
    "training_args.weight_decay": "learn.weight_decay",
    "training_args.max_grad_norm": "learn.max_grad_norm",
    "training_args.warmup_steps": "learn.warmup",
    "training_args.lr_scheduler_type": lambda value: (
        {"learn.schedule": value} if value in ("constant", "linear", "cosine") else {}
    ),
    "training_args.gradient_checkpointing": "learn.gradient_checkpointing",
    "training_args.bf16": _when("engine.dtype", "bfloat16"),
    "training_args.fp16": _when("engine.dtype", "float16"),
    "training_args.save_steps": "checkpoint.every",
    "training_args.seed": "seed",
    "evaluation.enabled": "mbpp.enabled",
    "evaluation.num_questions": "mbpp.problems",
    "evaluation.eval_interval_steps": "mbpp.every",
    "evaluation.temperature": "mbpp.temperature",
    "evaluation.timeout_seconds": "mbpp.timeout_s",
    "evaluation.max_new_tokens": "mbpp.max_tokens",
    "evaluation.dataset_path": "mbpp.data",
    "vllm.enabled": _when("engine.kind", "vllm", "transformers"),
    "vllm.gpu_memory_utilization": "engine.vllm.gpu_memory_utilization",
    "vllm.max_model_len": "engine.vllm.max_model_len",
    "vllm.tensor_parallel_size": "engine.vllm.tensor_parallel_size",
}
ELSEWHERE = {
    "model.cache_dir": "the variable HF_HOME",
    "training_args.lr_scheduler_type": "learn.schedule, which is constant, linear or cosine",
    "training_args.output_dir": "--run FOLDER",
    "training_args.report_to": "tracking.wandb, tracking.tensorboard",
    "training_args.logging_steps": "every iteration is logged",
    "training_args.gradient_accumulation_steps": "learn.tokens_per_batch, which changes no result",
}


# Which recipe stands for a config, by a word of its file's name.
RECIPES = {
    "code_game": "grpo-code-game",
    "code_execution": "grpo-code-execution",
    "spiral": "spiral",
    "self_play": "spiral",
    "grpo": "grpo-code-execution",
}


def translation(data: Mapping[str, Any]) -> str | None:
    """What to write instead of a config of another shape, or None where it has none of its marks.
    `recipe` of the config is its file's name."""
    if not any(section in data for section in SECTIONS):
        return None
    same: dict[str, Any] = {}
    lines, odd = [], []
    for key, value in _leaves({k: data[k] for k in SECTIONS if k in data}):
        rule = KEYS.get(key)
        ours = {rule: value} if isinstance(rule, str) else rule(value) if rule else None
        if ours:
            same |= ours
            lines += [f"  {key} → {name}={_word(v)}" for name, v in ours.items()]
        elif ours is None or key in ELSEWHERE:
            odd.append(f"  {key} → {ELSEWHERE.get(key, 'nothing here says this')}")
    name = str(data.get("recipe", ""))
    recipe = next((ours for word, ours in RECIPES.items() if word in name), "RECIPE")
    command = " ".join(f"{key}={_word(value)}" for key, value in same.items())
    return "\n".join(
        [
            f"it has the sections {', '.join(k for k in SECTIONS if k in data)} of another "
            "project's config. The same here:",
            *lines,
            *odd,
            f"on the command line: sparring train {recipe} {command}".rstrip(),
        ]
    )


def _leaves(data: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(data, Mapping):
        yield prefix, data
        return
    for key, value in data.items():
        yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text and not set(text) & set(" \"'*?$&;|<>()[]{}#\\") else f"'{text}'"

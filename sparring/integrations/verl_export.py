"""`sparring export verl`: rows that verl's own dataset class reads, the config that sits on verl's
tree, and the script that starts it. Needs nothing of verl itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sparring.games import load_game
from sparring.instances import (
    AGENT,
    TRAIN,
    VAL,
    Instance,
    Source,
    instances,
    read_parquet,
    write_parquet,
)
from sparring.run.config import Config, ConfigError
from sparring.run.lock import writing
from sparring.run.policy import find_trained, load_engine
from sparring.run.rundir import RunDir, holds_something, write_whole
from sparring.selfplay import PLAN
from sparring.types import MAIN, Episode, Sample

CONFIG, AGENTS, LAUNCH = "sparring.yaml", "agent.yaml", "launch.sh"
_HERE = "${oc.env:SPARRING_EXPORT}"  # set by the launch script, so that the folder can be moved


@dataclass(frozen=True)
class Wish:
    """What the config of verl is made from."""

    model: str
    group: int = 4
    temperature: float = 1.0
    lr: float = 1e-6
    scale: bool = True
    lora_rank: int = 0


def export(source: Path, out: Path) -> dict[str, Any]:
    """A run, or a folder of `sparring selfplay`, as a folder that verl starts from."""
    with writing(out):
        if holds_something(out):
            raise ConfigError(f"{out} is not empty; choose another folder")
        return _export(source, out)


def _export(source: Path, out: Path) -> dict[str, Any]:
    if (source / "config.yaml").is_file():
        kept, parts, wish = _from_run(RunDir.existing(source))
    elif (source / PLAN).is_file():
        kept, parts, wish = _from_selfplay(source)
    else:
        raise ConfigError(f"{source} is neither a run nor a folder of `sparring selfplay`")
    train, val = (rows_to_play(part, kept) for part in parts)
    if not train:
        raise ConfigError(f"{source} holds no games yet; there is nothing to export")
    model = _model(wish.model, out)
    write_parquet(out / TRAIN, kept, train, "train")
    write_parquet(out / VAL, kept, val or train[:1], "val")  # verl wants one row at least
    lengths = _lengths([one for part in parts for one in part])
    write_whole(out / CONFIG, _config(wish, model, *lengths, rows=len(train)).encode())
    loop = [{"name": AGENT, "_target_": "sparring.integrations.verl.GameLoop"}]
    write_whole(out / AGENTS, yaml.safe_dump(loop, sort_keys=False).encode())
    write_whole(out / LAUNCH, _launch().encode())
    (out / LAUNCH).chmod(0o755)
    return {
        "out": str(out),
        "train_rows": len(train),
        "val_rows": len(val),
        "model": model["path"].replace(_HERE, str(out)),
    }


def rows_to_play(found: Sequence[Instance], source: Source) -> list[Instance]:
    """What verl is to play, once each. A game that is won together is one row, and all its seats
    learn from it; otherwise each seat has a row of its own."""
    together = load_game(source.game, **source.options).cooperative
    rows: dict[tuple[str, str], Instance] = {}
    for one in found:
        seat = "" if together else one.seat
        rows.setdefault(
            (one.task.id, seat),
            Instance(one.index, seat, "", one.task, 0.0, one.prompt, Sample(MAIN, [], [], [], [])),
        )
    return list(rows.values())


def _from_run(run: RunDir) -> tuple[Source, tuple[list[Instance], list[Instance]], Wish]:
    """The tables of a run's games; those of its last iteration are for validation."""
    config = run.config()
    name, options = next(iter(config.games.items()))
    if len(config.games) > 1:
        raise ConfigError(
            f"{run.path} has several games; verl takes one: {', '.join(config.games)}"
        )
    source = Source(name, {k: v for k, v in (options or {}).items() if k != "weight"})
    if load_game(name, **source.options).problems:
        raise ConfigError(f"{name} does not make its own tasks; give verl those it is trained on")
    numbers = sorted(int(p.name.split(".")[0]) for p in run.episodes.glob("*.jsonl.gz"))
    episodes = [list(_with_group(run.read_episodes(n))) for n in numbers]
    train = [e for part in episodes[:-1] or episodes for e in part]
    val = episodes[-1] if len(episodes) > 1 else []
    return source, (instances(train), instances(val)), _wish(config, run.path)


def _with_group(episodes: Iterable[Episode]) -> Iterable[Episode]:
    """Games that nobody grouped are each on a table of their own."""
    for episode in episodes:
        episode.group = episode.group or episode.id
        yield episode


def _wish(config: Config, run: Path) -> Wish:
    lora = config.learn.weights == "lora"
    return Wish(
        model=str(run),
        group=max(2, config.collect.group),
        temperature=config.sampling.temperature,
        lr=config.learn.lr,
        scale=config.credit.scale,
        lora_rank=config.learn.lora_r if lora else 0,
    )


def _from_selfplay(folder: Path) -> tuple[Source, tuple[list[Instance], list[Instance]], Wish]:
    plan = json.loads((folder / PLAN).read_text())
    source, train = read_parquet(folder / TRAIN)
    _, val = read_parquet(folder / VAL)
    wish = Wish(plan["policy"], max(2, plan["group"]), plan["temperature"])
    return source, (train, val), wish


def _model(policy: str, out: Path) -> dict[str, Any]:
    """Where verl finds the weights: a hub name as it is, ours as a folder beside the data."""
    from sparring.learn.export import export_policy
    from sparring.learn.models import smollm2_folder

    found = find_trained(policy)
    if found is None and policy not in ("nano", "smollm2"):
        return {"path": policy}
    base = found.config.policy if found else policy
    engine, name = load_engine(policy, device="cpu")
    adapter = found is not None and found.config.learn.weights == "lora"
    export_policy(engine.policies, name, base, out / ("adapter" if adapter else "model"))
    if not adapter:
        return {"path": f"{_HERE}/model"}
    stands_on = str(smollm2_folder()) if base == "smollm2" else base
    return {"path": stands_on, "lora_adapter_path": f"{_HERE}/adapter"}


def _lengths(found: Sequence[Instance]) -> tuple[int, int]:
    """Room for prompts as long as those on record, and for replies twice as long."""
    firsts = [
        (one.sample.mask.index(1), len(one.sample.ids)) for one in found if 1 in one.sample.mask
    ]
    longest = max((first for first, _ in firsts), default=512)
    replies = max((whole - first for first, whole in firsts), default=512)
    return _power(longest), _power(2 * replies)


def _power(least: int) -> int:
    return 1 << max(6, (least - 1).bit_length())


def _variable(name: str, otherwise: object) -> str:
    """A value that the environment may set."""
    return f"${{oc.decode:${{oc.env:{name},{otherwise}}}}}"


def _config(
    wish: Wish, model: dict[str, Any], prompt_length: int, response_length: int, rows: int
) -> str:
    """On top of verl's own `ppo_trainer`. What the environment may set is read when it starts."""
    batch, micro = _variable("TRAIN_BATCH_SIZE", min(64, rows)), _variable("MICRO_BATCH_SIZE", 8)
    data = {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": wish.scale,
            "use_kl_in_reward": False,
        },
        "data": {
            "train_files": f"{_HERE}/{TRAIN}",
            "val_files": f"{_HERE}/{VAL}",
            "train_batch_size": batch,
            "max_prompt_length": prompt_length,
            "max_response_length": response_length,
            "filter_overlong_prompts": True,
            "return_raw_chat": True,
        },
        "actor_rollout_ref": _actor(wish, model, batch, micro),
        "reward": {
            "custom_reward_function": {
                "path": "pkg://sparring.integrations.verl",
                "name": "compute_score",
            }
        },
        "trainer": {
            "project_name": "sparring",
            "experiment_name": "${oc.env:EXP_NAME,matching}",
            "n_gpus_per_node": _variable("N_GPUS", 1),
            "nnodes": _variable("N_NODES", 1),
            "total_epochs": _variable("NUM_ITERATIONS", 3),
            "default_local_dir": f"{_HERE}/checkpoints",
            "logger": ["console"],
            "save_freq": 10,
            "test_freq": 10,
        },
    }
    note = (
        "# verl's own ppo_trainer, with a game of sparring for a rollout. Started by launch.sh.\n"
    )
    return note + yaml.safe_dump(data, sort_keys=False)


def _actor(wish: Wish, model: dict[str, Any], batch: str, micro: str) -> dict[str, Any]:
    return {
        "model": {**model, "lora_rank": wish.lora_rank},
        "actor": {
            "optim": {"lr": wish.lr},
            "ppo_mini_batch_size": batch,
            "ppo_micro_batch_size_per_gpu": micro,
            "ppo_epochs": _variable("EPOCHS_PER_ITER", 1),
            "use_kl_loss": False,
        },
        "rollout": {
            "name": "vllm",
            "n": wish.group,  # games on each table: the group
            "temperature": wish.temperature,
            "tensor_model_parallel_size": 1,
            "log_prob_micro_batch_size_per_gpu": micro,
            "calculate_log_probs": True,
            "agent": {
                "default_agent_loop": AGENT,
                "agent_loop_config_path": f"{_HERE}/{AGENTS}",
            },
        },
        "ref": {"log_prob_micro_batch_size_per_gpu": micro},
    }


def _launch() -> str:
    return """#!/usr/bin/env bash
# Trains with verl on this folder. Any key of verl's config can be set behind the command:
#   ./launch.sh trainer.n_gpus_per_node=8 actor_rollout_ref.rollout.tensor_model_parallel_size=2
# Wanted where it runs: pip install 'verl[vllm]' scipy && pip install --no-deps sparring (verl and
# sparring hold transformers to different versions; inside verl, sparring needs none of its own).
set -euo pipefail
SPARRING_EXPORT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
export SPARRING_EXPORT
exec "${PYTHON:-python3}" -m verl.trainer.main_ppo \\
  --config-path "$SPARRING_EXPORT" --config-name sparring "$@"
"""

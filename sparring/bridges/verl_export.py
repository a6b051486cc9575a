"""`sparring export verl`: rows that verl's own dataset class reads, the config that sits on verl's
tree, and the script that starts it. Needs nothing of verl itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sparring.core.errors import ConfigError, nearest
from sparring.core.game import Game
from sparring.core.plugin import names
from sparring.core.types import MAIN, Episode, Sample, Task
from sparring.engines.load import load_engine
from sparring.models.trained import find_trained
from sparring.run.config import Config
from sparring.run.games import load_game
from sparring.run.lock import writing
from sparring.run.rundir import RunDir, holds_something, write_whole
from sparring.tasks.source import held_out_tasks
from sparring.training import requirements
from sparring.training.instances import (
    AGENT,
    TRAIN,
    VAL,
    Instance,
    Source,
    instances,
    read_parquet,
    write_parquet,
)
from sparring.training.selfplay import PLAN

CONFIG, AGENTS, LAUNCH = "sparring.yaml", "agent.yaml", "launch.sh"
_TEXTS = ("prompt", "text", "question", "problem", "description", "code")  # what a task is about
_HERE = "${oc.env:SPARRING_EXPORT}"  # set by the launch script, so that the folder can be moved


@dataclass(frozen=True)
class Settings:
    """What the config of verl is made from."""

    model: str
    group: int = 4
    temperature: float = 1.0
    lr: float = 1e-6
    scale: bool = True
    lora_rank: int = 0
    sandbox: str = "bubblewrap"


@dataclass(frozen=True)
class Exported:
    """What a run or a folder brings: rows to train and to validate on, and its games on record."""

    source: Source
    train: Sequence[Instance]
    val: Sequence[Instance]
    recorded: Sequence[Instance]
    settings: Settings
    notes: tuple[str, ...] = ()


def export(source: Path, out: Path, game: str | None = None) -> dict[str, Any]:
    """A run, or a folder of `sparring selfplay`, as a folder that verl starts from."""
    with writing(out):
        if holds_something(out):
            raise ConfigError(f"{out} is not empty; choose another folder")
        return _export(source, out, game)


def _export(source: Path, out: Path, game: str | None) -> dict[str, Any]:
    if (source / "config.yaml").is_file():
        exported = _from_run(RunDir.existing(source), game)
    elif (source / PLAN).is_file():
        exported = _from_selfplay(source)
    else:
        raise ConfigError(f"{source} is neither a run nor a folder of `sparring selfplay`")
    kept, settings = exported.source, exported.settings
    train, val = (rows_to_play(part, kept) for part in (exported.train, exported.val))
    if not train:
        raise ConfigError(f"{source} holds no games yet; there is nothing to export")
    model = _model(settings.model, out)
    write_parquet(out / TRAIN, kept, train, "train")
    write_parquet(out / VAL, kept, val or train[:1], "val")  # verl wants one row at least
    lengths = _lengths(exported.recorded)
    name = kept.game if kept.game.isidentifier() else "sparring"
    text = _config(settings, model, *lengths, rows=len(train), name=name)
    write_whole(out / CONFIG, text.encode())
    loop = [{"name": AGENT, "_target_": "sparring.bridges.verl.GameLoop"}]
    if settings.sandbox != "bubblewrap":
        loop[0]["sandbox"] = settings.sandbox
    write_whole(out / AGENTS, yaml.safe_dump(loop, sort_keys=False).encode())
    write_whole(out / LAUNCH, _launch().encode())
    (out / LAUNCH).chmod(0o755)
    return {
        "out": str(out),
        "game": kept.game,
        "train_rows": len(train),
        "val_rows": len(val),
        "model": model["path"].replace(_HERE, str(out)),
        **({"notes": list(exported.notes)} if exported.notes else {}),
    }


def exportable_games() -> dict[str, str]:
    """Every game of this package, and where its rows come from."""
    made = "its own tasks: those that a run or `sparring selfplay` has on record"
    given = "tasks of a source: all of tasks.source, or the shipped ones"
    return {name: given if load_game(name).problems else made for name in names("games")}


def rows_to_play(recorded: Sequence[Instance], source: Source) -> list[Instance]:
    """What verl is to play, once each. A game that is won together is one row, and all its seats
    learn from it; otherwise each seat has a row of its own."""
    together = load_game(source.game, **source.options).cooperative
    rows: dict[tuple[str, str], Instance] = {}
    for one in recorded:
        seat = "" if together else one.seat
        rows.setdefault(
            (one.task.id, seat),
            Instance(one.index, seat, "", one.task, 0.0, one.prompt, Sample(MAIN, [], [], [], [])),
        )
    return list(rows.values())


def _from_run(run: RunDir, wanted: str | None) -> Exported:
    """The tables of a run's games, of which those of the last iteration are for validation; or, of
    a game that does not make its own tasks, all tasks of the run's source."""
    config = run.config()
    name = wanted or next(iter(config.games))
    if name not in config.games:
        raise ConfigError(f"{run.path} has no game {name!r}; {nearest(name, config.games)}")
    if len(config.games) > 1 and wanted is None:
        raise ConfigError(
            f"{run.path} has several games, and verl takes one: say which with --game, of "
            f"{', '.join(config.games)}"
        )
    options = config.games[name] or {}
    source = Source(name, {k: v for k, v in options.items() if k != "weight"})
    game = load_game(name, **source.options)
    numbers = sorted(int(p.name.split(".")[0]) for p in run.episodes.glob("*.jsonl.gz"))
    episodes = [[e for e in _with_group(run.read_episodes(n)) if e.game == name] for n in numbers]
    train = instances([e for part in episodes[:-1] or episodes for e in part])
    val = instances(episodes[-1]) if len(episodes) > 1 else []
    recorded = [*train, *val]
    seats = [seat for seat in game.seats if seat in requirements.learning_seats(config, [game])]
    if not seats:
        raise ConfigError(f"no policy that learns sits in {name}; there is nothing to export")
    settings = _settings(config, run.path, config.players.get(seats[0], MAIN))
    tasks, held_out = ([one.task for one in part] for part in (train, val))
    if game.problems:
        tasks = requirements.tasks_of(config, {name: game})[name]
        held_out = [t for t in held_out_tasks(config.tasks, game.problems) if not game.unusable(t)]
    rows = [_rows(part, seats, recorded) for part in (tasks, held_out)]
    return Exported(source, rows[0], rows[1], recorded, settings, _notes(config, game))


def _rows(
    tasks: Sequence[Task], seats: Sequence[str], recorded: Sequence[Instance]
) -> list[Instance]:
    """Every task from every seat that learns, whether it has spoken yet or not. verl asks in the
    game's own words; the prompt beside a row is for its tables: what was asked on record, or the
    task's own text."""
    asked = {(one.task.id, one.seat): one.prompt for one in recorded}
    rows = []
    for index, task in enumerate(tasks):
        text = next((task.data[k] for k in _TEXTS if isinstance(task.data.get(k), str)), task.id)
        for seat in seats:
            prompt = asked.get((task.id, seat)) or [{"role": "user", "content": text}]
            nothing = Sample(MAIN, [], [], [], [])
            rows.append(Instance(index, seat, "", task, 0.0, prompt, nothing))
    return rows


def _notes(config: Config, game: Game) -> tuple[str, ...]:
    """What is otherwise in verl, which has one model and seats it everywhere."""
    seated = {config.players.get(seat, MAIN) for seat in game.seats}
    if config.opponents.kind != "self":
        seated.add(config.opponents.kind)
    if len(seated) == 1:
        return ()
    return (
        f"in the run {', '.join(sorted(seated))} play; verl plays every seat with the one model "
        "that it trains, which begins as the first seat's that learns",
    )


def _with_group(episodes: Iterable[Episode]) -> Iterable[Episode]:
    """Games outside any group are each on a table of their own."""
    for episode in episodes:
        episode.group = episode.group or episode.id
        yield episode


def _settings(config: Config, run: Path, policy: str) -> Settings:
    lora = config.learn.weights == "lora"
    return Settings(
        model=str(run) if policy == MAIN else f"{run}:{policy}",
        group=max(2, config.collect.group),
        temperature=config.sampling.temperature,
        lr=config.learn.lr,
        scale=config.credit.scale_rewards == "group",
        lora_rank=config.learn.lora_r if lora else 0,
        sandbox=config.sandbox,
    )


def _from_selfplay(folder: Path) -> Exported:
    plan = json.loads((folder / PLAN).read_text())
    source, train = read_parquet(folder / TRAIN)
    _, val = read_parquet(folder / VAL)
    settings = Settings(plan["policy"], max(2, plan["group"]), plan["temperature"])
    return Exported(source, train, val, [*train, *val], settings)


def _model(policy: str, out: Path) -> dict[str, Any]:
    """Where verl finds the weights: a hub name as it is, ours as a folder beside the data."""
    from sparring.models.export import export_policy
    from sparring.models.loading import smollm2_folder

    trained = find_trained(policy)
    if trained is None and policy not in ("nano", "smollm2"):
        return {"path": policy}
    base = trained.config.policy if trained else policy
    engine, name = load_engine(policy, device="cpu")
    adapter = trained is not None and trained.config.learn.weights == "lora"
    export_policy(engine.policies, name, base, out / ("adapter" if adapter else "model"))
    if not adapter:
        return {"path": f"{_HERE}/model"}
    stands_on = str(smollm2_folder()) if base == "smollm2" else base
    return {"path": stands_on, "lora_adapter_path": f"{_HERE}/adapter"}


def _lengths(recorded: Sequence[Instance]) -> tuple[int, int]:
    """Room for prompts as long as those on record, and for replies twice as long."""
    firsts = [
        (one.sample.mask.index(1), len(one.sample.ids)) for one in recorded if 1 in one.sample.mask
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
    settings: Settings,
    model: dict[str, Any],
    prompt_length: int,
    response_length: int,
    *,
    rows: int,
    name: str,
) -> str:
    """On top of verl's own `ppo_trainer`. What the environment may set is read when it starts."""
    batch, micro = _variable("TRAIN_BATCH_SIZE", min(64, rows)), _variable("MICRO_BATCH_SIZE", 8)
    data = {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"]},
        "defaults": ["ppo_trainer", "_self_"],
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": settings.scale,
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
        "actor_rollout_ref": _actor(settings, model, batch, micro),
        "reward": {
            "custom_reward_function": {
                "path": "pkg://sparring.bridges.verl",
                "name": "compute_score",
            }
        },
        "trainer": {
            "project_name": "sparring",
            "experiment_name": f"${{oc.env:EXP_NAME,{name}}}",
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


def _actor(settings: Settings, model: dict[str, Any], batch: str, micro: str) -> dict[str, Any]:
    return {
        "model": {**model, "lora_rank": settings.lora_rank},
        "actor": {
            "optim": {"lr": settings.lr},
            "ppo_mini_batch_size": batch,
            "ppo_micro_batch_size_per_gpu": micro,
            "ppo_epochs": _variable("EPOCHS_PER_ITER", 1),
            "use_kl_loss": False,
        },
        "rollout": {
            "name": "vllm",
            "n": settings.group,  # games on each table: the group
            "temperature": settings.temperature,
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

"""A whole run of coherent mathematics: all phases into one folder, with three evaluations between
them and what each came to in phases.json."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.evaluation.significance import compare_files
from sparring.pipelines.coherent_math import phases
from sparring.pipelines.coherent_math.config import MathConfig
from sparring.pipelines.coherent_math.outputs import Facts
from sparring.pipelines.coherent_math.phases import Say, quiet
from sparring.run import console_log
from sparring.run.config import Config, dump
from sparring.run.job import working_in
from sparring.run.rundir import RunDir, holds_something, write_whole


def train(config: Config, path: Path, *, resume: bool = False, say: Say = quiet) -> Path:
    """All phases, where this process is the first of those that learn."""
    from sparring.training.finetune import leading

    with leading(config.engine.device):
        return run_all(config, path, resume=resume, say=say)


def run_all(config: Config, path: Path, *, resume: bool = False, say: Say = quiet) -> Path:
    """All phases into one folder. What is there and would come out the same is not made again."""
    with working_in(path):
        return _run_all(config, path, resume, say)


def _run_all(config: Config, path: Path, resume: bool, say: Say) -> Path:
    phases.training_problems(config)  # refused now, not after the first evaluation
    if not (path / "config.yaml").is_file():
        need_model(config)  # before the folder: what cannot be had leaves nothing behind
    _open(config, path, resume)
    merged, tuned, evaluations = str(path / "sft" / "merged"), str(path / "dpo"), path / "eval"
    rows, pairs = path / "rollouts.jsonl", path / "preferences.jsonl"
    again: dict[str, Any] = {"remake": True, "say": say}
    evaluate = partial(phases.evaluation, config, **again)
    arms = partial(phases.rollouts, config, held_out=True, **again)
    steps = {
        "eval_base": partial(evaluate, config.policy, evaluations / "base.jsonl"),
        "sft": partial(phases.sft, config, path / "sft", **again),
        "eval_sft": partial(evaluate, merged, evaluations / "sft.jsonl"),
        "rollouts": partial(phases.rollouts, config, merged, rows, **again),
        "preferences": partial(phases.preferences, config, rows, pairs, remake=True),
        "dpo": partial(phases.dpo, config, merged, pairs, path / "dpo", **again),
        "eval_dpo": partial(evaluate, tuned, evaluations / "dpo.jsonl"),
    }
    if config.section(MathConfig).rollouts.held_out:
        steps["arms_sft"] = partial(arms, merged, evaluations / "arms_sft.jsonl")
        steps["arms_dpo"] = partial(arms, tuned, evaluations / "arms_dpo.jsonl")
    results: dict[str, Any] = {}
    for name, step in steps.items():
        results[name] = step()
        say(phase_line(name, results[name]))
        write_whole(path / "phases.json", json.dumps(results, indent=1).encode())
    results["comparisons"] = comparisons(path)
    write_whole(path / "phases.json", json.dumps(results, indent=1).encode())
    return path


def need_model(config: Config) -> None:
    """Load what the phases stand on, once, to see that it can be."""
    from sparring.models.loading import load_model

    if config.begin:
        raise ConfigError("coherent-math begins with `policy`, a whole model; leave `begin` out")
    load_model(config.policy, dtype="bfloat16", seed=config.seed, template=config.template)


def comparisons(path: Path) -> Facts:
    """The three policies, two by two, on the same questions."""
    pairs = (("base", "sft"), ("sft", "dpo"), ("base", "dpo"))
    return {
        f"{a} → {b}": compare_files(path / "eval" / f"{a}.jsonl", path / "eval" / f"{b}.jsonl")
        for a, b in pairs
    }


def _open(config: Config, path: Path, resume: bool) -> None:
    """A new folder, or one of this pipeline: its phases look for themselves what has changed."""
    if (path / "config.yaml").is_file():
        if RunDir.existing(path).config().pipeline != config.pipeline:
            raise ConfigError(f"{path} holds a run of another kind; give this one another folder")
        if not resume:
            raise ConfigError(f"{path} holds this run already; add --resume to go on with it")
    elif holds_something(path):
        raise ConfigError(f"{path} is not empty and holds no run; choose another folder")
    path.mkdir(parents=True, exist_ok=True)
    write_whole(path / "config.yaml", dump(config).encode())
    console_log.begin(path)


_SUMMARY = (
    *("pass_rate", "interval_95", "loss", "s_wm", "correct", "pairs", "correctness", "coherence"),
    *("accuracy", "tokens_per_s"),
)


def phase_line(name: str, facts: Facts) -> str:
    """A phase in one line: its figures, and how long it took."""
    figures = [f"{key} {_short(facts[key])}" for key in _SUMMARY if key in facts]
    how = "as it was" if facts["skipped"] else f"{facts['seconds']:.1f} s"
    return f"{name} ({how}): {', '.join(figures)}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(_short(v) for v in (value[0], value[-1]))
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"

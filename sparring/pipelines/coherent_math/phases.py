"""Coherent mathematics in its five phases: sft, rollouts, preferences, dpo, eval. Each goes from
files to files and is a command of its own; `run_all` strings them together in one folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.evaluation.paired import compare_files
from sparring.models.device import choose_device, use_tf32
from sparring.pipelines.coherent_math.config import MathConfig
from sparring.pipelines.coherent_math.game import CoherentMath
from sparring.pipelines.coherent_math.gsm8k import evaluate_policy, write_details
from sparring.pipelines.coherent_math.outputs import Facts, fingerprint, make
from sparring.pipelines.coherent_math.preferences import build_preferences, read_preferences
from sparring.pipelines.coherent_math.questions import (
    ASK,
    WordProblem,
    load_word_problems,
    refuse_shared,
    refuse_test_file,
    without_calculator,
    word_problem,
)
from sparring.pipelines.coherent_math.rollouts import collect_rollouts, read_rollouts
from sparring.run import console_log
from sparring.run.config import Config, dump
from sparring.run.games import load_game
from sparring.run.job import working_in
from sparring.run.lines import unfinished
from sparring.run.rundir import RunDir, holds_something, write_whole
from sparring.tasks import training_tasks

Say = Callable[[str], None]
PHASES = ("sft", "rollouts", "preferences", "dpo", "eval")
GAME = "coherent_math"


def quiet(_: str) -> None:
    """Says nothing."""


def training_problems(config: Config) -> list[WordProblem]:
    """What is learned from: never a question of the evaluation."""
    source = config.tasks.source or "the shipped problems"
    if config.tasks.source:
        refuse_test_file(source)
    found = [word_problem(task, source) for task in training_tasks(config.tasks, "word_problems")]
    _refuse_tested(config, [problem.question for problem in found])
    return found


def _refuse_tested(config: Config, questions: list[str]) -> None:
    """All questions of the evaluation count, however few of them are asked this time."""
    tested = load_word_problems(config.section(MathConfig).gsm8k.data, "test")
    refuse_shared(questions, [problem.question for problem in tested])


def held_out_problems(config: Config) -> list[WordProblem]:
    return load_word_problems(
        config.section(MathConfig).gsm8k.data, "test", config.section(MathConfig).gsm8k.problems
    )


def game_of(config: Config) -> CoherentMath:
    options = {k: v for k, v in (config.games.get(GAME) or {}).items() if k != "weight"}
    game = load_game(GAME, **options)
    assert isinstance(game, CoherentMath)
    return game


def sft(config: Config, out: Path, *, remake: bool = False, say: Say = quiet) -> Facts:
    """Fine-tune the config's policy on worked solutions, and fold what was learned into it: `out`
    is a model in its own right, `out/lora` the run that made it."""
    from sparring.learn.demonstrations import Demonstration
    from sparring.models.merge import merge
    from sparring.run.rundir import read_lines
    from sparring.training.finetune import finetune

    told = config.section(MathConfig).sft
    problems = training_problems(config)[: told.questions]
    shown = [
        Demonstration.of("", ASK.format(question=p.question), solution(p, config)) for p in problems
    ]
    run_config = sft_config(config)
    inputs = {"config": dump(run_config), "data": [(d.messages, d.output) for d in shown]}
    inputs["model"] = fingerprint(config.policy)

    def work(unfinished: Path) -> Facts:
        lora, merged = unfinished / "lora", unfinished / "merged"
        shutil.rmtree(merged, ignore_errors=True)
        unfinished.mkdir(exist_ok=True)
        finetune(run_config, lora, shown, resume=True, progress=epoch_line("sft", say))
        folded = merge(str(lora), merged)
        last = list(read_lines(lora / "metrics.jsonl"))
        return {
            "solutions": len(shown),
            "epochs": told.epochs,
            "loss": [round(line["learn/loss"], 4) for line in last],
            "tokens_per_s": round(sum(m["tokens_per_s"] for m in last) / len(last)),
            "merge_difference": folded["difference"],
        }

    return make("sft", out, inputs, work, remake=remake)


def solution(problem: WordProblem, config: Config) -> str:
    keep = config.section(MathConfig).sft.calculator
    return problem.solution if keep else without_calculator(problem.solution)


def sft_config(config: Config) -> Config:
    """The fine-tuning as a run's config: the adapter is of the shape that `learn` says."""
    from sparring.training.finetune import finetune_config

    told, learn = config.section(MathConfig).sft, config.learn
    made = finetune_config(
        config.policy,
        epochs=told.epochs,
        seed=config.seed,
        template=config.template,
        lr=told.lr,
        batch=told.batch,
        warmup=told.warmup,
        lora_r=learn.lora_r,
        lora_alpha=learn.lora_alpha,
        lora_dropout=learn.lora_dropout,
        weights=learn.weights,
        tokens_per_batch=learn.tokens_per_batch,
        packing=learn.packing,
        gradient_checkpointing=learn.gradient_checkpointing,
        betas=learn.betas,
        max_grad_norm=learn.max_grad_norm,
    )
    return made.model_copy(update={"engine": config.engine, "checkpoint": config.checkpoint})


def _template(config: Config) -> dict[str, str]:
    """The chat template, where one was set: what was made with another is made again."""
    return {"template": config.template} if config.template else {}


def speaker(config: Config, policy: str) -> tuple[Any, str]:
    """Whoever is to be asked, by the engine that the config names or on a server of its own."""
    from sparring.engines.load import load_player
    from sparring.engines.make import make_engine
    from sparring.models.trained import find_trained

    told = config.engine
    device, dtype = choose_device(told.device, told.dtype)
    use_tf32(told.tf32, device)
    player, name = load_player(
        policy, device=told.device, dtype=told.dtype, template=config.template
    )
    policies = getattr(player, "policies", None)
    if policies is None:
        return player, name
    found = find_trained(policy)
    own = config.model_copy(update={"policy": found.config.policy if found else policy})
    return make_engine(own, policies, dtype), name


def rollouts(
    config: Config,
    policy: str,
    out: Path,
    *,
    held_out: bool = False,
    remake: bool = False,
    say: Say = quiet,
) -> Facts:
    """Every question through all arms of one policy: those to learn from, or those kept apart."""
    told = config.section(MathConfig).rollouts
    if held_out:
        problems = held_out_problems(config)[: told.held_out]
    else:
        problems = training_problems(config)[: told.questions]
    game = game_of(config)
    inputs = {
        "policy": fingerprint(policy),
        "problems": [(p.question, p.solution) for p in problems],
        "game": config.games.get(GAME),
        "sampling": config.sampling.model_dump(),
        "engine": config.engine.model_dump(),
        "chunk": told.chunk,
        "seed": config.seed,
        **_template(config),
    }

    def work(unfinished: Path) -> Facts:
        engine, name = speaker(config, policy)
        return collect_rollouts(config, game, problems, engine, name, unfinished, say)

    return make("rollouts", out, inputs, work, remake=remake)


def preferences(config: Config, rollouts_file: Path, out: Path, *, remake: bool = False) -> Facts:
    """Pairs from rollouts."""
    lines = read_rollouts(rollouts_file)
    _refuse_tested(config, [str(line.get("question", "")) for line in lines])
    told = config.section(MathConfig).preferences
    inputs = {"rollouts": fingerprint(rollouts_file), "preferences": told.model_dump()}

    def work(unfinished: Path) -> Facts:
        return build_preferences(lines, told, unfinished)

    return make("preferences", out, inputs, work, remake=remake)


def dpo(
    config: Config,
    model: str,
    preferences_file: Path,
    out: Path,
    *,
    remake: bool = False,
    say: Say = quiet,
) -> Facts:
    """DPO on pairs, with `model` as the reference: `out` is a run, and so a policy."""
    from sparring.run.rundir import read_lines
    from sparring.training.preference import Preference, fit_preferences

    pairs = read_preferences(preferences_file)
    _refuse_tested(config, [pair["question"] for pair in pairs])
    told = [
        Preference(
            ASK.format(question=pair["question"]),
            pair["chosen"],
            pair["rejected"],
            (pair.get("chosen_finish") == "length", pair.get("rejected_finish") == "length"),
        )
        for pair in pairs
    ]
    run_config = config.model_copy(update={"policy": model, "pipeline": "loop"})
    inputs = {
        "model": fingerprint(model),
        "pairs": fingerprint(preferences_file),
        "config": {k: getattr(run_config, k) for k in ("seed", "iterations")},
        "learn": config.learn.model_dump(),
        "engine": config.engine.model_dump(),
        **_template(config),
    }

    def work(unfinished: Path) -> Facts:
        fit_preferences(run_config, unfinished, told, resume=True, progress=epoch_line("dpo", say))
        lines = list(read_lines(unfinished / "metrics.jsonl"))
        keys = ("loss", "accuracy", "margin", "chosen", "rejected")
        found = {key: [round(line[f"learn/{key}"], 4) for line in lines] for key in keys}
        speed = sum(line["tokens_per_s"] for line in lines) / len(lines)
        return {"pairs": len(told), "epochs": len(lines), **found, "tokens_per_s": round(speed)}

    return make("dpo", out, inputs, work, remake=remake)


def evaluation(
    config: Config, policy: str, out: Path, *, remake: bool = False, say: Say = quiet
) -> Facts:
    """One policy on the questions that were kept apart; `out` holds a line for each."""
    told, problems = config.section(MathConfig).gsm8k, held_out_problems(config)
    inputs = {
        "policy": fingerprint(policy),
        "problems": [(p.question, p.answer) for p in problems],
        "how": told.model_dump(),
        "engine": config.engine.model_dump(),
        "seed": config.seed,
        **_template(config),
    }

    def work(place: Path) -> Facts:
        use_tf32(config.engine.tf32, choose_device(config.engine.device, config.engine.dtype)[0])
        with unfinished(place, inputs, remake=True) as lines:
            result, solved = evaluate_policy(
                problems,
                policy,
                samples=told.samples,
                temperature=told.temperature,
                max_tokens=told.max_tokens,
                seed=config.seed,
                batch=config.engine.max_batch,
                device=config.engine.device,
                dtype=config.engine.dtype,
                template=config.template,
                lines=lines,
                progress=lambda m: say(f"eval: {m['iteration']} of {len(problems)} questions"),
            )
            write_details(place, solved)
        return result

    say(f"eval: {policy} on {len(problems)} questions")
    return make("eval", out, inputs, work, remake=remake)


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
    training_problems(config)  # refused now, not after the first evaluation
    if not (path / "config.yaml").is_file():
        need_model(config)  # before the folder: what cannot be had leaves nothing behind
    _open(config, path, resume)
    merged = str(path / "sft" / "merged")
    steps: dict[str, Callable[[], Facts]] = {
        "eval_base": lambda: evaluation(
            config, config.policy, path / "eval" / "base.jsonl", remake=True, say=say
        ),
        "sft": lambda: sft(config, path / "sft", remake=True, say=say),
        "eval_sft": lambda: evaluation(
            config, merged, path / "eval" / "sft.jsonl", remake=True, say=say
        ),
        "rollouts": lambda: rollouts(config, merged, path / "rollouts.jsonl", remake=True, say=say),
        "preferences": lambda: preferences(
            config, path / "rollouts.jsonl", path / "preferences.jsonl", remake=True
        ),
        "dpo": lambda: dpo(
            config, merged, path / "preferences.jsonl", path / "dpo", remake=True, say=say
        ),
        "eval_dpo": lambda: evaluation(
            config, str(path / "dpo"), path / "eval" / "dpo.jsonl", remake=True, say=say
        ),
    }
    if config.section(MathConfig).rollouts.held_out:
        for name, policy in (("sft", merged), ("dpo", str(path / "dpo"))):
            out = path / "eval" / f"arms_{name}.jsonl"
            steps[f"arms_{name}"] = partial(
                rollouts, config, policy, out, held_out=True, remake=True, say=say
            )
    found: dict[str, Any] = {}
    for name, step in steps.items():
        found[name] = step()
        say(phase_line(name, found[name]))
        write_whole(path / "phases.json", json.dumps(found, indent=1).encode())
    found["comparisons"] = comparisons(path)
    write_whole(path / "phases.json", json.dumps(found, indent=1).encode())
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


def epoch_line(phase: str, say: Say) -> Callable[[dict[str, Any]], None]:
    def show(metrics: dict[str, Any]) -> None:
        say(
            f"{phase}: epoch {metrics['iteration']}, loss {metrics['learn/loss']:.4f}, "
            f"{metrics['learn/steps']:.0f} steps, {metrics['tokens_per_s']:,.0f} tokens/s"
        )

    return show


SHOWN = (
    *("pass_rate", "interval_95", "loss", "s_wm", "correct", "pairs", "correctness", "coherence"),
    *("accuracy", "tokens_per_s"),
)


def phase_line(name: str, facts: Facts) -> str:
    """A phase in one line: what came of it, and what it took."""
    told = [f"{key} {_short(facts[key])}" for key in SHOWN if key in facts]
    how = "as it was" if facts["skipped"] else f"{facts['seconds']:.1f} s"
    return f"{name} ({how}): {', '.join(told)}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(_short(v) for v in (value[0], value[-1]))
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"

"""The five phases of coherent mathematics: sft, rollouts, preferences, dpo, eval. Each reads files,
writes files and is a command of its own; `whole_run` runs all of them in one folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

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
from sparring.run.config import Config, dump
from sparring.run.games import load_game
from sparring.run.lines import unfinished
from sparring.run.rundir import read_log
from sparring.tasks import training_tasks

Say = Callable[[str], None]
GAME = "coherent_math"


def quiet(_: str) -> None:
    """Prints nothing."""


def training_problems(config: Config) -> list[WordProblem]:
    """What is learned from: never a question of the evaluation."""
    source = config.tasks.source or "the shipped problems"
    if config.tasks.source:
        refuse_test_file(source)
    problems = [
        word_problem(task, source) for task in training_tasks(config.tasks, "word_problems")
    ]
    _refuse_tested(config, [problem.question for problem in problems])
    return problems


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
    from sparring.models.export import merge
    from sparring.training.finetune import finetune

    options = config.section(MathConfig).sft
    problems = training_problems(config)[: options.questions]
    demonstrations = [
        Demonstration.of("", ASK.format(question=p.question), solution(p, config)) for p in problems
    ]
    run_config = sft_config(config)
    inputs = {"config": dump(run_config), "data": [(d.messages, d.output) for d in demonstrations]}
    inputs["model"] = fingerprint(config.policy)

    def work(unfinished: Path) -> Facts:
        lora, merged = unfinished / "lora", unfinished / "merged"
        shutil.rmtree(merged, ignore_errors=True)
        unfinished.mkdir(exist_ok=True)
        finetune(run_config, lora, demonstrations, resume=True, progress=epoch_line("sft", say))
        folded = merge(str(lora), merged)
        epochs = list(read_log(lora / "metrics.jsonl"))
        return {
            "solutions": len(demonstrations),
            "epochs": options.epochs,
            "loss": [round(line["learn/loss"], 4) for line in epochs],
            "tokens_per_s": _speed(epochs),
            "merge_difference": folded["difference"],
        }

    return make("sft", out, inputs, work, remake=remake)


def solution(problem: WordProblem, config: Config) -> str:
    keep = config.section(MathConfig).sft.calculator
    return problem.solution if keep else without_calculator(problem.solution)


def sft_config(config: Config) -> Config:
    """The fine-tuning as a run's config: the adapter is of the shape that `learn` says."""
    from sparring.training.finetune import finetune_config

    options, learn = config.section(MathConfig).sft, config.learn
    made = finetune_config(
        config.policy,
        epochs=options.epochs,
        seed=config.seed,
        template=config.template,
        lr=options.lr,
        batch=options.batch,
        warmup=options.warmup,
        lora_r=learn.lora_r,
        lora_alpha=learn.lora_alpha,
        lora_dropout=learn.lora_dropout,
        weights=learn.weights,
        tokens_per_batch=learn.tokens_per_batch,
        packing=learn.packing,
        gradient_checkpointing=learn.gradient_checkpointing,
        compile=learn.compile,
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

    wanted = config.engine
    device, dtype = choose_device(wanted.device, wanted.dtype)
    use_tf32(wanted.tf32, device)
    player, name = load_player(
        policy, device=wanted.device, dtype=wanted.dtype, template=config.template
    )
    policies = getattr(player, "policies", None)
    if policies is None:
        return player, name
    run = find_trained(policy)
    own = config.model_copy(update={"policy": run.config.policy if run else policy})
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
    options = config.section(MathConfig).rollouts
    if held_out:
        problems = held_out_problems(config)[: options.held_out]
    else:
        problems = training_problems(config)[: options.questions]
    game = game_of(config)
    inputs = {
        "policy": fingerprint(policy),
        "problems": [(p.question, p.solution) for p in problems],
        "game": config.games.get(GAME),
        "sampling": config.sampling.model_dump(),
        "engine": config.engine.model_dump(),
        "chunk": options.chunk,
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
    options = config.section(MathConfig).preferences
    inputs = {"rollouts": fingerprint(rollouts_file), "preferences": options.model_dump()}

    def work(unfinished: Path) -> Facts:
        return build_preferences(lines, options, unfinished)

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
    from sparring.training.preference import Preference, fit_preferences

    rows = read_preferences(preferences_file)
    _refuse_tested(config, [row["question"] for row in rows])
    pairs = [
        Preference(
            ASK.format(question=row["question"]),
            row["chosen"],
            row["rejected"],
            (row.get("chosen_finish") == "length", row.get("rejected_finish") == "length"),
        )
        for row in rows
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
        fit_preferences(run_config, unfinished, pairs, resume=True, progress=epoch_line("dpo", say))
        lines = list(read_log(unfinished / "metrics.jsonl"))
        keys = ("loss", "accuracy", "margin", "chosen", "rejected")
        curves = {key: [round(line[f"learn/{key}"], 4) for line in lines] for key in keys}
        return {
            "pairs": len(pairs), "epochs": len(lines), **curves, "tokens_per_s": _speed(lines),
        }  # fmt: skip

    return make("dpo", out, inputs, work, remake=remake)


def evaluation(
    config: Config, policy: str, out: Path, *, remake: bool = False, say: Say = quiet
) -> Facts:
    """One policy on the questions that were kept apart; `out` holds a line for each."""
    options, problems = config.section(MathConfig).gsm8k, held_out_problems(config)
    inputs = {
        "policy": fingerprint(policy),
        "problems": [(p.question, p.answer) for p in problems],
        "how": options.model_dump(),
        "engine": config.engine.model_dump(),
        "seed": config.seed,
        **_template(config),
    }

    def work(path: Path) -> Facts:
        with unfinished(path, inputs, remake=True) as lines:
            result, solved = evaluate_policy(
                problems,
                policy,
                samples=options.samples,
                temperature=options.temperature,
                max_tokens=options.max_tokens,
                seed=config.seed,
                player=partial(speaker, config, policy),
                lines=lines,
                progress=lambda m: say(f"eval: {m['iteration']} of {len(problems)} questions"),
            )
            write_details(path, solved)
        return result

    say(f"eval: {policy} on {len(problems)} questions")
    return make("eval", out, inputs, work, remake=remake)


def epoch_line(phase: str, say: Say) -> Callable[[dict[str, Any]], None]:
    def show(metrics: dict[str, Any]) -> None:
        say(
            f"{phase}: epoch {metrics['iteration']}, loss {metrics['learn/loss']:.4f}, "
            f"{metrics['learn/steps']:.0f} steps, {metrics['tokens_per_s']:,.0f} tokens/s"
        )

    return show


def _speed(lines: list[dict[str, Any]]) -> int:
    """Tokens per second, the mean over epochs."""
    return round(sum(line["tokens_per_s"] for line in lines) / len(lines))

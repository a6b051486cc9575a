"""MBPP and HumanEval: a policy's programs, or the reference solutions, judged."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sparring.cli.progress import live
from sparring.core.errors import ConfigError
from sparring.core.types import Sampling
from sparring.engines.load import load_player
from sparring.evaluation.benchmark import REFERENCE, Asked, Attempt, attempt_in_batches
from sparring.evaluation.periodic import write_details
from sparring.judge.python.judge import Judge
from sparring.models.trained import weights_of
from sparring.pipelines.code import evalplus, humaneval, mbpp
from sparring.pipelines.code.attempts import (
    Question,
    attempt_references,
    attempt_stats,
    details,
    rule_by,
)
from sparring.run.lines import cached, unfinished
from sparring.run.rundir import digest
from sparring.tasks.code import Problem

SOURCES = {"mbpp": "google-research-datasets/mbpp", "humaneval": "openai/openai_humaneval"}


def evaluate(asked: Asked) -> int:
    """`sparring eval mbpp`, `humaneval`, `mbpp+` and `humaneval+`. 0: done; 1: some attempts are
    void; bad input is an error."""
    name, policy, ks = asked.benchmark, asked.policy, parse_k(asked.k, asked.samples)
    source, judge = find_data(name, asked.data), _judge(name, asked.sandbox)
    result: dict[str, Any] = {"benchmark": name, "policy": policy, "data": source}
    with ExitStack() as until_written:
        if policy == REFERENCE:
            problems = load(name, source, None, asked.problems)
            attempts = asyncio.run(_within(judge, attempt_references(problems, judge)))
            result |= attempt_stats(attempts, [1])
        else:
            questions = ask(name, source, asked.chat, limit(name, asked.problems))
            problems = [question.problem for question in questions]
            count, heat = asked.samples or max(ks), asked.temperature
            heat = heat if heat is not None else (0.0 if count == 1 else 0.8)
            how = {"chat": asked.chat, "temperature": heat, "seed": asked.seed}
            plan = {**result, **how, "samples": count, "max_tokens": asked.max_tokens}
            plan |= {"problems": len(questions), "weights": weights_of(policy)}
            plan["questions"] = digest([(q.id, q.messages) for q in questions])
            kept = unfinished(asked.details, plan) if asked.details else cached(plan)
            lines = until_written.enter_context(kept)
            bar = live(f"{name} · {policy}", len(questions), quiet=asked.as_json)
            progress = until_written.enter_context(bar)
            engine, speaker = load_player(policy, batch=512)
            work = attempt_in_batches(
                questions, engine, speaker, rule_by(judge, questions), samples=count,
                sampling=Sampling(temperature=heat, max_tokens=asked.max_tokens),
                seed=asked.seed, lines=lines, progress=progress,
            )  # fmt: skip
            attempts = asyncio.run(_within(judge, work))
            result |= {**attempt_stats(attempts, ks), **how}
        if asked.details is not None:
            write_details(asked.details, result, details(problems, attempts))
    print(json.dumps(result) if asked.as_json else as_text(result))
    return 1 if result["void"] else 0


def _judge(name: str, sandbox: str) -> Judge:
    # EvalPlus' inputs keep its own solutions busy for longer, and one needs more than a GiB.
    plus = name in evalplus.FILES
    seconds, memory_mb = (60.0, 4096) if plus else (10.0, 1024)
    return Judge(timeout_s=seconds, memory_mb=memory_mb, sandbox=sandbox)


def parse_k(k: str, samples: int | None) -> list[int]:
    """`1,10` as numbers. pass@k needs at least k samples."""
    try:
        ks = [int(part) for part in k.split(",")]
    except ValueError:
        raise ConfigError(f"--k is {k!r}, and should be numbers such as 1,10") from None
    if min(ks) < 1:
        raise ConfigError(f"--k is {k!r}; pass@k is known for k from 1")
    if samples is not None and samples < max(ks):
        raise ConfigError(f"pass@{max(ks)} needs {max(ks)} samples a problem, not {samples}")
    return sorted(set(ks))


def find_data(name: str, data: str | None) -> str:
    source = data or (os.environ.get("MBPP_DATASET_PATH") if name == "mbpp" else None)
    if source:
        return source
    kept = Path(os.environ.get("SPARRING_DATA") or ".") / evalplus.FILES.get(name, f"{name}.jsonl")
    if os.environ.get("SPARRING_DATA") and kept.exists():
        return str(kept)
    if name in evalplus.FILES:
        raise ConfigError(
            f"where is {name}? Give --data with {evalplus.FILES[name]}, as EvalPlus publishes it, "
            "or with a folder that holds it; SPARRING_DATA may name such a folder for good"
        )
    variable = ", or set MBPP_DATASET_PATH" if name == "mbpp" else ""
    raise ConfigError(
        f"where is {name}? Give --data FILE.jsonl (or a saved dataset folder){variable}; "
        f"--data {SOURCES[name]} fetches it from the hub"
    )


def limit(name: str, problems: int | None) -> int | None:
    variable = os.environ.get("MBPP_EVAL_NUM_QUESTIONS") if name == "mbpp" else None
    if problems is not None or not variable:
        return problems
    if not variable.isdigit() or int(variable) < 1:
        raise ConfigError(f"MBPP_EVAL_NUM_QUESTIONS is {variable!r}, and should be a number from 1")
    return int(variable)


def load(name: str, source: str, split: str | None, most: int | None) -> list[Problem]:
    if name in evalplus.FILES:
        return evalplus.load_evalplus(name, source, most)
    if name == "mbpp":
        return mbpp.load_mbpp(source, split, most)
    return humaneval.load_humaneval(source, most)


def ask(name: str, source: str, chat: bool, most: int | None) -> list[Question]:
    tasks = load(name, source, "test", most)
    if name in evalplus.FILES:
        return evalplus.questions(tasks, name, chat=chat)
    if name == "mbpp":
        return mbpp.questions(tasks, [] if chat else mbpp.load_shots(source))
    return humaneval.questions(tasks, chat=chat)


async def _within(judge: Judge, work: Awaitable[list[list[Attempt]]]) -> list[list[Attempt]]:
    async with judge:
        return await work


def as_text(result: dict[str, Any]) -> str:
    low, high = result["interval_95"]
    lines = [
        f"{result['benchmark']} · {result['policy']} · {result['data']}",
        f"{result['problems_passed']} of {result['problems']} problems passed; "
        f"pass rate {result['pass_rate']:.1%} (95 %: {low:.1%} to {high:.1%})",
        *[f"{key} {value:.1%}" for key, value in result.items() if key.startswith("pass@")],
        "verdicts: " + ", ".join(f"{kind} {n}" for kind, n in result["verdicts"].items()),
    ]
    if result["void"]:
        lines.append(f"{result['void']} attempts are void: they could not be asked or judged")
    return "\n".join(lines)

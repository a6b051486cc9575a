"""MBPP and HumanEval: a policy's programs, or the reference solutions, judged."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from sparring.cli.progress import live
from sparring.core.errors import ConfigError
from sparring.core.types import Sampling
from sparring.engines.load import load_player
from sparring.evaluation.benchmark import REFERENCE, Asked
from sparring.evaluation.periodic import write_details
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox.bwrap import SandboxMissing
from sparring.models.trained import weights_of
from sparring.pipelines.code import evalplus, humaneval, mbpp
from sparring.pipelines.code.attempts import (
    Attempt,
    Question,
    attempt_in_batches,
    attempt_references,
    attempt_stats,
    details,
)
from sparring.run.config import nearest
from sparring.run.lines import cached, unfinished
from sparring.run.rundir import digest
from sparring.tasks.code import Problem

BENCHMARKS = ("mbpp", "humaneval", *evalplus.FILES)
SOURCES = {"mbpp": "google-research-datasets/mbpp", "humaneval": "openai/openai_humaneval"}


def evaluate(asked: Asked) -> int:
    """`sparring eval mbpp`, `humaneval`, `mbpp+` and `humaneval+`."""
    return eval_benchmark(
        asked.benchmark, asked.policy, asked.data, asked.k, asked.as_json, chat=asked.chat,
        samples=asked.samples, problems=asked.problems, temperature=asked.temperature,
        max_tokens=asked.max_tokens, seed=asked.seed, sandbox=asked.sandbox,
        details_to=asked.details,
    )  # fmt: skip


def eval_benchmark(
    name: str,
    policy: str,
    data: str | Path | None = None,
    k: str | Sequence[int] = "1",
    as_json: bool = False,
    *,
    chat: bool = False,
    samples: int | None = None,
    problems: int | None = None,
    temperature: float | None = None,
    max_tokens: int = 512,
    timeout_s: float | None = None,
    seed: int = 0,
    batch: int = 512,
    device: str = "auto",
    dtype: str = "auto",
    sandbox: str = "bubblewrap",
    details_to: Path | None = None,
    out: TextIO | None = None,
) -> int:
    """Print one evaluation. 0: done; 1: some attempts are void; 2: nothing could be evaluated."""
    try:
        ks = parse_k(k, samples)
        source = find_data(name, str(data) if data else None)
        judge = _judge(name, timeout_s, sandbox)
        known = {"benchmark": name, "policy": policy, "data": source}
        if policy == REFERENCE:
            tasks = load(name, source, None, problems)
            judged = asyncio.run(_references(tasks, judge))
            result = _record(known, {}, tasks, judged, [1], details_to)
        else:
            asked = ask(name, source, chat, limit(name, problems))
            tasks = [question.problem for question in asked]
            count = samples or max(ks)
            heat = temperature if temperature is not None else (0.0 if count == 1 else 0.8)
            how = {"chat": chat, "temperature": heat, "seed": seed}
            plan = {**known, **how, "samples": count, "max_tokens": max_tokens}
            plan |= {"problems": len(asked), "weights": weights_of(policy)}
            plan["questions"] = digest([(q.problem.id, q.messages) for q in asked])
            with (
                unfinished(details_to, plan) if details_to else cached(plan) as lines,
                live(f"{name} · {policy}", len(asked), quiet=as_json) as progress,
            ):
                engine, speaker = load_player(policy, device=device, dtype=dtype, batch=batch)
                sampling = Sampling(temperature=heat, max_tokens=max_tokens)
                work = attempt_in_batches(
                    asked, engine, speaker, judge, samples=count, sampling=sampling, seed=seed,
                    lines=lines, progress=progress,
                )  # fmt: skip
                result = _record(known, how, tasks, asyncio.run(work), ks, details_to)
    except (ConfigError, SandboxMissing) as error:
        print(f"cannot evaluate: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result) if as_json else as_text(result), file=out or sys.stdout)
    return 1 if result["void"] else 0


def _judge(name: str, timeout_s: float | None, sandbox: str) -> Judge:
    # EvalPlus' inputs keep its own solutions busy for longer, and one needs more than a GiB.
    plus = name in evalplus.FILES
    seconds, memory_mb = (60.0, 4096) if plus else (10.0, 1024)
    return Judge(timeout_s=timeout_s or seconds, memory_mb=memory_mb, sandbox=sandbox)


def _record(
    known: dict[str, Any],
    how: dict[str, Any],
    problems: Sequence[Problem],
    attempts: Sequence[Sequence[Attempt]],
    ks: Sequence[int],
    details_to: Path | None,
) -> dict[str, Any]:
    result = {**known, **attempt_stats(attempts, ks), **how}
    if details_to is not None:
        write_details(details_to, result, details(problems, attempts))
    return result


def parse_k(k: str | Sequence[int], samples: int | None) -> list[int]:
    """`1,10` as numbers. pass@k needs at least k samples."""
    try:
        ks = [int(part) for part in k.split(",")] if isinstance(k, str) else list(k)
    except ValueError:
        raise ConfigError(f"--k is {k!r}, and should be numbers such as 1,10") from None
    if not ks or min(ks) < 1:
        raise ConfigError(f"--k is {k!r}; pass@k is known for k from 1")
    if samples is not None and samples < max(ks):
        raise ConfigError(f"pass@{max(ks)} needs {max(ks)} samples a problem, not {samples}")
    return sorted(set(ks))


def find_data(name: str, data: str | None) -> str:
    if name not in BENCHMARKS:
        raise ConfigError(f"there is no benchmark {name!r}; {nearest(name, BENCHMARKS)}")
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


async def _references(tasks: Sequence[Problem], judge: Judge) -> list[list[Attempt]]:
    async with judge:
        return await attempt_references(tasks, judge)


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

"""GSM8K and GSM8K Platinum: greedy by default, or the majority of several attempts."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparring.cli.progress import live
from sparring.core.errors import ConfigError
from sparring.core.types import Sampling, Turn, Verdict
from sparring.evaluation.benchmark import (
    REFERENCE,
    Asked,
    Attempt,
    Question,
    attempt_in_batches,
)
from sparring.evaluation.significance import wilson
from sparring.judge.math import final_answer, grade
from sparring.models.trained import weights_of
from sparring.pipelines.coherent_math.questions import ASK, WordProblem, load_word_problems
from sparring.run.lines import cached, dump, unfinished
from sparring.run.rundir import digest, write_whole

SOURCES = {"gsm8k": "openai/gsm8k:main", "gsm8k-platinum": "madrylab/gsm8k-platinum"}


@dataclass(frozen=True, slots=True)
class Solved:
    """A question with all its attempts; the verdict is that of the answer most of them gave."""

    problem: WordProblem
    attempts: Sequence[Attempt]

    @property
    def chosen(self) -> Attempt:
        return self.attempts[majority([s.text for s in self.attempts])]

    def as_dict(self) -> dict[str, Any]:
        """One line of the details."""
        chosen, answer = self.chosen, final_answer(self.chosen.text)
        line = {
            "id": self.problem.id,
            "question": self.problem.question,
            "reference": self.problem.answer,
            "prediction": answer.text,
            "correct": chosen.verdict.passed,
            "verdict": chosen.verdict.status,
            "kind": chosen.verdict.kind,
            "read_from": answer.how,
            "tokens": chosen.tokens,
            "finish": chosen.finish,
            "text": chosen.text,
        }
        if len(self.attempts) > 1:
            line["votes"] = dict(Counter(final_answer(s.text).key or "" for s in self.attempts))
            line["samples_correct"] = sum(s.verdict.passed for s in self.attempts)
        return line


def majority(texts: Sequence[str]) -> int:
    """Which text speaks for the answer that most give; the earliest, where several tie. Who gives
    no answer has no vote."""
    keys = [final_answer(text).key for text in texts]
    votes = Counter(key for key in keys if key is not None)
    return keys.index(votes.most_common(1)[0][0]) if votes else 0


def solve_by_reference(problems: Sequence[WordProblem]) -> list[Solved]:
    """The file's own solutions, graded as if a policy had written them."""
    return [Solved(p, [Attempt(p.solution, grade(p.solution, p.answer))]) for p in problems]


def evaluate_policy(
    problems: Sequence[WordProblem],
    policy: str,
    *,
    samples: int = 1,
    temperature: float | None = None,
    max_tokens: int = 256,
    seed: int = 0,
    player: Callable[[], tuple[Any, str]] | None = None,
    lines: Path | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[dict[str, Any], list[Solved]]:
    """Load a policy (`player` loads it otherwise), ask it everything, batch by batch, and count."""
    if policy == REFERENCE:
        solved = solve_by_reference(problems)
        return solve_stats(solved), solved
    from sparring.engines.load import load_player

    engine, speaker = player() if player else load_player(policy, batch=2048)
    heat = temperature if temperature is not None else (0.0 if samples == 1 else 0.7)
    how = Sampling(temperature=heat, max_tokens=max_tokens)
    began, seen = time.perf_counter(), 0  # tokens, in this life

    async def rule(number: int, turn: Turn) -> tuple[str, Verdict]:
        nonlocal seen
        seen += len(turn.token_ids)
        return "", grade(turn.text, problems[number].answer)

    asked = [{"role": "user", "content": ASK.format(question=p.question)} for p in problems]
    work = attempt_in_batches(
        [Question(p.id, [message]) for p, message in zip(problems, asked, strict=True)],
        engine, speaker, rule, samples=samples, sampling=how, seed=seed, label="gsm8k",
        lines=lines, progress=progress,
    )  # fmt: skip
    solved = list(map(Solved, problems, asyncio.run(work)))
    spent = time.perf_counter() - began
    stats = {**solve_stats(solved), "temperature": heat, "max_tokens": max_tokens, "seed": seed}
    return {**stats, "seconds": round(spent, 2), "tokens_per_s": round(seen / spent)}, solved


def solve_stats(solved: Sequence[Solved]) -> dict[str, Any]:
    """The numbers of an evaluation. With several samples the pass rate is the majority's, and the
    mean over samples stands beside it."""
    verdicts = [one.chosen.verdict for one in solved]
    passed = sum(v.passed for v in verdicts)
    low, high = wilson(passed, len(solved))
    samples = len(solved[0].attempts)
    each = [s for one in solved for s in one.attempts]
    stats: dict[str, Any] = {
        "problems": len(solved),
        "problems_passed": passed,
        "pass_rate": passed / len(solved),
        "interval_95": [round(low, 4), round(high, 4)],
        "samples": samples,
    }
    if samples > 1:
        stats |= {
            f"maj@{samples}": passed / len(solved),
            "mean_of_samples": sum(s.verdict.passed for s in each) / len(each),
        }
    marked = [one for one in solved if final_answer(one.chosen.text).how != "last number"]
    return {
        **stats,
        "pass_rate_marked": sum(one.chosen.verdict.passed for one in marked) / len(solved),
        "tokens": round(sum(s.tokens for s in each) / len(each), 1),
        "cut_off": sum(s.finish == "length" for s in each),
        "void": sum(s.verdict.status == "void" for s in each),
        "verdicts": dict(Counter(v.kind for v in verdicts).most_common()),
    }


def write_details(path: Path, solved: Sequence[Solved]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(f"{dump(one.as_dict())}\n" for one in solved).encode())


def evaluate(asked: Asked) -> int:
    """`sparring eval gsm8k`. 0: done; 1: some attempts are void; bad input is an error."""
    name, policy = asked.benchmark, asked.policy
    if asked.k != "1":
        raise ConfigError(f"{name} is not scored by pass@k; --samples N takes a majority of N")
    source = asked.data or SOURCES[name]
    tasks = load_word_problems(source, None if policy == REFERENCE else "test", asked.problems)
    how: dict[str, Any] = {"samples": asked.samples or 1, "temperature": asked.temperature}
    how |= {"max_tokens": asked.max_tokens, "seed": asked.seed}
    known = {"benchmark": name, "policy": policy, "data": source}
    plan = {**known, **how, "problems": len(tasks), "weights": weights_of(policy)}
    plan["asked"] = digest([repr(task) for task in tasks])
    with (
        unfinished(asked.details, plan) if asked.details else cached(plan) as lines,
        live(f"{name} · {policy}", len(tasks), quiet=asked.as_json) as progress,
    ):
        result, solved = evaluate_policy(tasks, policy, lines=lines, progress=progress, **how)
        if asked.details is not None:
            write_details(asked.details, solved)
    result = {**known, **result}
    print(json.dumps(result) if asked.as_json else as_text(result))
    return 1 if result["void"] else 0


def as_text(result: dict[str, Any]) -> str:
    low, high = result["interval_95"]
    lines = [
        f"{result['benchmark']} · {result['policy']} · {result['data']}",
        f"{result['problems_passed']} of {result['problems']} right; pass rate "
        f"{result['pass_rate']:.2%} (95 %: {low:.1%} to {high:.1%})",
        f"with the answer marked as such: {result['pass_rate_marked']:.2%}",
        *[f"{key} {value:.2%}" for key, value in result.items() if key.startswith("maj@")],
        "verdicts: " + ", ".join(f"{kind} {n}" for kind, n in result["verdicts"].items()),
    ]
    if "seconds" in result:
        lines.append(f"{result['seconds']} s, {result['tokens_per_s']:,} tokens/s")
    if result["void"]:
        lines.append(f"{result['void']} attempts are void: they could not be asked or judged")
    return "\n".join(lines)

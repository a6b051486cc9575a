"""Rollouts: every question through all arms, one line each, in order, by one writer."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Sampling, Task, derive
from sparring.pipelines.coherent_math.config import MathConfig
from sparring.pipelines.coherent_math.game import CoherentMath
from sparring.pipelines.coherent_math.questions import WordProblem
from sparring.run.config import Config
from sparring.run.lines import in_batches
from sparring.run.rundir import read_lines

Progress = Callable[[str], None]
SCORES = ("s_end", "s_path", "s_cf", "s_wm", "stability", "correct")


def collect_rollouts(
    config: Config,
    game: CoherentMath,
    problems: Sequence[WordProblem],
    engine: Any,
    policy: str,
    out: Path,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Ask in chunks and write each one down at once. A file that breaks off is gone on with from
    its last whole chunk, so that the batches, and with them the numbers, are the same again."""
    tokens = 0

    async def ask(numbers: range) -> list[dict[str, Any]]:
        nonlocal tokens
        jobs = [_job(config, game, policy, i, problems[i]) for i in numbers]
        episodes = await collect(
            jobs,
            engine.act,
            concurrency=len(jobs),
            sampling=Sampling(**config.sampling.model_dump()),
            outside=engine.outside,
        )
        tokens += sum(len(turn.token_ids) for e in episodes for turn in e.turns)
        return [as_line(e, problems[i]) for i, e in zip(numbers, episodes, strict=True)]

    def report(lines: list[dict[str, Any]]) -> None:
        if progress is not None:
            progress(f"rollouts: {len(lines)} of {len(problems)} questions")

    ids = [problem.id for problem in problems]
    chunk = config.section(MathConfig).rollouts.chunk
    began = time.perf_counter()
    asyncio.run(in_batches(out, ids, ask, batch=chunk, what="question", progress=report))
    spent = time.perf_counter() - began
    return {
        **rollout_stats(list(read_lines(out))),
        "tokens_per_s": round(tokens / max(spent, 1e-9)),
    }


def _job(config: Config, game: CoherentMath, policy: str, i: int, problem: WordProblem) -> Job:
    data = {"question": problem.question, "answer": problem.solution}
    return Job(
        id=problem.id,
        name="coherent_math",
        game=game,
        task=Task(problem.id, "coherent_math", data),
        seed=derive(config.seed, "rollouts", i),
        seating=dict.fromkeys(game.seats, policy),
    )


def as_line(episode: Episode, problem: WordProblem) -> dict[str, Any]:
    """A question with its scores and trajectories; or void, with the reason."""
    return {
        "id": problem.id,
        "question": problem.question,
        "reference": problem.answer,
        "void": episode.void,
        "scores": episode.facts.get("scores", {}),
        "trajectories": episode.facts.get("trajectories", []),
    }


def read_rollouts(path: Path) -> list[dict[str, Any]]:
    """The questions of a rollouts file that are not void."""
    if not path.is_file():
        raise ConfigError(f"there is no file {str(path)!r} of rollouts")
    try:
        texts = path.read_text(encoding="utf-8").split("\n")
        lines = [json.loads(text) for text in texts if text.strip()]
        trajectories = [line["trajectories"] for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is no file of rollouts: {type(error).__name__} {error}"
        ) from None
    if not lines:
        raise ConfigError(f"{path} is empty: there are no rollouts to prefer from")
    if all(len(arms) < 2 for arms in trajectories):
        raise ConfigError(f"{path} has one arm only, and coherence is between arms")
    return [line for line in lines if not line.get("void")]


def rollout_stats(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over questions, and each arm's share of right answers."""
    fair = [line for line in lines if not line.get("void")]
    stats: dict[str, Any] = {"questions": len(lines), "void": len(lines) - len(fair)}
    for name in SCORES:
        values = [v for line in fair if (v := line["scores"].get(name)) is not None]
        if values:
            stats[name] = round(fmean(values), 4)
    by_arm: dict[str, list[float]] = {}
    for line in fair:
        for t in line["trajectories"]:
            by_arm.setdefault(t["arm"], []).append(float(t["correct"]))
    tokens = [t["num_tokens"] for line in fair for t in line["trajectories"]]
    return {
        **stats,
        "trajectories": len(tokens),
        "tokens": round(fmean(tokens), 1) if tokens else 0,
        "arms": {arm: round(fmean(values), 4) for arm, values in by_arm.items()},
    }

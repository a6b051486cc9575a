"""MBPP: three shots in the published form, or none in the chat's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Sampling
from sparring.evaluation.benchmark import attempt_all
from sparring.evaluation.periodic import Evaluation, due, write_details
from sparring.judge.python.judge import Judge
from sparring.pipelines.code.attempts import (
    Question,
    attempt_stats,
    details,
    need_tests,
    rule_by,
)
from sparring.pipelines.code.config import MbppConfig
from sparring.run.config import Config
from sparring.tasks import load_tasks
from sparring.tasks.code import Problem, extract_code, problem_of

if TYPE_CHECKING:
    from sparring.engines.engine import OwnEngine

SHOTS = ("2", "3", "4")  # the solved examples in the prompt, as in all published results
BEGIN, DONE = "[BEGIN]", "[DONE]"
ASK = (
    "You are an expert Python programmer, and here is your task: {prompt} "
    "Your code should pass these tests:\n\n{tests}\n"
)
CHAT = "\nAnswer with the code alone, in one ```python block."


def load_mbpp(source: str, split: str | None = "test", limit: int | None = None) -> list[Problem]:
    """MBPP's problems, or those of any file in its form or ours."""
    folder = Path(source).expanduser() / "mbpp.jsonl"
    tasks = load_tasks(str(folder) if folder.is_file() else source, split, limit)
    problems = [problem_of(task) for task in tasks]
    need_tests(problems, source)
    return problems


def load_shots(source: str) -> list[Problem]:
    """Tasks 2, 3 and 4; of a set that is not MBPP, the first three of its split `prompt`."""
    try:
        examples = load_mbpp(source, "prompt")
    except ConfigError:
        examples = []
    published = any(problem.id.isdigit() for problem in examples)
    shots = [p for p in examples if p.id in SHOTS] if published else examples[:3]
    if len(shots) != 3:
        raise ConfigError(
            f"three shots need the tasks 2, 3 and 4, and {source} does not have them; give the "
            "whole of MBPP, or ask without shots (chat)"
        )
    return shots


def questions(problems: Sequence[Problem], shots: Sequence[Problem]) -> list[Question]:
    """In the published form, to be gone on with as raw text; without shots, as chat."""
    examples = "".join(f"{_ask(shot)}{BEGIN}\n{shot.code.strip()}\n{DONE}\n\n" for shot in shots)
    if not shots:
        return [Question.chat(p, _ask(p) + CHAT, extract_code) for p in problems]
    return [Question.raw(p, f"{examples}{_ask(p)}{BEGIN}\n", str, (DONE,)) for p in problems]


def _ask(problem: Problem) -> str:
    return ASK.format(prompt=problem.prompt, tests="\n".join(problem.tests))


def prepare(config: Config) -> bool:
    """Find the problems now, not after hours of training."""
    mbpp = config.section(MbppConfig)
    if mbpp.enabled:
        load_mbpp(mbpp.data, "test", mbpp.problems)
        if not mbpp.chat:
            load_shots(mbpp.data)
    return mbpp.enabled


async def evaluate_run(
    config: Config, engine: OwnEngine, run: Path, iteration: int
) -> dict[str, float]:
    """The metrics of one evaluation; its details go into a file of the run."""
    mbpp = config.section(MbppConfig)
    if not due(mbpp.every, config, iteration):
        return {}
    problems = load_mbpp(mbpp.data, "test", mbpp.problems)
    asked = questions(problems, [] if mbpp.chat else load_shots(mbpp.data))
    async with Judge(timeout_s=mbpp.timeout_s, sandbox=config.sandbox) as judge:
        attempts = await attempt_all(
            asked,
            engine.act,
            author(config),
            rule_by(judge, asked),
            samples=max(mbpp.k),
            sampling=Sampling(temperature=mbpp.temperature, max_tokens=mbpp.max_tokens),
            seed=config.seed,
        )
    stats = attempt_stats(attempts, mbpp.k)
    write_details(
        run / "evaluations" / f"mbpp_{iteration:06d}.json",
        {"iteration": iteration, "data": mbpp.data, "chat": mbpp.chat, **stats},
        details(problems, attempts),
    )
    return {f"mbpp_eval/{k}": v for k, v in stats.items() if isinstance(v, int | float)}


evaluation = Evaluation(prepare, evaluate_run, runs_code=True)


def author(config: Config) -> str:
    """The policy that writes programs: the first seat's."""
    from sparring.run.games import game_class

    return config.players.get(game_class(next(iter(config.games))).seats[0], MAIN)

"""Code execution: a program is written, run in the jail, and paid by how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparring.core.answers import check_style
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Task, Verdict
from sparring.judge.python.judge import Judge
from sparring.judge.python.programs import make_judge, not_void, ruling, shipped_task
from sparring.run.games import Seconds, Tokens
from sparring.tasks.code import Problem, extract_code, is_empty, problem_of

OUTPUT, SILENT, SYNTAX, BROKEN = 1.0, 0.5, -0.5, -1.0
REWARDS = {"output": OUTPUT, "no output": SILENT, "syntax": SYNTAX}  # all else: BROKEN


@dataclass
class CodeExecution(Game):
    """+1 for a program that runs and prints, +0.5 for one that only runs, -0.5 for one that is no
    Python, -1 for one that fails or does not end."""

    seats: ClassVar[tuple[str, ...]] = ("author",)
    problems: ClassVar[str] = "python"
    runs_code: ClassVar[bool] = True

    style: str = "short"
    timeout_s: Seconds = 5.0
    max_tokens: Tokens = None  # None: as the recipe's sampling says

    def __post_init__(self) -> None:
        check_style(self.style)

    def make_judge(self, sandbox: str) -> Judge:
        return make_judge(sandbox, self.timeout_s)

    def check(self, task: Task) -> None:
        problem_of(task)

    def task(self, seed: int) -> Task:
        return shipped_task(self.problems, seed)

    async def play(self, task: Task, table: Table) -> Outcome:
        turn = await table["author"].act(self.prompt(problem_of(task)), max_tokens=self.max_tokens)
        code = extract_code(turn.text)
        verdict = not_void(await table.judge(self.execute(code)))
        reward = REWARDS.get(verdict.kind, BROKEN)
        return Outcome(author=reward, facts={"end": verdict.kind, "code": code})

    async def execute(self, code: str) -> Verdict:
        if is_empty(code):  # else an empty reply would be paid for running without output
            return Verdict("fail", "syntax", "there is no program")
        return ruling(await self.judge.run(code))

    def prompt(self, problem: Problem) -> str:
        if self.style == "terse":
            return problem.prompt
        example = f"\nFor example, this holds: {problem.tests[0].strip()}" if problem.tests else ""
        think = "Think first, then answer" if self.style == "reason" else "Answer only"
        return (
            f"{problem.prompt}{example}\nThen call it on a few examples and print the results. "
            f"{think} with the whole program in one ```python block."
        )

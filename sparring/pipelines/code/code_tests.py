"""Code that is tested: a program is written, and paid by the share of its problem's tests that it
passes."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import Field

from sparring.core.game import Outcome
from sparring.core.table import Table
from sparring.core.types import Episode, Task, Verdict, View
from sparring.judge.python.programs import not_void
from sparring.pipelines.code.attempts import need_tests
from sparring.pipelines.code.execution import CodeExecution
from sparring.pipelines.code.mbpp import ASK, CHAT
from sparring.run.games import Count
from sparring.tasks.code import Problem, extract_code, formatted, is_empty, one_return, problem_of

MEASURES = {
    "tests_passed": ("Tests passed", "Of all tests of a program's problem.", True),
    "all_passed": ("Programs that pass every test", "", True),
    "successful_predictions_count": ("Right predictions", "Of a program's output.", False),
}


@dataclass
class CodeTests(CodeExecution):
    """The reward is the share of a problem's tests that the program passes. `scripted` writes the
    reference solution."""

    tests_shown: Count = 1  # in the prompt: a program that only knows these does not pass the rest
    # The part of the reward that only passing every test earns: what returns `True` passes some.
    whole: Annotated[float, Field(ge=0, le=1)] = 0.0
    # Whether as many tests count as the best constant answer passes. If they do, and a test is
    # shown, to return what it expects is learned first, and programs are forgotten for it.
    constants: bool = True

    def check(self, task: Task) -> None:
        need_tests([problem_of(task)], f"task {task.id}")

    def unusable(self, task: Task) -> str:
        if self.style != "terse" or one_return(problem_of(task).code):
            return ""
        return "longer than one line: terse authors write what a function returns"

    async def play(self, task: Task, table: Table) -> Outcome:
        problem = problem_of(task)
        turn = await table["author"].act(
            self.prompt(problem),
            view=View(problem.id, (self.solution(problem),)),
            max_tokens=self.max_tokens,
        )
        code = self.program(turn.text, problem)
        verdicts = await table.judge(self.run_tests(problem, code))
        passed = fmean(not_void(verdict).passed for verdict in verdicts)
        end = next((v.kind for v in verdicts if not v.passed), "passed")
        share = passed if self.constants else beyond_constants(passed, problem.tests)
        reward = (1 - self.whole) * share + self.whole * (passed == 1)
        return Outcome(author=reward, facts={"end": end, "code": code, "passed": passed})

    async def run_tests(self, problem: Problem, code: str) -> list[Verdict]:
        """A verdict on each test; one by one only where not all of them pass together."""
        if is_empty(code):
            return [Verdict("fail", "syntax", "there is no program")] * len(problem.tests)

        async def rule(tests: Sequence[str]) -> Verdict:
            return await self.judge.tests(code, tests, setup=problem.setup, entry=problem.entry)

        together = await rule(problem.tests)
        if together.passed or together.kind == "syntax" or len(problem.tests) == 1:
            return [together] * len(problem.tests)
        return list(await asyncio.gather(*(rule((test,)) for test in problem.tests)))

    def prompt(self, problem: Problem) -> str:
        """As MBPP is asked in the chat's form, with some of the tests."""
        if self.style == "terse":
            return problem.prompt
        shown = "\n".join(problem.tests[: self.tests_shown])
        think = "\nThink first." if self.style == "reason" else ""
        return ASK.format(prompt=problem.prompt, tests=shown) + think + CHAT

    def program(self, text: str, problem: Problem) -> str:
        """Terse authors, who know no Python yet, write only what the function returns."""
        one_line = one_return(problem.code)
        if self.style != "terse" or one_line is None:
            return extract_code(text)
        return f"{one_line[0]}\n    return {text}\n" if text else ""

    def solution(self, problem: Problem) -> str:
        """The reference solution, in the style that is played."""
        one_line = one_return(problem.code)
        if self.style == "terse" and one_line is not None:
            return one_line[1]
        return f"```python\n{formatted(problem.code)}\n```"

    def scripted(self, view: View, seed: int) -> str:
        return view.actions[0]

    def summary(self, episodes: Sequence[Episode]) -> dict[str, float]:
        shares = [episode.facts["passed"] for episode in episodes]
        if not shares:
            return {}
        return {
            "code_tests/tests_passed": fmean(shares),
            "code_tests/all_passed": fmean(share == 1 for share in shares),
        }

    def score(self, episodes: Sequence[Episode]) -> float:
        return fmean(episode.facts["passed"] for episode in episodes)


def beyond_constants(passed: float, tests: Sequence[str]) -> float:
    """The share of tests passed, of those that are left when the best constant answer has passed
    its own; the plain share where it passes them all."""
    constant = max(Counter(map(_expected, tests)).values()) / len(tests)
    return passed if constant == 1 else max(0.0, passed - constant) / (1 - constant)


def _expected(test: str) -> str:
    """What a test wants to be returned; of one in no usual form, the test itself."""
    try:
        statement = ast.parse(test).body[-1]
    except (SyntaxError, IndexError):
        return test
    match statement:
        case ast.Assert(test=ast.Compare(ops=[ast.Eq()], comparators=[expected])):
            return ast.unparse(expected)
        case ast.Assert(test=ast.UnaryOp(op=ast.Not())):
            return "False"
        case ast.Assert(test=ast.Call()):
            return "True"
    return test

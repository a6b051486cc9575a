"""Code prediction: an author writes a program, and wins if the other cannot tell what it prints."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from sparring.core.answers import check_style
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Task, Verdict, View
from sparring.judge.python.judge import Judge
from sparring.judge.python.programs import (
    MODULES,
    forbidden,
    make_judge,
    not_void,
    ruling,
    shipped_task,
)
from sparring.run.games import Count, Seconds, Tokens
from sparring.tasks.code import Problem, extract_code, formatted, is_empty, problem_of

_BLOCK = re.compile(r"^[ \t]*```[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
# From the first fence of a text to its last one.
_OUTER = re.compile(r"^[ \t]*```[^\n]*\n(.*)^[ \t]*```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^[ \t]*```", re.MULTILINE)
# What a predictor cannot write, or not without ending its turn: its own control tokens.
_CONTROL = re.compile(
    r"<[|｜]|[|｜]>|\[/?INST\]"
    r"|</?(?:think|s|[be]os|pad|unk|mask|tool_call|(?:start|end)_of_\w+)>"
)
_HASH_SEEDS = 4  # warm jails to choose the second run's from


@dataclass
class CodePrediction(Game):
    """The program must run, end, print, be short and do the same every time, or its author loses.
    The predictor wins by saying exactly what it prints."""

    seats: ClassVar[tuple[str, ...]] = ("author", "predictor")
    problems: ClassVar[str] = "python"
    runs_code: ClassVar[bool] = True

    style: str = "short"
    timeout_s: Seconds = 3.0
    max_chars: Count = 2000  # of the program
    max_output: Count = 200  # characters printed; more would be a test of patience
    modules: tuple[str, ...] = MODULES
    author_tokens: Tokens = None  # None: as the recipe's sampling says
    predictor_tokens: Tokens = None

    def __post_init__(self) -> None:
        check_style(self.style)

    def make_judge(self, sandbox: str) -> Judge:
        return make_judge(sandbox, self.timeout_s)

    def check(self, task: Task) -> None:
        problem_of(task)

    def task(self, seed: int) -> Task:
        return shipped_task(self.problems, seed)

    async def play(self, task: Task, table: Table) -> Outcome:
        written = await table["author"].act(
            self.author_prompt(problem_of(task)),
            view=View(task.id, (self.example(problem_of(task)),)),
            max_tokens=self.author_tokens,
        )
        code = self.program(written.text)
        verdict, printed = await table.judge(self.examine(code, table.seed))
        facts: dict[str, Any] = {"code": code, "output": printed, "predicted": None}
        if not not_void(verdict).passed:
            facts |= {"end": verdict.kind, "reason": verdict.detail}
            return Outcome(author=-1, predictor=1, facts=facts)
        guess = await table["predictor"].act(
            self.predictor_prompt(code),
            view=View(code, (self.answer(printed),)),
            max_tokens=self.predictor_tokens,
        )
        right = normal(predicted_text(guess.text, printed)) == normal(printed)
        kind = "predicted" if right else "not predicted"
        table.verdicts.append(Verdict("pass" if right else "fail", kind))
        facts |= {"end": kind, "predicted": right}
        return Outcome(author=-1 if right else 1, predictor=1 if right else -1, facts=facts)

    def program(self, text: str) -> str:
        """Terse authors, who know no Python yet, write only what is to be printed."""
        return f"print({text.strip()})" if self.style == "terse" else extract_code(text)

    async def examine(self, code: str, seed: int) -> tuple[Verdict, str]:
        """Whether a program keeps the rules, and what it prints."""
        refusal = self.refuse(code)
        if refusal is not None:
            return refusal, ""
        done = await self.judge.run(code)
        verdict = ruling(done)
        if not verdict.passed:
            return verdict, ""
        if verdict.kind == "no output":
            return Verdict("fail", "no output", "it prints nothing", done.seconds), ""
        if len(done.stdout) > self.max_output:
            why = f"it prints {len(done.stdout)} characters; the most is {self.max_output}"
            return Verdict("fail", "too much output", why, done.seconds), ""
        if not _can_be_written(done.stdout):
            why = "it prints control characters or a model's control tokens: nobody could say them"
            return Verdict("fail", "no plain text", why, done.seconds), ""
        # Another jail, another hash seed, another layout of memory.
        again = await self.judge.run(code, hash_seed=1 + seed % _HASH_SEEDS)
        if again.status == "void":
            return ruling(again), ""
        if (again.status, again.stdout) != (done.status, done.stdout):
            return Verdict("fail", "not deterministic", "two runs differ", again.seconds), ""
        return verdict, done.stdout

    def refuse(self, code: str) -> Verdict | None:
        """Problems that show without running it."""
        if is_empty(code):
            return Verdict("fail", "syntax", "there is no program")
        if len(code) > self.max_chars:
            why = f"it has {len(code)} characters; the most is {self.max_chars}"
            return Verdict("fail", "too long", why)
        reached = forbidden(code, self.modules)
        return Verdict("fail", "not allowed", reached) if reached else None

    def example(self, problem: Problem) -> str:
        """The reference solution, and what its first test calls printed; nothing where that is not
        one call, and for terse authors, who define nothing."""
        test = re.match(r"assert (\w+\(.*\)) *==", problem.tests[0]) if problem.tests else None
        if test is None or self.style == "terse":
            return ""
        return f"```python\n{formatted(problem.code)}\nprint({test[1]})\n```"

    def answer(self, printed: str) -> str:
        text = printed.strip("\r\n")
        return text if self.style == "terse" else f"```\n{text}\n```"

    def scripted(self, view: View, seed: int) -> str:
        """An author who prints what a test of the problem asks for, or if terse a sum, a difference
        or a product; a predictor who is right."""
        if self.style != "terse" or view.actions[0]:
            return view.actions[0]
        rng = random.Random(seed)
        return f"{rng.randrange(10)}{rng.choice('+-*')}{rng.randrange(10)}"

    def author_prompt(self, problem: Problem) -> str:
        if self.style == "terse":
            return problem.prompt
        think = "Think first, then answer" if self.style == "reason" else "Answer only"
        return (
            f"{problem.prompt}\nWrite a short Python program on this theme that calls it and "
            "prints a result. Another player reads your program and says what it prints; you win "
            "if that is wrong. You lose if the program fails, does not end, prints nothing, more "
            f"than {self.max_output} characters or control characters, is longer than "
            f"{self.max_chars} characters, "
            "prints something else when run again, reads input or files, or imports anything but "
            f"{', '.join(self.modules)}.\n{think} with the whole program in one ```python block."
        )

    def predictor_prompt(self, code: str) -> str:
        if self.style == "terse":
            return code
        think = "Work it out step by step, then answer" if self.style == "reason" else "Answer only"
        return (
            f"What does this Python program print?\n```python\n{code.strip()}\n```\n"
            f"{think} with exactly what it prints, in one ``` block."
        )


def predicted_text(text: str, printed: str = "") -> str:
    """The prediction in a reply: its last block, closed or not, else all of it. Where the output
    has fences of its own, all between the reply's first fence and its last: an author who prints
    them would otherwise never be predicted."""
    if _FENCED.search(printed) and (whole := _OUTER.search(text)):
        return whole[1]
    blocks = _BLOCK.findall(text)
    return str(blocks[-1]) if blocks else text


def _can_be_written(output: str) -> bool:
    printable = output.replace("\n", " ").replace("\t", " ").isprintable()
    return printable and not _CONTROL.search(output)


def normal(output: str) -> str:
    """Output as it is compared: spaces at the ends of lines, and blank lines around, are free."""
    lines = [line.rstrip() for line in output.strip("\r\n").splitlines()]
    return "\n".join(lines).strip("\n")

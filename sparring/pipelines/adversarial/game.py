"""Adversarial tests: a generator reasons in stages and writes a program; a discriminator, who has
seen only the problem, writes the tests that should break it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from sparring.core.answers import check_style
from sparring.core.game import Game, Outcome
from sparring.core.table import Player, Table
from sparring.core.types import Episode, Task, Verdict, View
from sparring.judge.python.programs import make_judge, shipped_task
from sparring.pipelines.adversarial.mutants import mutants
from sparring.pipelines.adversarial.problems import (
    count_statements,
    definitions,
    full_problem,
    function_name,
    need_references,
)
from sparring.pipelines.adversarial.stages import Stage, make_stages, reference_reply, visible
from sparring.pipelines.adversarial.written_tests import (
    VALID,
    Examiner,
    Ruled,
    read_inputs,
    read_tests,
)
from sparring.run.games import Count, Seconds, Tokens
from sparring.tasks.code import (
    Problem,
    extract_code,
    formatted,
    is_empty,
    one_return,
    problem_of,
)

GENERATOR, DISCRIMINATOR = "generator", "discriminator"
_REWARD, _VALIDITY = 0.7, 0.3  # of the score that picks the best checkpoint
_SHORT = 60  # characters of a call that is shown as an example


@dataclass(frozen=True, slots=True)
class Score:
    """What both players earn, and of what it is made."""

    generator: float
    discriminator: float
    pass_rate: float
    validity: float


def score(baseline: Sequence[bool], tests: Sequence[Ruled], passed: Sequence[bool]) -> Score:
    """`passed`: how the program did on the valid tests, in order.

    The generator earns its pass rate over baseline and valid tests together. The discriminator
    earns (1 − that rate) × the share of its tests that are valid: without a valid test, nothing.
    """
    ruled = [*baseline, *passed]
    rate = sum(ruled) / len(ruled) if ruled else 0.0
    validity = len(passed) / len(tests) if tests else 0.0
    return Score(rate, (1 - rate) * validity, rate, validity)


@dataclass
class AdversarialTests(Game):
    """Rewards are shares between 0 and 1. `scripted` generators write the reference half of the
    time, and otherwise the reference with one thing changed; `perfect` ones the reference. Where
    tests are inputs alone, `perfect` discriminators change those of the baseline tests."""

    seats: ClassVar[tuple[str, ...]] = (GENERATOR, DISCRIMINATOR)
    problems: ClassVar[str] = "adversarial"
    runs_code: ClassVar[bool] = True

    style: str = "short"
    stages: Any = None  # names, or {name, instruction, sees}; None: the five
    timeout_s: Seconds = 3.0
    most_tests: Count = 5  # of a discriminator's reply that count
    stage_tokens: Tokens = None  # None: as the recipe's sampling says
    program_tokens: Tokens = None  # of the last stage; None: as the others
    test_tokens: Tokens = None
    inputs_only: bool = False  # tests are calls, and the reference says what to expect; as in terse
    statements: Count | None = None  # the most that a problem's reference may have

    def __post_init__(self) -> None:
        check_style(self.style)
        self.stages = make_stages(self.stages)

    def make_judge(self, sandbox: str) -> Examiner:
        return Examiner(make_judge(sandbox, self.timeout_s))

    def check(self, task: Task) -> None:
        full_problem(task)

    def unusable(self, task: Task) -> str:
        if self.statements is None or count_statements(problem_of(task).code) <= self.statements:
            return ""
        return f"longer: its reference has more than {self.statements} statements"

    def suited(self, tasks: Sequence[Task], seed: int) -> Sequence[Task]:
        return [task for task in tasks if not self.unusable(task)] or tasks

    def check_all(self, tasks: Sequence[Task], sandbox: str) -> None:
        need_references(tasks, make_judge(sandbox, self.timeout_s))

    def task(self, seed: int) -> Task:
        return shipped_task(self.problems, seed)

    async def play(self, task: Task, table: Table) -> Outcome:
        problem = full_problem(task)
        replies = await self.reason(table[GENERATOR], problem)
        written = await self.write_tests(table[DISCRIMINATOR], problem)
        code = self.program(list(replies.values())[-1], problem)
        tests, baseline, passed = await table.judge(self.rule(problem, code, written))
        table.verdicts += [*baseline, *passed]
        result = score([v.passed for v in baseline], tests, [v.passed for v in passed])
        results = iter(passed)
        facts: dict[str, Any] = {
            "end": "passed" if result.pass_rate == 1 else "broken",
            "code": code,
            "baseline": [v.passed for v in baseline],
            "tests": [
                {"test": t.text, "kind": t.kind, "passed": next(results).passed}
                if t.kind == VALID
                else {"test": t.text, "kind": t.kind}
                for t in tests
            ],
            "validity": result.validity,
            "pass_rate": result.pass_rate,
        }
        return Outcome(generator=result.generator, discriminator=result.discriminator, facts=facts)

    async def reason(self, player: Player, problem: Problem) -> dict[str, str]:
        """What the generator says in each stage; the last is the program's."""
        replies: dict[str, str] = {}
        for stage in self.stages:
            last = stage is self.stages[-1]
            codes = (problem.code, *mutants(problem.code)) if last else ()
            spoken = "" if self.style == "terse" else reference_reply(stage.name, problem)
            mix = tuple(map(self.reply_of, codes)) or (spoken,)
            turn = await player.act(
                self.stage_prompt(stage, problem, replies),
                view=View(stage.name, mix),
                stage=stage.name,
                max_tokens=(last and self.program_tokens) or self.stage_tokens,
            )
            replies[stage.name] = turn.text.strip()
        return replies

    async def write_tests(self, player: Player, problem: Problem) -> str:
        turn = await player.act(
            self.test_prompt(problem),
            view=View("tests", self.example_tests(problem)),
            max_tokens=self.test_tokens,
        )
        return turn.text

    def example_tests(self, problem: Problem) -> tuple[str, ...]:
        """What a discriminator may write, for policies to imitate: what is known, or where inputs
        are enough, known calls with one number or text changed."""
        name, terse = function_name(problem.signature), self.style == "terse"
        known = [f"{name}({i})" for t in problem.tests for i in read_inputs(t, name, 1)]
        if not known or not (terse or self.inputs_only):
            return problem.tests
        calls = [call.strip() for each in known for call in mutants(each, 2)] or known
        new = [call for call in calls if len(call) <= _SHORT] or [min(calls, key=len)]
        if terse:
            inputs = [i for call in new for i in read_inputs(call, name, 1)]
            return ("\n".join(inputs[: self.most_tests]),)
        return ("```python\n" + "\n".join(new[: self.most_tests]) + "\n```",)

    def inputs(self, problem: Problem, reply: str) -> list[str] | None:
        """The arguments that a discriminator names, where its tests are inputs alone."""
        if self.style == "terse":
            return reply.splitlines()[: self.most_tests]
        if self.inputs_only:
            return read_inputs(reply, function_name(problem.signature), self.most_tests)
        return None

    async def rule(
        self, problem: Problem, code: str, reply: str
    ) -> tuple[list[Ruled], list[Verdict], list[Verdict]]:
        """The discriminator's tests, and the program on the baseline tests and the valid ones."""
        inputs = self.inputs(problem, reply)
        if inputs is None:
            written = read_tests(reply, self.most_tests)
        else:
            written = await self.judge.completed(problem, inputs)
        tests = await self.judge.examine(problem, written)
        valid = [t.text for t in tests if t.kind == VALID]
        baseline = await self.run_tests(problem, code, problem.tests)
        return tests, baseline, await self.run_tests(problem, code, valid)

    async def run_tests(self, problem: Problem, code: str, tests: Sequence[str]) -> list[Verdict]:
        """A program on tests, one by one, so that one failure hides no other."""
        if is_empty(code) or definitions(code) is None:
            return [Verdict("fail", "syntax", "there is no program")] * len(tests)
        rule = self.judge.rule
        return list(await asyncio.gather(*(rule(problem, code, test) for test in tests)))

    def program(self, text: str, problem: Problem) -> str:
        """Terse generators, who know no Python yet, write only what the function returns."""
        if self.style != "terse" or text.startswith("def "):
            return extract_code(text)
        return f"{problem.signature}\n    return {text}\n" if text else ""

    def reply_of(self, code: str) -> str:
        """How a generator would say this program."""
        if self.style != "terse":
            return f"```python\n{formatted(code)}\n```"
        header_and_value = one_return(code)
        return header_and_value[1] if header_and_value else code

    def stage_prompt(self, stage: Stage, problem: Problem, replies: dict[str, str]) -> str:
        name = function_name(problem.signature)
        if self.style == "terse":
            return f"{stage.name[0]} {name}"
        earlier = "".join(
            f"\n## {name.capitalize()}\n{text}\n" for name, text in visible(stage, replies).items()
        )
        # Whoever only asks for a solution may give neither signature nor test.
        header = f"The function is `{problem.signature}`\n" if problem.signature else ""
        if problem.tests:
            header += f"For example, this holds: {problem.tests[0].strip()}\n"
        return f"{problem.prompt}\n{header}{earlier}\n{stage.instruction}"

    def test_prompt(self, problem: Problem) -> str:
        name = function_name(problem.signature)
        if self.style == "terse":
            return f"t {name}"
        known = "\n".join(test.strip() for test in problem.tests)
        think = "Think first, then answer" if self.style == "reason" else "Answer only"
        what = "calls on which a wrong solution may differ from a right one"
        line = f"{name}(...)"
        if not self.inputs_only:
            what = "tests that a right solution passes and a wrong one may not"
            line = f"assert {line} == ..."
        return (
            f"{problem.prompt}\nThe function is `{problem.signature}`\nThese tests are known "
            f"already:\n{known}\n\nAnother programmer has written this function and may have made "
            f"a mistake. Write up to {self.most_tests} new {what}: other inputs, edge cases. "
            f"{think} with one `{line}` a line in one ```python block."
        )

    def scripted(self, view: View, seed: int) -> str:
        """A frozen generator's program (or a discriminator that says what is known already)."""
        rng = random.Random(seed)
        first, *others = view.actions
        return rng.choice(others) if others and rng.random() < 0.5 else first

    def perfect(self, view: View, seed: int) -> str:
        return view.actions[0]

    def summary(self, episodes: Sequence[Episode]) -> dict[str, float]:
        return summarize(episodes) if episodes else {}

    def score(self, episodes: Sequence[Episode]) -> float:
        """A generator that passes tests, and tests that are worth passing."""
        reward = fmean(e.rewards[GENERATOR] for e in episodes)
        return _REWARD * reward + _VALIDITY * fmean(e.facts["validity"] for e in episodes)


def summarize(episodes: Sequence[Episode]) -> dict[str, float]:
    """Validity, pass rates and bugs of some games. A bug is a valid test that the program fails;
    a hidden one is in a program that passes every baseline test."""
    tests = [test for e in episodes for test in e.facts["tests"]]
    passed = [test["passed"] for test in tests if test["kind"] == VALID]
    baseline = [ok for e in episodes for ok in e.facts["baseline"]]
    broken = [any(t.get("passed") is False for t in e.facts["tests"]) for e in episodes]
    clean = [all(e.facts["baseline"]) for e in episodes]
    kinds = Counter(test["kind"] for test in tests)
    return {
        "tests/validity": fmean(e.facts["validity"] for e in episodes),
        "tests/pass_rate_baseline": fmean(baseline) if baseline else 0.0,
        **({"tests/pass_rate_adversarial": fmean(passed)} if passed else {}),
        "tests/programs_right": fmean(clean),
        "tests/programs_broken": fmean(broken),
        "tests/bugs": float(sum(not ok for ok in passed)),
        "tests/hidden_bugs": float(sum(b and c for b, c in zip(broken, clean, strict=True))),
        "tests/written": float(len(tests)),
        **{f"tests/kind/{kind}": float(count) for kind, count in sorted(kinds.items())},
    }

"""`sparring solve`: a trained generator on problems of one's own, stage by stage, with a choice
among several attempts by the tests there are, then by what the attempts agree on."""

from __future__ import annotations

import ast
import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.source import parsed
from sparring.core.table import Table
from sparring.core.types import Request, Sampling, Task, Turn, Verdict, derive
from sparring.evaluation.benchmark import batch_size
from sparring.judge.python.judge import Judge
from sparring.judge.python.programs import make_judge
from sparring.pipelines.adversarial.game import DISCRIMINATOR, GENERATOR, AdversarialTests
from sparring.pipelines.adversarial.problems import function_name
from sparring.pipelines.adversarial.written_tests import read_tests, refusal
from sparring.run import checkpoint as checkpoints
from sparring.run.lines import in_batches
from sparring.tasks.code import Problem, problem_of
from sparring.training import checkpoint_names

if TYPE_CHECKING:
    from sparring.engines.local.engine import TransformersEngine

OnToken = Callable[[str, str], None]  # a stage's name, and the next piece of its reply


@dataclass
class Attempt:
    """One way through the stages to a program, and how it did."""

    stages: dict[str, str]
    code: str
    number: int = 0
    verdicts: list[Verdict] = field(default_factory=list)  # one per test, where tests were run
    agrees: int = 0  # with how many results of other attempts its own are equal

    @property
    def passed(self) -> int:
        return sum(verdict.passed for verdict in self.verdicts)


@dataclass
class Solver:
    """Who solves: a game's stages, an engine, the generator's name in it, how it is asked."""

    game: AdversarialTests
    engine: TransformersEngine
    generator: str
    sampling: Sampling
    discriminator: str | None = None
    seed: int = 0

    async def solve(
        self, problem: Problem, attempts: int, judge: Judge | None, on_token: OnToken | None = None
    ) -> list[Attempt]:
        """All attempts, the best one first. Only the first one attempted is streamed."""
        made = await asyncio.gather(
            *(self._attempt(problem, i, on_token if i == 0 else None) for i in range(attempts))
        )
        if judge is None:
            return list(made)
        for attempt in made:
            attempt.verdicts = await self._verdicts(problem, attempt.code, judge)
        if attempts > 1:
            await self._compare(problem, made, judge)
        order = sorted(range(attempts), key=lambda i: (-made[i].passed, -made[i].agrees, i))
        return [made[i] for i in order]

    async def _attempt(self, problem: Problem, number: int, on_token: OnToken | None) -> Attempt:
        table = self._table(problem, number, on_token)
        replies = await self.game.reason(table[GENERATOR], problem)
        return Attempt(replies, self.game.program(list(replies.values())[-1], problem), number)

    def _table(self, problem: Problem, number: int, on_token: OnToken | None) -> Table:
        async def speak(request: Request) -> Turn:
            stage = request.view.state if request.view else ""
            if on_token is not None:
                self.engine.listen(request, lambda piece: on_token(stage, piece))
            return await self.engine.act(request)

        seating = {GENERATOR: self.generator, DISCRIMINATOR: self.discriminator or self.generator}
        seed = derive(self.seed, problem.id, number)
        return Table(self.game.seats, seating, speak, seed=seed, sampling=self.sampling)

    async def _verdicts(self, problem: Problem, code: str, judge: Judge) -> list[Verdict]:
        return [await judge.tests(code, [t], setup=problem.setup) for t in problem.tests]

    async def _compare(self, problem: Problem, made: Sequence[Attempt], judge: Judge) -> None:
        """Programs that do the same on the same inputs speak for each other."""
        inputs = calls_of(problem)
        if self.discriminator is not None and function_name(problem.signature):
            reply = await self.game.write_tests(
                self._table(problem, -1, None)[DISCRIMINATOR], problem
            )
            inputs += self._written(problem, reply)
        results = [await _results(a.code, list(dict.fromkeys(inputs)), judge) for a in made]
        for index, attempt in enumerate(made):
            for column, mine in enumerate(results[index]):
                same = sum(row[column] == mine for row in results)
                attempt.agrees += same - 1 if mine is not None else 0

    def _written(self, problem: Problem, reply: str) -> list[str]:
        """The calls that a discriminator names, in whichever form it learned to."""
        name, inputs = function_name(problem.signature), self.game.inputs(problem, reply)
        if inputs is None:
            tests = read_tests(reply, self.game.most_tests)
        else:
            tests = [f"assert {name}({given.strip()})" for given in inputs]
        fair = tuple(test for test in tests if not refusal(test, name))
        return calls_of(replace(problem, tests=fair))


async def _results(code: str, calls: Sequence[str], judge: Judge) -> list[str | None]:
    """What a program returns for each call, or None; without any call, the program itself."""
    if not calls:
        tree = parsed(code)
        return [ast.unparse(tree) if tree is not None else None]
    outputs: list[str | None] = []
    for call in calls:
        done = await judge.run(f"{code}\nprint('\\n' + repr({call}))\n")
        outputs.append(done.stdout.rstrip().rpartition("\n")[2] if done.status == "ok" else None)
    return outputs


def calls_of(problem: Problem) -> list[str]:
    """The calls that a problem's tests make of the function in question, as they are written."""
    name = function_name(problem.signature)
    called = [
        node
        for test in problem.tests
        for node in ast.walk(parsed(test) or ast.Module([], []))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    names = [n.func.id for n in called if isinstance(n.func, ast.Name)]
    known = name or next((n for n, _ in Counter(names).most_common()), "")
    return [ast.unparse(n) for n in called if isinstance(n.func, ast.Name) and n.func.id == known]


def split_tests(text: str) -> tuple[str, ...]:
    """`assert a; assert b` as single tests; a semicolon in a string parts nothing."""
    tree = parsed(text)
    if tree is None:
        raise ConfigError(f"--tests do not parse as Python: {text!r:.200}")
    for node in tree.body:
        if not isinstance(node, ast.Assert):
            raise ConfigError(f"--tests hold {ast.unparse(node)!r:.200}, which is no assert")
    return tuple(ast.unparse(node) for node in tree.body)


def one_problem(text: str, signature: str | None, tests: str | None) -> Problem:
    if not text.strip():
        raise ConfigError("the problem is empty; say what the function should do")
    if signature is not None and not function_name(signature):
        raise ConfigError(f"--signature {signature!r} is no `def name(…):`")
    return Problem(
        id="problem",
        prompt=text.strip(),
        tests=split_tests(tests) if tests else (),
        signature=(signature or "").strip(),
    )


def batch(path: Path) -> list[Problem]:
    """The problems of a problems file; their baseline tests are the tests to pass."""
    from sparring.pipelines.adversarial.problems import read_problems

    return [problem_of(Task(str(row["id"]), data=row)) for row in read_problems(path)]


def load_solver(
    checkpoint: str, *, device: str = "auto", sampling: Sampling | None = None, seed: int = 0
) -> Solver:
    """The generator of a run's checkpoint: RUN, RUN@STEP, or a path to one of its checkpoints."""
    from sparring.engines.load import add_policy, load_engine
    from sparring.models.trained import find_trained
    from sparring.run.games import make_games

    policy = policy_of(checkpoint)
    trained = find_trained(policy)
    engine, name = load_engine(policy, device=device)
    games = make_games(trained.config.games).values() if trained else []
    game = next((g for g in games if isinstance(g, AdversarialTests)), AdversarialTests())
    discriminator = None
    if trained and trained.name == GENERATOR and _has(trained.file, DISCRIMINATOR):
        add_policy(engine, f"{policy.rpartition(':')[0]}:{DISCRIMINATOR}", DISCRIMINATOR)
        discriminator = DISCRIMINATOR
    asked = sampling or Sampling(temperature=0.7, top_p=0.9, max_tokens=512)
    most = asked.max_tokens
    game = replace(game, stage_tokens=most, program_tokens=most, test_tokens=most)
    return Solver(game, engine, name, asked, discriminator, seed)


def policy_of(checkpoint: str) -> str:
    """What `--checkpoint` says, as the name of a policy; a damaged one is refused here, with the
    usable ones."""
    path = Path(checkpoint)
    if path.parent.name == "checkpoints" and (path.parent.parent / "config.yaml").is_file():
        run, word = path.parent.parent, path.name
    elif (path / "config.yaml").is_file():
        run, word = path, "best" if (path / "checkpoints" / "best").exists() else ""
    else:
        if path.is_absolute() or len(path.parts) > 2:
            raise ConfigError(f"there is no checkpoint {checkpoint!r}: no run is there")
        return checkpoint
    folder = run / "checkpoints"
    steps = checkpoints.steps(folder)
    if not steps:
        raise ConfigError(f"{run} has no checkpoint yet")
    step = checkpoint_names.find(folder, word) if word else steps[-1]
    held = folder / checkpoints.step_name(step) / f"{GENERATOR}.policy.safetensors"
    return f"{run}@{step}" + (f":{GENERATOR}" if held.exists() else "")


def _has(file: Path, who: str) -> bool:
    return (file.parent / f"{who}.policy.safetensors").exists()


def as_json(problem: Problem, attempts: Sequence[Attempt], executed: bool) -> dict[str, Any]:
    best = attempts[0]
    return {
        "id": problem.id,
        "problem": problem.prompt,
        "signature": problem.signature,
        "stages": best.stages,
        "code": best.code,
        "attempts": [
            {"code": a.code, "passed": a.passed, "agrees": a.agrees, "stages": a.stages}
            for a in attempts
        ],
        "tests": [
            {"test": test, "verdict": v.status, "kind": v.kind, "detail": v.detail[:500]}
            for test, v in zip(problem.tests, best.verdicts, strict=False)
        ]
        if executed
        else [],
        "passed": executed and bool(problem.tests) and best.passed == len(problem.tests),
    }


async def solve_all(
    solver: Solver,
    problems: Sequence[Problem],
    *,
    attempts: int,
    sandbox: str | None,
    on_token: OnToken | None = None,
    lines: Path | None = None,
    batch: int | None = None,
    on_problem: Callable[[Problem, list[Attempt]], None] | None = None,
) -> list[list[Attempt]]:
    """Every problem's attempts, a batch of problems at a time, each a line of a file; `sandbox`
    None executes nothing."""
    printed = 0

    def show(records: list[dict[str, Any]]) -> None:
        nonlocal printed
        for index in range(printed, len(records)):
            if on_problem is not None:
                on_problem(problems[index], _attempts(records[index]))
        printed = len(records)

    async with make_judge(sandbox, solver.game.timeout_s) if sandbox else nullcontext() as judge:

        async def work(numbers: range) -> list[dict[str, Any]]:
            stream = on_token if len(problems) == 1 else None
            made = await asyncio.gather(
                *(solver.solve(problems[i], attempts, judge, stream) for i in numbers)
            )
            return [
                {"id": problems[i].id, "attempts": [asdict(attempt) for attempt in solved]}
                for i, solved in zip(numbers, made, strict=True)
            ]

        ids = [problem.id for problem in problems]
        each = batch or max(1, batch_size(solver.engine) // attempts)
        records = await in_batches(lines, ids, work, batch=each, what="problem", progress=show)
    show(records)  # those that were there already, if nothing was left to do
    return [_attempts(record) for record in records]


def _attempts(record: dict[str, Any]) -> list[Attempt]:
    return [
        Attempt(**{**a, "verdicts": [Verdict(**v) for v in a["verdicts"]]})
        for a in record["attempts"]
    ]

"""What `sparring solve` prints and writes. Imported only when it is asked for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.types import Sampling
from sparring.models.trained import weights_of
from sparring.pipelines.adversarial import solve
from sparring.run.lines import unfinished
from sparring.run.outputs import need_file
from sparring.run.rundir import digest, write_whole
from sparring.tasks.code import Problem


def run(
    checkpoint: str,
    *,
    problem: str | None,
    problem_file: Path | None,
    problems_file: Path | None,
    signature: str | None,
    tests: str | None,
    execute_tests: bool,
    sampling: Sampling,
    attempts: int,
    output: Path | None,
    reasoning: bool,
    device: str,
    sandbox: str,
    seed: int,
) -> None:
    """Solve, show, write. Everything that can be refused is, before a model is loaded."""
    problems = asked(problem, problem_file, problems_file, signature, tests)
    if execute_tests and not any(p.tests for p in problems):
        raise ConfigError("--execute-tests, and there are none: give --tests or --problems-file")
    if output is not None and not output.parent.is_dir():
        raise ConfigError(f"--output: there is no folder {output.parent}")
    if output is not None:
        need_file(output, "--output")
    if execute_tests or attempts > 1:
        need_jail(sandbox)
    single = len(problems) == 1
    show = Show(reasoning, execute_tests, streamed=single and reasoning, total=len(problems))
    plan: dict[str, Any] = {
        "checkpoint": checkpoint,
        "weights": weights_of(solve.policy_of(checkpoint)),
    }
    plan |= {"problems": [p.id for p in problems], "asked": digest([repr(p) for p in problems])}
    plan |= {"attempts": attempts, "seed": seed}
    plan |= {"sampling": asdict(sampling), "execute_tests": execute_tests}
    with unfinished(output, plan) as lines:
        solver = solve.load_solver(checkpoint, device=device, sampling=sampling, seed=seed)
        solutions = asyncio.run(
            solve.solve_all(
                solver,
                problems,
                attempts=attempts,
                sandbox=sandbox if execute_tests or attempts > 1 else None,
                on_token=show.on_token if single and reasoning else None,
                lines=lines,
                on_problem=show.result,
            )
        )
        if output is not None:
            results = [
                solve.as_json(p, made, execute_tests)
                for p, made in zip(problems, solutions, strict=True)
            ]
            summary: dict[str, Any] = {"checkpoint": checkpoint, "results": results}
            write_whole(output, (json.dumps(summary, indent=1) + "\n").encode())
    if output is not None:
        print(f"\nwritten to {output}")


def asked(
    problem: str | None,
    problem_file: Path | None,
    problems_file: Path | None,
    signature: str | None,
    tests: str | None,
) -> list[Problem]:
    """The problems that the options name, by exactly one of the three ways."""
    given = [x for x in (problem, problem_file, problems_file) if x is not None]
    if len(given) != 1:
        raise ConfigError("give one of --problem, --problem-file and --problems-file")
    if problems_file is not None:
        if signature or tests:
            raise ConfigError("--signature and --tests go with one problem; the file has its own")
        if not problems_file.is_file():
            raise ConfigError(f"there is no file {str(problems_file)!r}")
        return solve.batch(problems_file)
    if problem_file is not None:
        try:
            problem = problem_file.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise ConfigError(f"{problem_file} cannot be read: {error}") from error
    return [solve.one_problem(problem or "", signature, tests)]


def need_jail(sandbox: str) -> None:
    if sandbox == "unsafe":
        return
    from sparring.judge.sandbox import probe

    jail = probe()
    if not jail.ok:
        raise ConfigError(
            f"programs are only executed in a jail, and {jail.explanation}. Install it "
            f"({jail.install}), or say --sandbox unsafe to run them with your own rights."
        )


class Show:
    """Prints stages as they are spoken, then the code and the verdicts."""

    def __init__(self, reasoning: bool, executed: bool, *, streamed: bool, total: int) -> None:
        self.reasoning, self.executed, self.streamed = reasoning, executed, streamed
        self.stage, self.done, self.total = "", 0, total

    def on_token(self, stage: str, piece: str) -> None:
        if stage != self.stage:
            self.stage = stage
            print(f"\n── {stage} ──", flush=True)
        print(piece, end="", flush=True)

    def result(self, problem: Problem, made: Sequence[solve.Attempt]) -> None:
        best = made[0]
        self.done += 1
        count = f" {self.done} of {self.total}" if self.total > 1 else ""
        print(f"\n══ {problem.id} ══{count}", flush=True)
        if self.reasoning and not (self.streamed and best.number == 0):
            for stage, text in best.stages.items():
                print(f"── {stage} ──\n{text}")
        if len(made) > 1:
            print(
                f"attempt {best.number + 1} of {len(made)}: "
                f"{best.passed} of {len(problem.tests)} tests, "
                f"{best.agrees} results agreed with"
            )
        print(f"── program ──\n{best.code.strip()}")
        if self.executed:
            for test, verdict in zip(problem.tests, best.verdicts, strict=True):
                why = f" ({verdict.kind}: {verdict.detail})" if not verdict.passed else ""
                print(f"{verdict.status}  {test}{why}")
            print(f"{best.passed} of {len(problem.tests)} tests passed")

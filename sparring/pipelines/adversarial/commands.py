"""`sparring solve` and `sparring convert mbpp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.arguments import Device, Sandbox, Seed, Temperature, number
from sparring.cli.console import console
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.command()(solve)
    commands.group("convert", "Make problems files of other data.").command("mbpp")(convert_mbpp)


def solve(
    checkpoint: Annotated[
        str,
        typer.Option("--policy", "--checkpoint", help="RUN, RUN@STEP, or RUN/checkpoints/NAME."),
    ],
    problem: Annotated[str | None, typer.Option(help="What the function should do.")] = None,
    problem_file: Annotated[Path | None, typer.Option(help="A text file with the problem.")] = None,
    batch: Annotated[
        bool, typer.Option("--batch", help="Solve all problems of --problems-file.")
    ] = False,
    problems_file: Annotated[
        Path | None, typer.Option(help="A problems file, to solve all of them.")
    ] = None,
    signature: Annotated[
        str | None, typer.Option(help="The first line, such as 'def f(x: int):'.")
    ] = None,
    tests: Annotated[str | None, typer.Option(help="Asserts, separated by semicolons.")] = None,
    execute_tests: Annotated[
        bool, typer.Option("--execute-tests", help="Run the program on the tests.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of each stage.")] = 512,
    temperature: Temperature = 0.7,
    top_p: Annotated[
        float, number("Probability mass of the tokens to sample from.", low=0, high=1, above=True)
    ] = 0.9,
    attempts: Annotated[
        int,
        typer.Option(min=1, help="Programs to write; the best by tests, then agreement, is kept."),
    ] = 1,
    output: Annotated[
        Path | None, typer.Option("--out", "--output", help="A JSON file for the results.")
    ] = None,
    no_reasoning: Annotated[
        bool, typer.Option("--no-reasoning", help="Show only the program.")
    ] = False,
    device: Device = "auto",
    sandbox: Sandbox = "bubblewrap",
    seed: Seed = 0,
) -> None:
    """Solve coding problems with a trained generator, stage by stage."""
    from sparring.core.errors import ConfigError
    from sparring.core.types import Sampling
    from sparring.pipelines.adversarial.cli import run

    if batch and problems_file is None:
        raise ConfigError("--batch solves many problems: name their file with --problems-file")
    run(
        checkpoint, problem=problem, problem_file=problem_file, problems_file=problems_file,
        signature=signature, tests=tests, execute_tests=execute_tests,
        sampling=Sampling(temperature=temperature, top_p=top_p, max_tokens=max_tokens),
        attempts=attempts, output=output, reasoning=not no_reasoning, device=device,
        sandbox=sandbox, seed=seed,
    )  # fmt: skip


def convert_mbpp(
    data: Annotated[str, typer.Argument(help="MBPP: a JSONL file, its folder, or a hub name.")],
    out: Annotated[Path, typer.Argument(help="The problems file to write.")],
) -> None:
    """Make a problems file of MBPP's training split."""
    from sparring.pipelines.adversarial.problems import convert_mbpp as convert
    from sparring.run.outputs import need_file

    need_file(out, "OUT")
    count, left_out = convert(data, out)
    for task, why in left_out.items():
        console.print(f"left out {task}: {why}", soft_wrap=True, highlight=False)
    console.print(f"{count} problems in {out}", soft_wrap=True, highlight=False)

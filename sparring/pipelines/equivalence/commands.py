"""`sparring judge equivalence`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.arguments import Sandbox, number
from sparring.cli.console import AsJson
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.group("judge", "Use a judge on its own.").command("equivalence")(judge_equivalence)


def judge_equivalence(
    file: Annotated[
        Path,
        typer.Argument(
            help="A JSONL file of {id, language, p, q, function, claim, proof?, input?}."
        ),
    ],
    as_json: AsJson = False,
    timeout_s: Annotated[float, number("Time limit of one call.", low=0.1, high=3600)] = 2.0,
    inputs: Annotated[
        int, typer.Option(min=0, help="Random inputs to try, besides edge cases.")
    ] = 100,
    work: Annotated[
        int,
        typer.Option(min=0, help="Steps of the search for a difference (Python); 0 leaves it out."),
    ] = 20_000_000,
    crosshair_paths: Annotated[
        int, typer.Option(min=0, help="Paths that CrossHair explores (Python); 0 leaves it out.")
    ] = 100,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail what is merely not refuted within the budget."),
    ] = False,
    sandbox: Sandbox = "bubblewrap",
) -> None:
    """Check claims that programs are equivalent or not; one verdict line per line, in order."""
    from sparring.pipelines.equivalence.cli import judge_equivalence as judge

    code = judge(
        file, as_json, sandbox=sandbox, timeout_s=timeout_s, inputs=inputs,
        work=work, crosshair_paths=crosshair_paths, strict=strict,
    )  # fmt: skip
    raise typer.Exit(code)

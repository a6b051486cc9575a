"""`sparring judge python`: the judge on its own, for people who need nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.arguments import Sandbox, number
from sparring.cli.console import AsJson
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.group("judge", "Use a judge on its own.").command("python")(judge_python)


def judge_python(
    file: Annotated[
        Path, typer.Argument(help="A JSONL file, one problem with a program on each line.")
    ],
    as_json: AsJson = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Programs judged at once.")] = None,
    timeout_s: Annotated[
        float, number("Time limit of one program.", low=0, high=3600, above=True)
    ] = 5.0,
    sandbox: Sandbox = "bubblewrap",
) -> None:
    """Judge Python programs by their tests; one verdict line per line, in order.

    A line is an object:

    \b
    code        the program
    tests       a text or a list of texts: asserts, or the definition of a check
    entry?      the function under test, or a list of names; check is called with them
    setup?      run before the tests, out of the program's sight
    timeout_s?  seconds for this line, instead of --timeout-s
    id?         comes back in the verdict

    docs/examples/judge.jsonl has a line of each kind.
    """
    from sparring.cli.judge import judge_python as judge

    raise typer.Exit(judge(file, as_json, workers=workers, timeout_s=timeout_s, sandbox=sandbox))

"""`sparring eval` and `sparring compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.arguments import Sandbox, Seed, temperature_option
from sparring.cli.console import AsJson, Policy, say
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.command("eval")(evaluate)
    commands.command()(compare)


def evaluate(
    benchmark: Annotated[
        str, typer.Argument(help="Such as mbpp, humaneval, gsm8k or gsm8k-platinum.")
    ],
    policy: Policy,
    data: Annotated[
        str | None, typer.Option(help="Its data: a JSONL file, dataset folder or hub name.")
    ] = None,
    k: Annotated[str, typer.Option(help="The k of pass@k, such as 1,10.")] = "1",
    samples: Annotated[
        int | None, typer.Option(min=1, help="Attempts per problem; gsm8k takes their majority.")
    ] = None,
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="How many problems, from the first one; all otherwise."),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="Ask in the chat template, without examples.")
    ] = False,
    temperature: Annotated[
        float | None,
        temperature_option("Sampling temperature; 0 for one sample and 0.8 for several otherwise."),
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of a reply.")] = 512,
    seed: Seed = 0,
    sandbox: Sandbox = "bubblewrap",
    details: Annotated[
        Path | None, typer.Option(help="A file to write every attempt to, for `sparring compare`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a policy on a benchmark; `--policy reference` judges the reference solutions."""
    from sparring.core.plugin import find
    from sparring.evaluation.benchmark import REFERENCE, Asked
    from sparring.models.trained import need_policy
    from sparring.run.outputs import need_file

    run_benchmark = find("benchmarks", benchmark)
    if policy != REFERENCE:
        need_policy(policy)
    if details is not None:
        need_file(details, "--details")
    asked = Asked(
        benchmark, policy, data, k=k, samples=samples, problems=problems, chat=chat,
        temperature=temperature, max_tokens=max_tokens, seed=seed, sandbox=sandbox,
        details=details, as_json=as_json,
    )  # fmt: skip
    raise typer.Exit(run_benchmark(asked))


def compare(
    first: Annotated[Path, typer.Argument(help="Details of an evaluation of gsm8k.")],
    second: Annotated[Path, typer.Argument(help="Details of another one, on the same questions.")],
    as_json: AsJson = False,
) -> None:
    """Compare two evaluations question by question: McNemar's test and an interval."""
    from sparring.evaluation.significance import compare_files

    say(compare_files(first, second), as_json)

"""`sparring math …`: the phases of coherent mathematics one by one, as the recipe has them, with
any key overridden."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sparring.cli.arguments import Overrides, Processes
from sparring.cli.console import AsJson, Policy
from sparring.cli.groups import HELP, Commands

app = typer.Typer(
    help="The phases of coherent mathematics, one by one.",
    no_args_is_help=True,
    context_settings=HELP,
)

Recipe = Annotated[str, typer.Option(help="The recipe that gives the rest of the config.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="At the smallest size, with nano.")]
Out = Annotated[Path, typer.Option(help="The file or folder to write.")]
NAME = "coherent-math"


@app.callback()
def one_process(context: typer.Context) -> None:
    from sparring.launch.processes import refuse_several

    if context.invoked_subcommand not in ("sft", "dpo"):
        refuse_several(f"math {context.invoked_subcommand}")


def add_commands(commands: Commands) -> None:
    commands.add_group("math", app)


@app.command()
def sft(
    out: Out,
    overrides: Overrides = None,
    recipe: Recipe = NAME,
    smoke: Smoke = False,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Fine-tune on worked solutions (tasks.source), into OUT/lora and, folded, OUT/merged."""
    from sparring.pipelines.coherent_math import phases

    config = _config(recipe, overrides, smoke)
    with _process_group(processes, config.engine.device) as leads:
        if leads:
            _print_facts("sft", phases.sft(config, out, say=_progress(as_json)), as_json)


@app.command()
def rollouts(
    policy: Policy,
    out: Out,
    overrides: Overrides = None,
    recipe: Recipe = NAME,
    smoke: Smoke = False,
    as_json: AsJson = False,
) -> None:
    """Ask every question through all arms; a line of OUT for each question."""
    from sparring.pipelines.coherent_math import phases

    config = _config(recipe, overrides, smoke)
    _print_facts("rollouts", phases.rollouts(config, policy, out, say=_progress(as_json)), as_json)


@app.command()
def preferences(
    rollouts: Annotated[Path, typer.Option(help="A file that `math rollouts` wrote.")],
    out: Out,
    overrides: Overrides = None,
    recipe: Recipe = NAME,
    smoke: Smoke = False,
    as_json: AsJson = False,
) -> None:
    """Make pairs of rollouts: right over wrong, then coherent over less coherent."""
    from sparring.pipelines.coherent_math import phases

    config = _config(recipe, overrides, smoke)
    _print_facts("preferences", phases.preferences(config, rollouts, out), as_json)


@app.command()
def dpo(
    model: Annotated[
        str,
        typer.Option("--policy", "--model", help="The policy to train, and its own reference."),
    ],
    preferences: Annotated[
        Path, typer.Option(help="A file of pairs that `math preferences` wrote.")
    ],
    out: Out,
    overrides: Overrides = None,
    recipe: Recipe = NAME,
    smoke: Smoke = False,
    processes: Processes = 1,
    as_json: AsJson = False,
) -> None:
    """Train on pairs; OUT becomes a policy."""
    from sparring.pipelines.coherent_math import phases

    config = _config(recipe, overrides, smoke)
    with _process_group(processes, config.engine.device) as leads:
        if leads:
            facts = phases.dpo(config, model, preferences, out, say=_progress(as_json))
            _print_facts("dpo", facts, as_json)


@app.command("eval")
def evaluate(
    policy: Policy,
    out: Out,
    overrides: Overrides = None,
    recipe: Recipe = NAME,
    smoke: Smoke = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate on held-out questions (math.gsm8k.data); a line of OUT for each question."""
    from sparring.pipelines.coherent_math import phases

    config = _config(recipe, overrides, smoke)
    _print_facts("eval", phases.evaluation(config, policy, out, say=_progress(as_json)), as_json)


def _process_group(processes: int, device: str) -> Any:
    from sparring.launch.processes import process_group

    return process_group(processes, device)


def _config(recipe: str, overrides: list[str] | None, smoke: bool) -> Any:
    from sparring.run.config import load_recipe

    return load_recipe(recipe, overrides or [], smoke=smoke)


def _progress(as_json: bool) -> Any:
    from sparring.pipelines.coherent_math.phases import quiet

    return quiet if as_json else print


def _print_facts(name: str, facts: dict[str, Any], as_json: bool) -> None:
    import json

    from sparring.pipelines.coherent_math.whole_run import phase_line

    print(json.dumps(facts) if as_json else phase_line(name, facts))

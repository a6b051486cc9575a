"""The command line. Heavy imports wait inside the commands, so that --help answers at once."""

from __future__ import annotations

import itertools
import json
import logging
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from sparring.cli import benchmarks, games, judge_command, policies
from sparring.cli.arguments import (
    GameOfRun,
    MaxTokens,
    Overrides,
    PolicyToo,
    Processes,
    Resume,
    Seed,
    Style,
    folder_option,
    one_policy,
    temperature_option,
)
from sparring.cli.console import (
    AsJson,
    OnCurrentStderr,
    Policy,
    console,
    say,
    show,
    show_evaluation,
)
from sparring.cli.groups import HELP, Commands
from sparring.cli.submit import submit
from sparring.cli.view_command import view
from sparring.core.plugin import find, load_all
from sparring.launch.processes import refuse_several
from sparring.run import console_log

app = typer.Typer(
    help="Language models that learn by playing each other, under a judge that cannot be "
    "talked round.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings=HELP,
)
UsageError: Any = typer.BadParameter.__bases__[0]  # of click, which typer brings with it
SEVERAL = ("train", "finetune", "math")  # what a launcher may start more than once


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sparring {version('sparring')}")
        raise typer.Exit


@app.callback()
def one_process(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_print_version),
    ] = False,
) -> None:
    if context.invoked_subcommand not in SEVERAL:
        refuse_several(str(context.invoked_subcommand))


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a YAML file, or FILE.py:CLASS.")],
    overrides: Overrides = None,
    run: Annotated[Path | None, folder_option("The run's folder; runs/RECIPE otherwise.")] = None,
    resume: Resume = False,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Run all of it at a size that takes less than a minute."),
    ] = False,
    processes: Processes = 1,
    resume_from: Annotated[
        str | None, typer.Option(help="Resume from this checkpoint: its name or its path.")
    ] = None,
) -> None:
    """Train a recipe; resume it; override any key of its config."""
    from sparring.launch.processes import help_fit, help_learn, helps, start_helpers
    from sparring.run.config import load_recipe
    from sparring.run.job import working_in
    from sparring.run.machine import prepare
    from sparring.run.outputs import need_folder
    from sparring.view import write_report

    config = load_recipe(recipe, overrides or [], smoke=smoke)
    of_checkpoint = Path(resume_from or "").parent  # a path says which run it is of
    if run is None and of_checkpoint.name == "checkpoints":
        run = of_checkpoint.parent
    again = resume or resume_from is not None
    folder = run or default_folder(config.recipe + ("-smoke" if smoke else ""), again)
    if helps():
        config = prepare(config, folder, lambda line: None, resume=again)
        if config.pipeline == "loop":
            help_learn(config, folder)
        else:
            help_fit(config.engine.device)
        return
    need_folder(folder, "--run")
    with working_in(folder):
        config = prepare(config, folder, show, resume=again)
        start_helpers(processes)
        show(f"{config.recipe}: {config.policy}, seed {config.seed}, into {folder}")
        if config.pipeline == "loop":
            train_in_turns(config, folder, resume, resume_from)
        else:
            find("trainers", config.pipeline)(config, folder, resume=resume, say=show)
        report_path = write_report(folder)
    console.print("report:")
    print(report_path.resolve())  # alone on the last line, for whoever takes it from there


@app.command()
def play(
    game: Annotated[str, typer.Argument(help="The game to play, such as tictactoe.")],
    policy: Policy,
    seat: Annotated[str | None, typer.Option(help="Your seat; the first one otherwise.")] = None,
    style: Style = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="INTEGER", help="The same match again; a new one otherwise."),
    ] = None,
) -> None:
    """Play against a policy in the terminal."""
    from sparring.cli.person import play_in_terminal

    logger = logging.getLogger("sparring")
    before = logger.level
    logger.setLevel(logging.WARNING)  # how the engine generates is no part of a game
    try:
        play_in_terminal(game, policy, seat, style, seed, show)
    finally:
        logger.setLevel(before)


@app.command()
def arena(
    run: Annotated[
        str | None,
        typer.Argument(metavar="[POLICY]", help="The policy: RUN, RUN@STEP or any other."),
    ] = None,
    policy: PolicyToo = None,
    against: Annotated[
        str, typer.Option(help="The opponent: random, perfect, scripted, or a policy.")
    ] = "random",
    games: Annotated[int, typer.Option(min=1, help="How many games, seats alternating.")] = 100,
    game: GameOfRun = None,
    temperature: Annotated[
        float | None,
        temperature_option("Sampling temperature; 0 unless the run evaluates at another."),
    ] = None,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Play a policy against another and count the results."""
    from sparring.evaluation.policy_match import play_match

    result = play_match(
        one_policy(run, policy, "arena"),
        against,
        games,
        game=game,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
    )
    say(result, as_json)


@app.command()
def exploit(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[POLICY]", help="RUN, league:RUN, any policy, uniform, or cfr:ITERATIONS."
        ),
    ] = None,
    policy: PolicyToo = None,
    game: Annotated[
        str | None, typer.Option(help="Which game, such as openspiel:leduc_poker.")
    ] = None,
    style: Style = None,
    temperature: Annotated[
        float | None, temperature_option("Sampling temperature; as the run was trained otherwise.")
    ] = None,
    replies: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Replies sampled at each information state, where they must be sampled; 100 "
            "otherwise, or fewer in a larger game.",
        ),
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure what a policy gives away to an opponent who knows it, in a small game."""
    from sparring.cli.progress import live
    from sparring.evaluation.exploit import measure

    name = one_policy(run, policy, "exploit")
    measures = measure(
        name, game=game, style=style, temperature=temperature, replies=replies, seed=seed,
        watch=lambda total: live(f"replies of {name}", total, quiet=as_json),
    )  # fmt: skip
    say(measures, as_json)


@app.command()
def report(run: Annotated[Path, typer.Argument(help="The run's folder.")]) -> None:
    """Write a run's report: one HTML file."""
    from sparring.run.rundir import RunDir
    from sparring.view import write_report

    console.print(write_report(RunDir.existing(run).path), soft_wrap=True, highlight=False)


@app.command()
def recipes(as_json: AsJson = False) -> None:
    """List the recipes."""
    from sparring.run.recipes import recipe_files

    say({name: first_sentence(file.read_text()) for name, file in recipe_files().items()}, as_json)


def first_sentence(recipe: str) -> str:
    """Of the comment that a recipe opens with, however many lines it goes over."""
    comment = itertools.takewhile(lambda line: line.startswith("#"), recipe.splitlines())
    words = " ".join(line.removeprefix("#").strip() for line in comment)
    return re.split(r"(?<=\.)\s", words, maxsplit=1)[0]


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do, and how to add what it cannot."""
    from sparring.cli.doctor import as_json as to_json
    from sparring.cli.doctor import examine

    findings = examine()
    if as_json:
        print(json.dumps(to_json(findings), indent=1))
        return
    table = RichTable(box=None, pad_edge=False)
    for column in ("", "ability", "detail", "to add it"):
        table.add_column(column, overflow="fold")
    for f in findings:
        table.add_row("✓" if f.ok else "✗", f.name, escape(f.detail), escape(f.add))
    console.print(table)


def train_in_turns(config: Any, folder: Path, resume: bool, resume_from: str | None) -> None:
    from sparring.cli.progress import Live
    from sparring.training.finish import finish
    from sparring.training.loop import train as run_training

    with Live(console, config.recipe, config.iterations) as live:
        run_training(config, folder, resume=resume, resume_at=resume_from, progress=live)
    finish(folder)
    show_evaluation(folder)


def default_folder(name: str, resume: bool) -> Path:
    """runs/NAME, or the next free NAME-2, NAME-3 …; with --resume, the newest of them."""
    root = Path("runs")
    endings = [p.name.removeprefix(name) for p in root.glob(f"{name}*")]
    taken = [1 for e in endings if not e]
    taken += [int(e[1:]) for e in endings if e[:1] == "-" and e[1:].isdigit()]
    newest = max(taken, default=0)
    number = newest if resume and newest else newest + 1
    return root / (f"{name}-{number}" if number > 1 else name)


app.command()(submit)
app.command()(view)
_commands = Commands(app)
for _module in (benchmarks, games, policies, judge_command):
    _module.add_commands(_commands)
for _add in load_all("commands"):
    _add(_commands)


def main() -> None:
    """Entry point: errors that a person can mend are one line, without a traceback."""
    console_log.install()
    logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[OnCurrentStderr()])
    for name in ("httpx", "torch"):  # torch prints statistics when its import is interrupted
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        code = app(prog_name="sparring", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except UsageError as error:
        _show_usage_error(error)
        sys.exit(2)
    except typer.Abort:
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        print(f"sparring: {error}", file=sys.stderr)
        sys.exit(code)
    finally:
        if "sparring.run.interrupt" in sys.modules:  # or nothing has been asked of an engine
            sys.modules["sparring.run.interrupt"].end_threads()


def _show_usage_error(error: Any) -> None:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # the help itself
        return
    text = " ".join(error.format_message().split())
    end = "" if text.endswith((".", "?")) else "."
    command = error.ctx.command_path if error.ctx else "sparring"
    print(f"sparring: {text}{end} See `{command} --help`", file=sys.stderr)


def exit_code(error: Exception) -> int | None:
    """2 for what was asked wrongly, 1 for what went wrong, 75 for what should be resumed, None for
    a bug."""
    wrong = {"ConfigError", "BadOption", "SandboxMissing", "BadTests"}
    broken = {"RunError", "CheckpointError", "CanaryError", "GameError"}
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & wrong:
        return 2
    if "Interrupted" in names:
        return 75
    # What the operating system refuses, such as a full disk, is no bug either.
    return 1 if names & broken or isinstance(error, OSError) else None

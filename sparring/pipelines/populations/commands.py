"""`sparring tournament`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from sparring.cli.arguments import MaxTokens, Seed, Temperature
from sparring.cli.console import AsJson, console, show
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.command()(tournament)


def tournament(
    players: Annotated[
        list[str],
        typer.Argument(help="Two or more: RUN, RUN@STEP, any policy, random, perfect, scripted."),
    ],
    game: Annotated[str | None, typer.Option(help="Which game; the first run's otherwise.")] = None,
    games: Annotated[int, typer.Option(min=1, help="Games of each pair, seats alternating.")] = 100,
    out: Annotated[Path, typer.Option(help="The folder to make.")] = Path("tournament"),
    temperature: Temperature = 1.0,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Resume with the games on record; players may be added."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Play every player against every other: payoffs, ratings, Nash mixture, cycles."""
    from sparring.pipelines.populations.tournament import hold, make_plan
    from sparring.run.outputs import need_folder

    plan = make_plan(
        players, games, game=game, temperature=temperature, max_tokens=max_tokens, seed=seed
    )
    need_folder(out, "--out")
    progress = None if as_json else lambda done, of: show(f"{done} of {of} games")
    summary = hold(plan, out, resume=resume, progress=progress)
    if as_json:
        print(json.dumps(summary))
    else:
        _print(summary)


def _print(summary: dict[str, Any]) -> None:
    names = summary["players"]
    short = [name.rpartition("/")[2] for name in names]  # what tells runs of one folder apart
    labels = short if len(set(short)) == len(names) else names
    ratings = {rating["name"]: rating for rating in summary["ratings"]}
    title = f"{summary['game']}: mean reward of the row"
    table = RichTable(title=title, box=None)
    columns = ("", *map(str, range(1, len(names) + 1)), "Elo", "95 %", "Nash", "α-rank")
    for column in columns:
        table.add_column(column, justify="right" if column else "left", overflow="fold")
    for i, name in enumerate(names):
        cells = [
            "" if i == j else f"{payoff:+.2f}" for j, payoff in enumerate(summary["payoffs"][i])
        ]
        rating = ratings.get(name)
        elo = (
            [f"{rating['elo']:+.0f}", f"{rating['low']:+.0f} … {rating['high']:+.0f}"]
            if rating
            else ["", ""]
        )
        shares = [f"{summary[kind][name]:.2f}" for kind in ("nash", "alpharank")]
        table.add_row(f"{i + 1} {escape(labels[i])}", *cells, *elo, *shares)
    console.print(table)
    for cycle in summary["cycles"]:
        show("cycle: " + " beats ".join([*cycle, cycle[0]]))
    if summary["void"]:
        show(f"{summary['void']} games were void and do not count")

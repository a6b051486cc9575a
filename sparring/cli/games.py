"""Commands around games: what is installed, and a package for a new one."""

from __future__ import annotations

import sys
from importlib import util
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table as RichTable

from sparring.cli.console import AsJson, console, say, show
from sparring.cli.groups import Commands


def add_commands(commands: Commands) -> None:
    commands.command()(games)
    commands.command()(init)


def games(
    source: Annotated[
        str | None,
        typer.Argument(help="Only those of a plug-in, or of a prefix such as textarena."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the games that are installed, by source."""
    from sparring.core.errors import ConfigError, nearest

    known = installed_games(source)
    if source is not None and source not in known:
        raise ConfigError(
            f"no games come from {source!r}; {nearest(source, installed_games(None))}"
        )
    chosen = {source: known[source]} if source else known
    if as_json:
        say(chosen, as_json)
        return
    table = RichTable(box=None, show_header=False, pad_edge=False)
    for name, listed in chosen.items():
        table.add_row(f"[bold]{escape(name)}[/bold]")
        for game, line in listed.items():
            table.add_row(f"  {escape(game)}", escape(line))
    console.print(table)


def init(
    name: Annotated[str, typer.Argument(help="The name of the game and of its package.")],
    into: Annotated[
        Path, typer.Option("--out", "--into", help="The folder to make the package in.")
    ] = Path(),
) -> None:
    """Write a package for a new game: rules, recipe, test, README."""
    from sparring.cli.scaffold import scaffold

    for file in scaffold(name, into):
        show(str(file))
    show(f"next: pip install -e {into / name} && pytest {into / name} && sparring train {name}")


def installed_games(source: str | None) -> dict[str, dict[str, str]]:
    """Source -> game -> one line. A bridge that is not the source asked for is summed up where it
    has more games than a person reads."""
    from sparring.core.plugin import bridge_function, bridges, load, plugins

    listed = {
        plugin.name: {name: _about(load(where)) for name, where in plugin.games.items()}
        for plugin in plugins()
        if plugin.games
    }
    for prefix, bridge in bridges().items():
        if util.find_spec(bridge.package) is None:
            listed[prefix] = {f"{prefix}:…": f"not installed; add it with: {bridge.install}"}
        elif source is None:
            listed[prefix] = {f"{prefix}:…": f"installed; `sparring games {prefix}` lists them"}
        elif source == prefix:
            ids = bridge_function(prefix, "listing")()
            listed[prefix] = {f"{prefix}:{name}": line for name, line in ids.items()}
    return listed


def _about(kind: type) -> str:
    """The first sentence that the game's module opens with."""
    text = " ".join((sys.modules[kind.__module__].__doc__ or kind.__name__).split())
    return text.split(". ")[0].rstrip(".")

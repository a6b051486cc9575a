"""The command line's groups, to which a plug-in adds its commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

HELP = {"help_option_names": ["-h", "--help"]}


class Commands:
    """`command` adds to the top level, `group` is a sub-command such as `sparring judge`."""

    def __init__(self, app: typer.Typer) -> None:
        self.app = app
        self._groups: dict[str, typer.Typer] = {}

    def command(self, name: str | None = None) -> Callable[[Any], Any]:
        return self.app.command(name)

    def group(self, name: str, help: str = "") -> typer.Typer:
        """The group of this name, made where there is none yet."""
        if name not in self._groups:
            self._groups[name] = typer.Typer(help=help, no_args_is_help=True, context_settings=HELP)
            self.app.add_typer(self._groups[name], name=name)
        return self._groups[name]

    def add_group(self, name: str, group: typer.Typer) -> None:
        """A group that exists already, with its commands."""
        self._groups[name] = group
        self.app.add_typer(group, name=name)

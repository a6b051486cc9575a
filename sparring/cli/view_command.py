"""`sparring view`: runs in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sparring.cli.console import console


def view(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Folders of runs, or folders that hold runs; `runs` otherwise."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")
    ] = 7860,
    browser: Annotated[bool, typer.Option("--browser", help="Open the browser.")] = False,
) -> None:
    """Look at runs in the browser: curves, every game, checkpoints; play against a policy."""
    from sparring.core.errors import ConfigError, nearest
    from sparring.run.rundir import known_runs
    from sparring.view.runs import find_runs
    from sparring.view.server import serve

    folders = runs or [Path("runs")]
    for folder in folders:
        if not folder.is_dir():
            known = known_runs(folder)
            hint = nearest(str(folder), known) if known else "name a run, or a folder of runs"
            raise ConfigError(f"there is no folder {folder}; {hint}")
    in_view = find_runs(folders)
    console.print(f"{len(in_view)} run{'s' * (len(in_view) != 1)} in view; Ctrl-C ends it")
    serve(folders, port, lambda address: print(address, flush=True), browser=browser)

"""Imported by the server of `lives.py` before it forks anything: what every life would do again."""

import functools
import os
from pathlib import Path

import typer.main

from sparring.cli.app import app

# Typer builds all commands anew for each call: 33 ms of processor time.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.main.get_command(app)

# This folder was named there so that the server finds this module; a life has no use for it.
_here = str(Path(__file__).parent)
_others = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path != _here]
os.environ["PYTHONPATH"] = os.pathsep.join(_others)
if not _others:
    del os.environ["PYTHONPATH"]

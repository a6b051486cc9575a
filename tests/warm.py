"""Imported by the server of `lives.py` before it forks anything: what every life would do again."""

import ast
import functools
import os
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch
import typer.main

from sparring.cli.app import app
from sparring.engines.local.decoder import Decoder
from sparring.engines.local.row_counts import invariant_step
from sparring.judge.sandbox import probe
from sparring.models.loading import make_nano, nano_tokenizer
from sparring.pipelines.equivalence.judge.inputs import ToolMissing, inputs_for
from sparring.pipelines.equivalence.judge.signature import signature_of
from sparring.run.config import config_class

# Typer builds all commands anew for each call: 33 ms of processor time.
typer.main.get_command = functools.cache(typer.main.get_command)
typer.main.get_command(app)

# The first inputs that Hypothesis draws in a process take a third of a second.
with suppress(ToolMissing):
    _program = ast.parse("def f(n: int, s: str) -> int: ...")
    inputs_for(signature_of(_program, "f"), [_program], 10, 0)

# The config's schema, where packages are, what products of matrices are compiled into, and whether
# there are jails.
config_class()
metadata.version("torch")
probe()
with torch.no_grad():
    invariant_step(Decoder.of(make_nano()))
nano_tokenizer().apply_chat_template([{"role": "user", "content": ""}], tokenize=False)

# This folder was named there so that the server finds this module; a life has no use for it.
_here = str(Path(__file__).parent)
_paths = os.environ.pop("PYTHONPATH", "").split(os.pathsep)
if _others := [path for path in _paths if path not in ("", _here)]:
    os.environ["PYTHONPATH"] = os.pathsep.join(_others)

"""A pipeline is a folder: without it the package works, minus that pipeline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "sparring"
PIPELINES = sorted(p.parent.name for p in (PACKAGE / "pipelines").glob("*/__init__.py"))
COMMANDS = {"adversarial": "solve", "coherent_math": "math"}
IMPORT_ALL = """
import importlib, pkgutil, sparring
skipped = (
    "sparring.bridges.verl", "sparring.judge.sandbox.inside", "sparring.engines.local.kernels",
)
for module in pkgutil.walk_packages(sparring.__path__, "sparring."):
    if not module.name.startswith(skipped) and not module.name.endswith(("__main__", "_inside")):
        importlib.import_module(module.name)
"""


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_package_works_without_its_folder(pipeline: str, tmp_path: Path) -> None:
    copied = tmp_path / "sparring"
    shutil.copytree(PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    recipes = {path.stem for path in (copied / "pipelines" / pipeline).glob("recipes/*.yaml")}
    shutil.rmtree(copied / "pipelines" / pipeline)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("-c", IMPORT_ALL)
    listed = set(json.loads(run("-m", "sparring", "recipes", "--json")))
    assert recipes and not recipes & listed and {"kuhn", "tictactoe", "spiral"} <= listed
    words = run("-m", "sparring", "--help").split()
    assert "train" in words and COMMANDS.get(pipeline, "no such command") not in words
    small = ("iterations=1", "collect.episodes=8", "evaluate.final=2", "evaluate.ladder=0")
    run("-m", "sparring", "train", "kuhn", "--smoke", "--run", "run", *small)
    assert (tmp_path / "run" / "report.html").is_file()

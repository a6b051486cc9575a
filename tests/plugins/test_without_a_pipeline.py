"""A pipeline is a folder: without it the package works, minus that pipeline."""

from __future__ import annotations

import compileall
import json
import os
import shutil
from pathlib import Path

import lives
import pytest

PACKAGE = Path(__file__).parents[2] / "sparring"
PIPELINES = sorted(p.parent.name for p in (PACKAGE / "pipelines").glob("*/__init__.py"))
COMMANDS = {"adversarial": "solve", "coherent_math": "math", "populations": "tournament"}
# One process imports what its server has not imported of the package, forgets the package and keeps
# the libraries that it needs; then it forks a child for each copy of the package, two at a time.
FORK = """
import gc, importlib, os, pkgutil, sys
SKIPPED = (
    "sparring.bridges.verl", "sparring.judge.sandbox.inside",
    "sparring.engines.local.dependent_launch", "sparring.engines.local.kernels",
    "sparring.engines.local.narrow", "sparring.engines.local.sampling_kernels",
)
def import_all():
    import sparring
    for _, name, _ in pkgutil.walk_packages(sparring.__path__, "sparring."):
        if not name.startswith(SKIPPED) and not name.endswith(("__main__", "_inside")):
            importlib.import_module(name)
import_all()
for name in [name for name in sys.modules if name.partition(".")[0] == "sparring"]:
    del sys.modules[name]
gc.freeze()
children = 0
for folder in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(folder)
        sys.path.insert(0, folder)
        log = os.open("log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1), os.dup2(log, 2)
        exec(open("check.py").read())
        sys.stdout.flush()
        os._exit(0)
    children += 1
    if children == 2:
        os.wait()
        children -= 1
while children:
    os.wait()
    children -= 1
"""
CHECK = """
import json
assert "sparring" not in sys.modules
import sparring
from typer.testing import CliRunner
assert sparring.__file__.startswith(sys.path[0])
import_all()
assert all(m.__file__.startswith(sys.path[0]) for n, m in sys.modules.items()
           if n.partition(".")[0] == "sparring" and getattr(m, "__file__", None))
from sparring.cli.app import app
words = {"recipes": ["recipes", "--json"], "help": ["--help"]}
words["train"] = ["train", "kuhn", "--smoke", "--run", "run", "iterations=1", "collect.episodes=8"]
words["train"] += ["evaluate.final=2", "evaluate.games=2", "evaluate.ladder=0"]
said = {}
for name, command in words.items():
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    said[name] = result.stdout
open("said.json", "w").write(json.dumps(said))
"""


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A copy of the package without each pipeline, tried out."""
    folders = {name: tmp_path_factory.mktemp(name) for name in PIPELINES}
    compileall.compile_dir(PACKAGE, quiet=1)  # once, not in every copy
    for name, folder in folders.items():
        shutil.copytree(PACKAGE, folder / "sparring", copy_function=os.symlink)
        shutil.rmtree(folder / "sparring" / "pipelines" / name)
        (folder / "check.py").write_text(CHECK)
    program = tmp_path_factory.mktemp("fork") / "fork.py"
    program.write_text(FORK)
    life = lives.sparring(*folders.values(), cwd=PACKAGE.parent, program=program)
    assert life.code == 0, life.err
    return folders


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_package_works_without_its_folder(pipeline: str, copies: dict[str, Path]) -> None:
    folder = copies[pipeline]
    assert (folder / "said.json").exists(), (folder / "log").read_text()
    said = json.loads((folder / "said.json").read_text())
    recipes = {p.stem for p in (PACKAGE / "pipelines" / pipeline).glob("recipes/*.yaml")}
    listed = set(json.loads(said["recipes"]))
    assert recipes or pipeline in COMMANDS  # what it brings is seen to be gone
    assert not recipes & listed and {"kuhn", "tictactoe", "spiral"} <= listed
    words = said["help"].split()
    assert "train" in words and COMMANDS.get(pipeline, "no such command") not in words
    assert (folder / "run" / "report.html").is_file()

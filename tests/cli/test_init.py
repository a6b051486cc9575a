"""`sparring init` writes a package that is installed, tested and trained as it is."""

import os
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import lives
import pytest

from sparring.cli.scaffold import scaffold
from sparring.core.errors import ConfigError

OURS = str(Path(__file__).parents[2])


def run(*words: str, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    found = os.pathsep.join([str(path), OURS, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": found},
    )  # fmt: skip


def test_a_new_package_is_installed_tested_and_trained(tmp_path: Path) -> None:
    made = run("sparring", "init", "count_up", cwd=tmp_path, path=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1].endswith("sparring train count_up")
    site = tmp_path / "site"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(site)]
    installed = run("pip", "install", *options, "./count_up", cwd=tmp_path, path=tmp_path)
    assert installed.returncode == 0, installed.stderr
    tested = run("pytest", "-q", cwd=tmp_path / "count_up", path=site)
    assert tested.returncode == 0 and "8 passed" in tested.stdout, tested.stdout
    words = ("train", "count_up", "--smoke", "--run", "run")
    trained = lives.sparring(*words, cwd=tmp_path, first=partial(lives.packages_of, site))
    assert trained.code == 0, trained.err
    assert (tmp_path / "run" / "report.html").exists()


def test_an_editable_install_is_found_from_the_folder_above(tmp_path: Path) -> None:
    """Where `python -m` has a folder of the same name on its path, which is no package."""
    scaffold("count_up", tmp_path)
    build = "import setuptools.build_meta as backend; backend.build_editable('..')"
    words: dict[str, Any] = {"capture_output": True, "text": True, "check": True}
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path / "count_up", **words)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        [name] = [one for one in wheel.namelist() if one.endswith(".pth")]
        where = wheel.read(name).decode().strip()
    code = f"import sys; sys.path.append({where!r}); import count_up; print(count_up.plugin.games)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, **words)
    assert "count_up" in done.stdout


def test_what_is_written_is_formatted_and_checked(tmp_path: Path) -> None:
    scaffold("count_up", tmp_path)
    for words in (
        ["ruff", "check", "--ignore", "I"],
        ["ruff", "format", "--check", "--line-length", "100"],
    ):
        done = run(*words, "count_up", cwd=tmp_path, path=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Count", "lower-case"),
        ("a-b", "lower-case"),
        ("kuhn", "a game 'kuhn' already"),
        ("textarena", "already"),
        ("spiral", "a recipe 'spiral' already"),
        ("class", "means something"),
        ("task", "means something"),
        ("json", "Python package 'json'"),
        ("there", "is there already"),
    ],
)
def test_a_name_that_is_taken_writes_nothing(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(ConfigError, match=message):
        scaffold(name, tmp_path)
    assert [p.name for p in tmp_path.rglob("*")] == ["there"]

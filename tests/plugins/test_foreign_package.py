"""A package that nobody here wrote is installed with pip, and is as good as our own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import lives
import pytest

SOURCE = Path(__file__).parent / "pennies"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the package; the build leaves nothing in our own tree."""
    folder = tmp_path_factory.mktemp("foreign")
    copied, target = folder / "source", folder / "site"
    shutil.copytree(SOURCE, copied)
    command = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command, str(copied)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return target


def sparring(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    ours = str(Path(__file__).parents[2])
    path = os.pathsep.join([str(site), ours, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "sparring", *words],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def test_its_recipe_and_its_command_are_listed(site: Path, tmp_path: Path) -> None:
    listed = json.loads(sparring(site, "recipes", "--json", cwd=tmp_path).stdout)
    assert listed["pennies"] == "Matching pennies by a stranger."
    assert "flip" in sparring(site, "--help", cwd=tmp_path).stdout
    assert sparring(site, "flip", "--times", "4", cwd=tmp_path).stdout.strip() == "hhhh"


def test_it_trains_measures_and_draws(site: Path, tmp_path: Path) -> None:
    words = ("train", "pennies", "--smoke", "--run", "run")
    done = lives.sparring(*words, cwd=tmp_path, first=partial(lives.packages_of, site))
    assert done.code == 0, done.err
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["coins/bonus"] == 2.0 * 3
    assert {"winners", "baseline/pennies/even", "eval/pennies/heads"} <= set(lines[-1])
    page = (tmp_path / "run" / "report.html").read_text()
    assert "two coins were shown" in page and 'class="two-coins"' in page
    assert "Matching pennies" in page


def test_its_options_are_checked_as_ours_are(site: Path, tmp_path: Path) -> None:
    wrong = sparring(site, "train", "pennies", "games.pennies.steak=1", cwd=tmp_path)
    assert wrong.returncode == 2 and "'stake'" in wrong.stderr
    wrong = sparring(site, "train", "pennies", "coins.bonnus=1", cwd=tmp_path)
    assert wrong.returncode == 2 and "bonus" in wrong.stderr
    assert not (tmp_path / "runs").exists()


def test_a_broken_plugin_is_named_and_takes_nothing_down(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    (broken / "pennies" / "__init__.py").write_text("raise RuntimeError('not today')\n")
    listed = sparring(broken, "recipes", "--json", cwd=tmp_path)
    assert listed.returncode == 0 and "kuhn" in json.loads(listed.stdout)
    assert "pennies" in listed.stderr and "not today" in listed.stderr

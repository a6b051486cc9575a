"""A wheel and an sdist that hold every file the package reads, and a wheel that trains in an
environment which holds nothing but what it says it needs."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def tracked(*paths: str) -> list[str]:
    names = subprocess.run(
        ["git", "ls-files", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in names.stdout.splitlines() if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """The wheel and the sdist, built from a copy of what git tracks and nothing else."""
    folder = tmp_path_factory.mktemp("build")
    for name in tracked("sparring", "pyproject.toml", "README.md", "LICENSE"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    code = "from setuptools import build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "dist").glob("*.whl")
    (sdist,) = (folder / "dist").glob("*.tar.gz")
    return wheel, sdist


def test_wheel_and_sdist_hold_every_tracked_file(built):
    wheel, sdist = built
    wanted = set(tracked("sparring"))
    assert len(wanted) > 200
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    assert wanted - inside == set()


def required(name: str, seen: dict[str, metadata.Distribution]) -> dict[str, metadata.Distribution]:
    """The installed distributions that `name` needs without any extra, and that those need."""
    for line in metadata.requires(name) or []:
        need = Requirement(line)
        key = re.sub(r"[-_.]+", "-", need.name).lower()
        extras = need.extras or {""}
        if key in seen or (
            need.marker and not any(need.marker.evaluate({"extra": e}) for e in ("", *extras))
        ):
            continue
        seen[key] = metadata.distribution(need.name)
        required(need.name, seen)
    return seen


def link(distribution: metadata.Distribution, folder: Path) -> None:
    for top in {Path(str(file)).parts[0] for file in distribution.files or []} - {".."}:
        source = Path(str(distribution.locate_file(top)))
        if source.exists() and not (folder / top).exists():
            (folder / top).symlink_to(source)


def test_installed_wheel_trains_with_its_declared_dependencies_alone(built, tmp_path):
    """As `pip install sparring` leaves it, from an empty folder; a dependency that is used but
    not declared is missing there."""
    wheel, _ = built
    venv.create(tmp_path / "env", symlinks=True, with_pip=False)
    site = next((tmp_path / "env/lib").glob("python3*/site-packages"))
    for distribution in required("sparring", {}).values():
        link(distribution, site)
    zipfile.ZipFile(wheel).extractall(site)
    assert not (site / "pytest").exists() and not (site / "hypothesis").exists()
    empty = tmp_path / "empty"
    empty.mkdir()
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [tmp_path / "env/bin/python", "-m", "sparring", "train", "kuhn", "--smoke", "iterations=1"],
        cwd=empty,
        env=alone,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (empty / "runs").glob("*/report.html")
    assert report.stat().st_size > 10_000

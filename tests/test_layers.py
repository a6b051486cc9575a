"""Imports point down: each room may import those on lower floors, and nobody names a pipeline."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "sparring"
FLOORS = {
    "core": 0,
    "run": 1,
    "games": 2,
    "tasks": 2,
    "credit": 2,
    "judge": 3,
    "models": 3,
    "learn": 4,
    "engines": 4,
    "evaluation": 5,
    "training": 6,
    "launch": 7,
    "view": 7,
    "api": 8,
    "bridges": 8,
    "cli": 9,
    "pipelines": 10,
}
ALLOWED: set[tuple[str, str]] = set()


def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.startswith("sparring.")}


def room(name: str) -> str:
    return name.split(".")[1]


FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem == "api")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    here = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for name in imports(path):
        there = room(name)
        if there == here:
            continue
        low = FLOORS[there] < FLOORS[here] and there != "games"
        assert low or (there == "games" and here == "pipelines"), f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_pipeline_imports_no_other(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    if parts[0] != "pipelines" or len(parts) < 3:
        return
    others = {name for name in imports(path) if room(name) == "pipelines"}
    assert all(name.split(".")[2] == parts[1] for name in others), others


def test_the_core_needs_the_standard_library_alone() -> None:
    import sys

    for path in (ROOT / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                top = (name or "").split(".")[0]
                assert top in sys.stdlib_module_names or (name or "").startswith("sparring.core")

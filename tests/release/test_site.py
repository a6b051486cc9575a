"""The documentation site builds without a warning; its reference has every command and key."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from sparring.cli.app import app
from sparring.run.config import config_class
from sparring.run.recipes import recipe_names

ROOT = Path(__file__).parents[2]
pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_reference_names_every_command_recipe_and_key(site):
    commands = (site / "reference/commands/index.html").read_text()
    for name, command in get_command(app).commands.items():
        for inner in getattr(command, "commands", None) or [""]:
            assert f"sparring {name} {inner}".strip() in commands
    keys = (site / "reference/config/index.html").read_text()
    for name in config_class().model_fields:
        assert f"<code>{name}</code>" in keys or f"<code>{name}." in keys
    recipes = (site / "reference/recipes/index.html").read_text()
    assert [name for name in recipe_names() if f'id="{name}"' not in recipes] == []


def test_pages_ask_no_other_machine_for_anything(site):
    """No font, script or style of the theme comes from a network."""
    for page in site.rglob("*.html"):
        for tag in ("<script src=", "<link rel=stylesheet href=", '<link rel="stylesheet" href='):
            assert f'{tag}"http' not in page.read_text(), page

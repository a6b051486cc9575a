"""`sparring init`: a package for a new game, which passes its test and can be trained."""

from __future__ import annotations

import keyword
import re
from importlib import util
from pathlib import Path
from string import Template

import sparring
from sparring.core.errors import ConfigError
from sparring.core.plugin import bridges, names
from sparring.run.recipes import recipe_names

IMPORTED = {*sparring.__all__, "ClassVar", "Job", "ScriptedEngine"}  # by the files below
FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "{name}/__init__.py": "__init__.py.txt",
    "{name}/game.py": "game.py.txt",
    "{name}/recipes/{name}.yaml": "recipe.yaml.txt",
    "tests/test_{name}.py": "test.py.txt",
}


def scaffold(name: str, into: Path) -> list[Path]:
    """Write the package NAME/ into a folder; refuse a name that is taken, before anything is
    written."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(
            f"{name!r} cannot be a package's name: lower-case letters, digits and underscores"
        )
    class_name = "".join(part.title() for part in name.split("_"))
    if keyword.iskeyword(name) or class_name in IMPORTED:
        raise ConfigError(f"{name!r} means something in its own code already; choose another")
    if name in names("games") or name in bridges():
        raise ConfigError(f"there is a game {name!r} already; `sparring games` lists them")
    if name in recipe_names():
        raise ConfigError(f"there is a recipe {name!r} already; `sparring recipes` lists them")
    if util.find_spec(name) is not None:
        raise ConfigError(f"there is a Python package {name!r} already, which this would hide")
    if (into / name).exists():
        raise ConfigError(f"{into / name} is there already; choose another name")
    given = {"name": name, "class_name": class_name}
    written = []
    for path, template in FILES.items():
        file = into / name / path.format(name=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = (Path(__file__).parent / template).read_text()
        file.write_text(Template(text).substitute(given))
        written.append(file)
    return written

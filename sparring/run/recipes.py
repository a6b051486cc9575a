"""What a recipe's name stands for, before anything is set or checked."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from sparring.core.errors import ConfigError, nearest
from sparring.core.plugin import bridges, plugins
from sparring.run.yaml_values import load_yaml

# What a game that is named in a recipe's place, as `file.py:Class`, is trained by.
OWN_GAME: dict[str, Any] = {
    "policy": "nano",
    "iterations": 120,
    "collect": {"episodes": 256},
    "credit": {"kind": "prompt_baseline"},
    "learn": {"weights": "full", "lr": 1e-3, "minibatches": 2, "entropy": 0.1},
}


def recipe_files() -> dict[str, Path]:
    """The recipes of all plug-ins by name."""
    files = [file for p in plugins() for file in p.folder(p.recipes).glob("*.yaml")]
    return {file.stem: file for file in sorted(files, key=lambda file: file.stem)}


def recipe_names() -> list[str]:
    return list(recipe_files())


def read_recipe(name: str) -> dict[str, Any]:
    """The keys of a recipe by its name, of a YAML file, of a bridge's recipe with one of its games
    (`openspiel:GAME`), or what a game of one's own (`file.py:Class`) is trained by."""
    prefix, colon, rest = name.partition(":")
    if colon and prefix.endswith(".py"):
        return {"recipe": rest, "games": {name: {}}, **deepcopy(OWN_GAME)}
    bridged = bool(colon) and prefix in bridges()
    known = recipe_files().get(prefix if bridged else name)
    path = Path(name) if name.endswith((".yaml", ".yml")) else known
    if path is None or not path.exists():
        raise ConfigError(f"there is no recipe {name!r}; {_meant(name)}")
    data = {"recipe": path.stem, **_keys_of(path)}
    if bridged:
        data["games"] = {name: next(iter(data["games"].values()))}
        data["recipe"] = re.sub(r"[^\w.-]+", "-", name).strip("-")
    return data


def _meant(name: str) -> str:
    """What helps whoever named a file without its class or its ending, a bridge's game that has no
    recipe, or nearly a recipe."""
    prefix = name.partition(":")[0]
    if prefix != name and prefix in bridges():
        return f"a YAML file with games: {{'{name}': {{}}}} is one"
    if name.endswith(".py"):
        return f"a game in a file is named with its class, {name}:CLASS"
    if Path(f"{name}.yaml").is_file():
        return f"did you mean '{name}.yaml'?"
    return nearest(prefix, recipe_names())


def _keys_of(path: Path) -> dict[str, Any]:
    try:
        data = load_yaml(path.read_text()) or {}
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name} cannot be read as YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path.name} holds no keys and values")
    return data

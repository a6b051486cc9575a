"""Values as YAML: of a recipe, typed behind a command, in variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import yaml

from sparring.core.errors import ConfigError
from sparring.core.plugin import plugins

# libyaml is ten times as fast as Python, and a run reads its config a dozen times.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    return yaml.load(text, _LOADER)


def parse_yaml(text: str, what: str) -> Any:
    """The value of what a person typed, or of a variable."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # 2026-99-99 is a bad date
        raise ConfigError(f"the value of {what} is not YAML; quote it if it is text") from error


def from_environment(data: dict[str, Any], variables: Mapping[str, str]) -> None:
    """Variables that override what a recipe says, written into the run's own config: those that
    the recipe gives keys to under `environment:`."""
    for variable, key in variables.items():
        if os.environ.get(variable):
            set_key(data, key, parse_yaml(os.environ[variable], f"the variable {variable}"))


def from_plugin_variables(data: dict[str, Any]) -> None:
    """The variables of a plug-in have the last word, in every recipe that has its section."""
    for plugin in plugins():
        for variable, key in plugin.environment.items():
            section = data.get(key.split(".")[0])
            if isinstance(section, dict) and section.get("enabled", True):
                from_environment(data, {variable: key})


def set_key(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for i, parent in enumerate(parents):
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{'.'.join(parents[: i + 1])} is a value and has no key {last!r}")
    data[last] = value

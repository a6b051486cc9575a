"""Values from outside a recipe: typed behind a command, or in variables of the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import yaml

from sparring.core.errors import ConfigError

MBPP_VARIABLES = {"MBPP_EVAL_NUM_QUESTIONS": "problems", "MBPP_DATASET_PATH": "data"}


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


def from_mbpp_variables(data: dict[str, Any]) -> None:
    """MBPP's own variables have the last word, in every recipe that evaluates on it."""
    evaluate = data.get("evaluate")
    mbpp = evaluate.get("mbpp") if isinstance(evaluate, dict) else None
    if not isinstance(mbpp, dict) or not mbpp.get("enabled"):
        return
    for variable, key in MBPP_VARIABLES.items():
        if os.environ.get(variable):
            mbpp[key] = parse_yaml(os.environ[variable], f"the variable {variable}")


def set_key(data: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for i, parent in enumerate(parents):
        data = data.setdefault(parent, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{'.'.join(parents[: i + 1])} is a value and has no key {last!r}")
    data[last] = value

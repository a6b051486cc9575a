"""YAML read by libyaml where PyYAML has it, ten times as fast as in Python: a run reads its config
a dozen times."""

from __future__ import annotations

from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    return yaml.load(text, _LOADER)

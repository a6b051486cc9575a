"""Packages that one file of tests compares with: collecting the tests would import each of them."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import pytest


class _Module:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, key: str) -> Any:
        if key.startswith(("_", "pytest")):  # what copies, pickles and the collection ask for
            raise AttributeError(key)
        return getattr(importlib.import_module(self._name), key)


def imported(name: str, reason: str) -> Any:
    """A module that is imported when it is first used; where it is missing, the file is skipped."""
    if find_spec(name.partition(".")[0]) is None:
        pytest.skip(reason, allow_module_level=True)
    return _Module(name)

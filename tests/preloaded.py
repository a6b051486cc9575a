"""Imported by the fork server of lives.py alone: what commands import, once for all of them.
Nothing is computed here, so that torch has no threads yet when a life is forked."""

import importlib
import pkgutil
from contextlib import suppress

import sparring

OF_ANOTHER_PROCESS = ("sparring.bridges.", "sparring.judge.sandbox.inside")

for _, name, _ in pkgutil.walk_packages(sparring.__path__, "sparring."):
    if not name.startswith(OF_ANOTHER_PROCESS) and not name.endswith(("__main__", "_inside")):
        with suppress(ImportError):  # Triton's, where there is none
            importlib.import_module(name)

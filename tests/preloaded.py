"""Imported by the fork server of lives.py alone: what commands import, once for all of them.
Nothing is computed here, so that torch has no threads yet when a life is forked."""

import importlib
import pkgutil

import sparring

ELSEWHERE = ("sparring.bridges.", "sparring.judge.sandbox.inside", "sparring.engines.local.kernels")
ELSEWHERE += ("sparring.engines.local.sampling_kernels",)

for _, name, _ in pkgutil.walk_packages(sparring.__path__, "sparring."):
    if not name.startswith(ELSEWHERE) and not name.endswith(("__main__", "_inside")):
        importlib.import_module(name)

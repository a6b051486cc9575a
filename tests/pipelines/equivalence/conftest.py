"""Attacks on pairs of Haskell functions with a quarter of the random inputs, for the sake of time;
SPARRING_FULL=1 takes as many as a run does."""

import os

import pytest

from sparring.pipelines.equivalence.judge import haskell


@pytest.fixture(autouse=True)
def fewer_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("SPARRING_FULL") != "1":
        monkeypatch.setattr(haskell, "CASES", haskell.CASES // 4)

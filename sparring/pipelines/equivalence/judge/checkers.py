"""The checkers of claims about two programs, one per language, behind the same four verbs."""

from __future__ import annotations

import re
from typing import Any, Protocol

from sparring.core.types import Verdict

LANGUAGES = ("python", "haskell")
NOT_REFUTED = "not refuted"
INCIDENT = "soundness incident"


class Checker(Protocol):
    """What a language must be able to do; `pass` of `diverges` means that they differ."""

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def compiles(self, p: str, function: str) -> Verdict: ...

    async def diverges(self, p: str, q: str, function: str, input: Any) -> Verdict: ...

    async def equivalent(self, p: str, q: str, function: str, proof: Any) -> Verdict: ...

    async def attack(self, p: str, q: str, function: str) -> Verdict: ...


def make_checker(language: str, sandbox: str, **options: Any) -> Checker:
    """The checker of a language; Haskell's options are its own."""
    if language == "python":
        from sparring.pipelines.equivalence.judge.python import PythonChecker

        return PythonChecker(sandbox, **options)
    from sparring.pipelines.equivalence.judge.haskell import HaskellChecker

    return HaskellChecker(sandbox)


def counterexample(verdict: Verdict, function: str) -> str | None:
    """The input in the detail of a refutation, which both checkers write in front."""
    if verdict.kind != "refuted":
        return None
    matched = re.match(rf"(?:input|{re.escape(function)}) (.*?): P ", verdict.detail, re.DOTALL)
    return matched[1] if matched else None

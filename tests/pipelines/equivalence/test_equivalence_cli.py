"""Claims from a file: verdict lines in order, whatever the lines are like."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sparring.core.types import Verdict
from sparring.judge.sandbox import probe
from sparring.pipelines.equivalence.cli import judge_equivalence

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")
P = "def f(n: int) -> int:\n    return n * 2"
SAME = {"p": P, "q": "def f(n: int) -> int:\n    return n + n", "function": "f"}
OTHER = {"p": P, "q": "def f(n: int) -> int:\n    return n * n", "function": "f"}


def judged(path: Path, lines: list[Any], **options: Any) -> tuple[int, list[dict[str, Any]]]:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    path.write_text(text)
    out = io.StringIO()
    code = judge_equivalence(path, True, out=out, crosshair_paths=0, **options)
    return code, [json.loads(line) for line in out.getvalue().splitlines()]


@jail
def test_claims_are_checked_in_order(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "language": "python", **OTHER, "claim": "inequivalent", "input": [3]},
        {"id": "b", **OTHER, "claim": "inequivalent", "input": "[2]"},
        {"id": "c", **SAME, "claim": "equivalent"},
        {"id": "d", **OTHER, "claim": "equivalent"},
        {"id": "e", **OTHER, "claim": "inequivalent"},
        "nonsense\n",
        {"id": "g", **SAME, "claim": "alike"},
        {"id": "h", **SAME, "claim": "equivalent", "language": "perl"},
        {"id": "i", "p": P, "claim": "equivalent"},
    ]
    code, found = judged(tmp_path / "claims.jsonl", lines)
    assert [f["id"] for f in found] == ["a", "b", "c", "d", "e", 6, "g", "h", "i"]
    assert [f["verdict"] for f in found] == ["pass", "fail", "pass", "fail", "fail"] + ["void"] * 4
    kinds = ["differ", "same", "not refuted", "refuted", "input"] + ["input"] * 4
    assert [f["evidence"] for f in found] == kinds
    assert "line 6" in found[5]["detail"] and "equivalent" in found[6]["detail"]
    assert code == 1  # some are void


@jail
def test_strictly_what_is_only_not_refuted_does_not_pass(tmp_path: Path) -> None:
    code, [found] = judged(
        tmp_path / "claims.jsonl", [{"id": 1, **SAME, "claim": "equivalent"}], strict=True
    )
    assert code == 0
    assert (found["verdict"], found["evidence"]) == ("fail", "not refuted")


def test_a_missing_file_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge_equivalence(tmp_path / "none.jsonl") == 2
    assert "no such file" in capsys.readouterr().err


def test_each_language_has_its_own_checker(tmp_path: Path) -> None:
    """Haskell's proof and input are handed on as they are."""
    heard: list[tuple[Any, ...]] = []

    class Fake:
        def __init__(self, language: str) -> None:
            self.language = language

        async def __aenter__(self) -> Fake:
            return self

        async def __aexit__(self, *error: object) -> None:
            heard.append((self.language, "closed"))

        async def equivalent(self, p: str, q: str, function: str, proof: str) -> Verdict:
            heard.append((self.language, proof))
            return Verdict("pass", "proved")

        async def diverges(self, p: str, q: str, function: str, input: str) -> Verdict:
            heard.append((self.language, input))
            return Verdict("pass", "diverges")

    pair = {"p": "p", "q": "q", "function": "f"}
    lines = [
        {"id": 1, "language": "haskell", **pair, "claim": "equivalent", "proof": "lemma x = ()"},
        {"id": 2, "language": "haskell", **pair, "claim": "inequivalent", "input": "3 [1]"},
        {"id": 3, **pair, "claim": "inequivalent", "input": [1]},
    ]
    code, found = judged(tmp_path / "claims.jsonl", lines, make=Fake)
    assert code == 0 and [f["verdict"] for f in found] == ["pass"] * 3
    for said in (("haskell", "lemma x = ()"), ("haskell", "3 [1]"), ("python", [1])):
        assert said in heard
    assert ("python", "closed") in heard and ("haskell", "closed") in heard

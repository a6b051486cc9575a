"""CrossHair inside the jail: symbolic search for an input that tells two functions apart."""

from __future__ import annotations

import ast
import asyncio
import json
from dataclasses import dataclass

from sparring.core.source import unwarned
from sparring.judge.python.judge import Judge
from sparring.pipelines.equivalence.judge.inputs import need_tool
from sparring.pipelines.equivalence.judge.same import SAFETY_S, inside

# What CrossHair imports, for the jail to hold.
PACKAGES = (
    *("crosshair", "_crosshair_tracers", "z3", "packaging", "typeshed_client"),
    *("typing_inspect", "typing_extensions", "mypy_extensions", "importlib_resources"),
)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """kind: counterexample (detail: its literal) | exhausted | not refuted | broken."""

    kind: str
    detail: str
    seconds: float = 0.0


class CrossHair:
    """A jail of its own, begun at the first search: z3 takes more memory than programs may."""

    def __init__(self, sandbox: str, paths: int) -> None:
        self.sandbox, self.paths = sandbox, paths
        self._judge: Judge | None = None
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        if self._judge is not None:
            await self._judge.__aexit__()
            self._judge = None

    async def _opened(self) -> Judge:
        async with self._starting:
            if self._judge is None:
                need_tool("crosshair", "programs are searched symbolically")
                judge = Judge(
                    timeout_s=SAFETY_S,
                    memory_mb=4096,
                    sandbox=self.sandbox,
                    packages=PACKAGES,
                )
                self._judge = await judge.__aenter__()
        return self._judge

    async def search(self, p: str, q: str, function: str, paths: int | None = None) -> SearchResult:
        judge = await self._opened()
        request = {"p": bare(p), "q": bare(q), "function": function, "paths": paths or self.paths}
        done = await judge.run(inside("crosshair_inside"), stdin=json.dumps(request))
        if done.status == "void" or done.kind == "time-out":  # the machine's fault
            return SearchResult("broken", f"CrossHair's jail: {done.detail}", done.seconds)
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
            return SearchResult(str(answer["kind"]), str(answer["detail"]), done.seconds)
        except (ValueError, LookupError, TypeError):
            why = done.detail or done.stderr[-200:]
            return SearchResult("not refuted", f"CrossHair ended early ({why})", done.seconds)


def bare(source: str) -> str:
    """Without comments, in which CrossHair would look for contracts, docstrings, and what else of
    its writing makes no difference."""
    with unwarned():
        tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree))

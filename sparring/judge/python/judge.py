"""Judges Python programs by their tests: the program makes values, and only the judge rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sparring.core.types import Verdict
from sparring.judge.python.expressions import TooMuch, evaluate
from sparring.judge.python.hoisting import Check
from sparring.judge.python.names import BUILTINS
from sparring.judge.python.plan import BadTests, Plan, for_the_link, plan_tests
from sparring.judge.sandbox.bwrap import SandboxMissing
from sparring.judge.sandbox.inside import wire
from sparring.judge.sandbox.outcome import LARGE, Execution, Limits
from sparring.judge.sandbox.pool import Pool

__all__ = ["BadTests", "Execution", "Judge", "Limits"]

MOST_SOURCE = 1 << 20
USES_FILES = re.compile(
    r"open\s*\(|tempfile|/tmp|shutil|pathlib|sqlite3|multiprocessing|concurrent|mkdir|shelve|mmap"
    r"|\bos\.(?:path\.(?:exists|is|get)|listdir|scandir|walk|stat|remove|unlink|rmdir|rename)"
)
DEFINED = re.compile(r"^(?:async\s+)?(?:def|class)\s+(\w+)|^(\w+)\s*=", re.MULTILINE)


class Judge:
    """Rules on programs, `workers` at a time.

        async with Judge(timeout_s=3) as judge:
            verdict = await judge.tests(code, ["assert double(2) == 4"])

    Without bubblewrap, entering raises SandboxMissing, unless `sandbox="unsafe"`.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout_s: float = 5.0,
        memory_mb: int = 1024,
        output_bytes: int = 16 << 20,
        sandbox: str = "bubblewrap",
        python: str | None = None,
        packages: Sequence[str] = ("numpy",),
    ) -> None:
        limits = Limits(timeout_s=timeout_s, memory_mb=memory_mb, output_bytes=output_bytes)
        self.pool = Pool(workers, limits=limits, sandbox=sandbox, python=python, packages=packages)

    async def __aenter__(self) -> Judge:
        await self.pool.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.pool.close()

    async def run(
        self,
        code: str,
        *,
        stdin: str = "",
        hash_seed: int = 0,
        timeout_s: float | None = None,
    ) -> Execution:
        """Run a whole program in a fresh process and keep what it printed."""
        refusal = _refused(code)
        if refusal:
            return Execution("fail", "syntax", refusal)
        request = {"mode": "program", "code": code, "files": bool(USES_FILES.search(code))}
        try:
            return await self.pool.execute(
                request,
                timeout_s=timeout_s,
                stdin=stdin.encode("utf-8", errors="surrogatepass"),
                hash_seed=hash_seed,
                whole=True,
            )
        except SandboxMissing as error:
            return Execution("void", "jail", str(error))

    async def tests(
        self,
        code: str,
        tests: str | Sequence[str],
        *,
        setup: str = "",
        entry: str | Sequence[str] | None = None,
        timeout_s: float | None = None,
    ) -> Verdict:
        """Rule on a program by tests: asserts, or a `check(candidate)` with its entry named.

        `entry` names the functions under test: a check() is given them, in this order, and one
        that is called like a builtin is the program's. `setup` runs after the program and before
        the tests, and, like them, out of its sight."""
        refusal = _refused(code)
        if refusal:
            return Verdict("fail", "syntax", refusal)
        try:
            plan = plan_tests(_texts(tests), setup or "", _names(entry), _defined(code))
        except BadTests as error:
            return Verdict("void", "tests", str(error))
        try:
            if plan.simple:
                verdict = await self._by_values(code, plan, timeout_s)
                if verdict is not None:
                    return verdict
            return await self._by_link(code, plan, timeout_s)
        except BadTests as error:  # they parse, and do not compile
            return Verdict("void", "tests", str(error))
        except SandboxMissing as error:
            return Verdict("void", "jail", str(error))

    async def _by_values(self, code: str, plan: Plan, timeout_s: float | None) -> Verdict | None:
        request = {
            "mode": "calls",
            "code": code,
            "calls": plan.calls,
            "imports": plan.imports,
            "files": _uses_files(code, plan),  # an argument may be a file of the tests
        }
        done = await self.pool.execute(request, timeout_s=timeout_s)
        return rule(plan, done)

    async def _by_link(self, code: str, plan: Plan, timeout_s: float | None) -> Verdict:
        program = {"mode": "serve", "code": code, "files": _uses_files(code, plan)}
        tests = {
            "mode": "tests",
            "parts": plan.parts,
            "entry": plan.entry,
            "check": plan.call_check,
            "shadow": plan.shadow,
            **for_the_link(plan.parts, plan.shadow),
            "files": _of_files(plan.parts),
        }
        served, checked = await self.pool.execute_pair(program, tests, timeout_s=timeout_s)
        return rule_pair(served, checked)


def _uses_files(code: str, plan: Plan) -> bool:
    return _of_files(plan.parts) or bool(USES_FILES.search(code))


@lru_cache(maxsize=64)
def _of_files(parts: tuple[tuple[str, str], ...]) -> bool:
    return any(USES_FILES.search(text) for _, text in parts)


def _refused(code: Any) -> str:
    if not isinstance(code, str):
        return f"the code is not text but {type(code).__name__}"
    if len(code) > MOST_SOURCE:
        return f"the code has {len(code)} characters; the most is {MOST_SOURCE}"
    return ""


def _texts(tests: Any) -> tuple[str, ...]:
    texts = (tests,) if isinstance(tests, str) else tuple(tests or ())
    for text in texts:
        if not isinstance(text, str):
            raise BadTests(f"a test is not text but {type(text).__name__}")
    return texts


def _names(entry: str | Sequence[str] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def _defined(code: str) -> frozenset[str]:
    return frozenset(a or b for a, b in DEFINED.findall(code)) & BUILTINS


def rule(plan: Plan, done: Execution) -> Verdict | None:
    """The verdict on the values of one execution; None when they are not all plain data, or too
    large to be worked with outside a jail."""
    if done.result is LARGE:
        return None
    if done.status == "void":
        return Verdict("void", done.kind, done.detail, done.seconds)
    sent = done.result.get("values") if type(done.result) is dict else None
    values: list[Any] = []
    try:
        for item in sent if type(sent) is list else []:
            if type(item) is list and item[:1] == ["?"]:
                return None
            value = wire.decode(item, wire.outside)
            if isinstance(value, wire.Array):
                return None
            values.append(value)
    except TooMuch:
        return None
    except (wire.WireError, RecursionError) as error:
        return Verdict(
            "fail", "exception", f"the program's value is not data: {error}", done.seconds
        )
    needed = 0
    for check in plan.checks:
        needed += len(check.numbers)
        if needed > len(values):
            if done.status == "fail":
                return Verdict(
                    "fail", done.kind, f"{done.detail} ({check.source:.200})", done.seconds
                )
            return Verdict("fail", "exception", f"no value for {check.source:.200}", done.seconds)
        try:
            verdict = _rule_one(check, values, done.seconds)
        except TooMuch:
            return None
        if verdict is not None:
            return verdict
    if done.status == "fail":  # every value was sent, and yet it did not end well
        return Verdict("fail", done.kind, done.detail, done.seconds)
    return Verdict("pass", seconds=done.seconds)


def _rule_one(check: Check, values: list[Any], seconds: float) -> Verdict | None:
    try:
        if evaluate(check.test, values):
            return None
    except TooMuch:
        raise
    except Exception as error:
        detail = f"{check.source:.200}: {type(error).__name__}: {error!s:.200}"
        return Verdict("fail", "wrong value", detail, seconds)
    got = ", ".join(_short_repr(values[number]) for number in check.numbers)
    return Verdict("fail", "wrong value", f"{check.source:.300}: got {got}", seconds)


def _short_repr(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= 200 else text[:200] + "…"


def rule_pair(served: Execution, checked: Execution) -> Verdict:
    """The verdict of a run of whole tests, by what became of both processes."""
    seconds = max(served.seconds, checked.seconds)
    for done in (served, checked):
        if done.status == "void":
            return Verdict("void", done.kind, done.detail, seconds)
    if checked.kind == "time-out":
        # Before the program was ready, and once they have a value of it, it may be what keeps
        # them: an endless import, range(10 ** 12).
        if type(checked.result) is dict and checked.result.get("idle_tests"):
            return Verdict("void", "tests", "the tests themselves did not end", seconds)
        return Verdict("fail", "time-out", checked.detail, seconds)
    ruled = checked.result if type(checked.result) is dict else {}
    if ruled.get("verdict") == "pass" and checked.status == "ok":
        return Verdict("pass", seconds=seconds)
    if ruled.get("lost") and served.status == "fail":
        return Verdict("fail", served.kind, served.detail, seconds)
    unusable = ruled.get("verdict") == "void" and not checked.exit_code  # and so the tests' word
    if unusable or ruled.get("verdict") == "fail":
        kind, detail = str(ruled["kind"]), str(ruled["detail"])
        return Verdict("void" if unusable else "fail", kind, detail, seconds)
    return Verdict("fail", checked.kind or "exception", checked.detail or "no verdict", seconds)

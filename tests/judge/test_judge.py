"""The judge as its callers see it: verdicts, kinds, voids, and a pool that lives on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.judge.sandbox import SandboxMissing, bwrap, probe
from sparring.judge.sandbox.zygotes import Running

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")


def with_judge(body: Callable[[Judge], Awaitable[Any]], **options: Any) -> Any:
    async def go() -> Any:
        async with Judge(**options) as judge:
            return await body(judge)

    return asyncio.run(go())


def verdict(code: Any, tests: Any, **more: Any) -> Verdict:
    return with_judge(lambda judge: judge.tests(code, tests, **more), timeout_s=2)


@jail
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("def f(n): return n", "wrong value"),
        ("def f(n): return 1 / 0", "exception"),
        ("def g(n): return 1", "exception"),
        ("def f(n):\n    while 1: pass", "time-out"),
        ("def f(n): return 'x' * 10 ** 12", "memory"),
        ("def f(n) return 1", "syntax"),
        ("def f(n):\n  if n:\nreturn 1", "syntax"),
        ("def f(n):\n    while 1: print('x' * 999)", "output limit"),
        ("import socket\ndef f(n): socket.socket()", "forbidden call"),
        ("import ctypes\ndef f(n): ctypes.CDLL(None).ptrace(0, 0, 0, 0)", "forbidden call"),
    ],
)
def test_kinds_of_fail(code: str, kind: str) -> None:
    found = verdict(code, ["assert f(3) == 7"], timeout_s=1)
    assert (found.status, found.kind) == ("fail", kind), found
    assert found.detail and found.seconds > 0


@jail
def test_a_wrong_value_is_shown_beside_its_test() -> None:
    found = verdict("def f(n): return n + 1", ["assert f(1) == 2", "assert f(2) == 5"])
    assert found.detail == "f(2) == 5: got 3"


@jail
@pytest.mark.parametrize(
    ("code", "tests", "status", "says"),
    [
        ("def f(): return 1", [], "void", "no tests"),
        ("def f(): return 1", ["assert f( =="], "void", "test 1 line 1"),
        ("def f(): return 1", ["assert True"], "void", "call nothing"),
        ("def f(): return 1", [5], "void", "not text"),
        (12, ["assert f() == 1"], "fail", "not text but int"),
        (None, ["assert f() == 1"], "fail", "not text but NoneType"),
        ("#" * 10_000_000, ["assert f() == 1"], "fail", "10000000 characters"),
    ],
)
def test_bad_input_is_said(code: Any, tests: Any, status: str, says: str) -> None:
    async def body(judge: Judge) -> tuple[Verdict, Verdict]:
        bad = await judge.tests(code, tests)
        return bad, await judge.tests("def f(): return 1", ["assert f() == 1"])

    bad, good = with_judge(body)
    assert bad.status == status and says in bad.detail
    assert good.passed


@jail
def test_a_slow_program_delays_no_other_even_with_one_worker() -> None:
    async def body(judge: Judge) -> tuple[float, list[Verdict], Verdict]:
        slow = asyncio.ensure_future(
            judge.tests("import time\ntime.sleep(60)", ["assert f() == 1"])
        )
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        quick = await asyncio.gather(
            *[judge.tests("def f(): return 1", ["assert f() == 1"]) for _ in range(20)]
        )
        return time.perf_counter() - start, quick, await slow

    took, quick, slow = with_judge(body, workers=1, timeout_s=4)
    assert all(v.passed for v in quick) and took < 3
    assert (slow.status, slow.kind) == ("fail", "time-out")


@jail
def test_a_dead_jail_is_a_void_and_the_pool_lives_on() -> None:
    async def body(judge: Judge) -> tuple[Verdict, Verdict]:
        pending = asyncio.ensure_future(
            judge.tests("import time\ntime.sleep(9)\ndef f(): return 1", ["assert f() == 1"])
        )
        while not pending.done():  # whichever jail it has got to by now
            for zygote in judge.pool._zygotes.values():
                if zygote.jobs:
                    zygote.process.kill()
            await asyncio.sleep(0.05)
        return await pending, await judge.tests("def f(): return 1", ["assert f() == 1"])

    broken, after = with_judge(body)
    assert (broken.status, broken.kind) == ("void", "jail")
    assert after.passed


@jail
def test_a_jail_killed_once_while_a_program_runs_changes_no_verdict() -> None:
    async def body(judge: Judge) -> Verdict:
        program = "import time\ntime.sleep(0.6)\ndef f(): return 1"
        pending = asyncio.ensure_future(judge.tests(program, ["assert f() == 1"]))
        while not (busy := [z for z in judge.pool._zygotes.values() if z.jobs]):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.4)  # longer than what counts as quick
        busy[0].process.kill()
        return await pending

    assert with_judge(body).passed


@jail
def test_a_jail_killed_as_it_starts_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    launch, killed = bwrap.launch, []

    def fragile(**options: Any) -> Any:
        process, control = launch(**options)
        if not killed:
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)
        return process, control

    monkeypatch.setattr(bwrap, "launch", fragile)
    assert bwrap.probe.__wrapped__().ok and killed
    assert no_process_of_group(killed.pop())
    assert with_judge(lambda judge: judge.tests("def f(): return 1", ["assert f() == 1"])).passed
    assert no_process_of_group(killed.pop())


def no_process_of_group(leader: int) -> bool:
    """Soon, for what was killed may take a moment to die on a busy machine. Zombies do not count:
    whoever inherits them may reap them late."""
    deadline = time.monotonic() + 10
    while (alive := _states_of_group(leader) - {"Z", "X"}) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive


def _states_of_group(leader: int) -> set[str]:
    states = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
            states |= {state} if int(group) == leader else set()
    return states


@jail
def test_what_is_left_of_a_jail_killed_as_it_starts_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment bwrap's child does not yet die with it, and holds the jail's socket open."""
    stand_in = tmp_path / "bwrap"
    stand_in.write_text(
        f"#!/bin/sh\nexec 3<&0\nsleep 999 &\necho $$ >> {tmp_path}/log\nkill -9 $$\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(stand_in))
    monkeypatch.setattr(bwrap, "START_S", float("inf"))  # none waits for a jail that has ended
    assert not bwrap.probe.__wrapped__().ok
    with pytest.raises(SandboxMissing, match="did not start"):
        verdict("def f(): return 1", ["assert f() == 1"])
    leaders = (tmp_path / "log").read_text().split()
    assert len(leaders) == 4 and all(no_process_of_group(int(leader)) for leader in leaders)


@jail
def test_a_jail_that_cannot_be_restarted_is_a_void(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(judge: Judge) -> Verdict:
        for zygote in judge.pool._zygotes.values():
            zygote.stop()
        monkeypatch.setattr("shutil.which", lambda name: None)
        return await judge.tests("def f(): return 1", ["assert f() == 1"])

    found = with_judge(body)
    assert found.status == "void" and "bubblewrap" in found.detail


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SandboxMissing, match=r"install.*bubblewrap") as error:
        verdict("def f(): return 1", ["assert f() == 1"])
    assert "unsafe" in str(error.value)


def test_unsafe_has_to_be_said_and_then_works_without_bubblewrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)

    async def body(judge: Judge) -> list[Verdict]:
        return [
            await judge.tests("def f(): return 1", ["assert f() == 1"]),
            await judge.tests("def f(): return 2", ["x = f()\nassert x == 1"]),
            await judge.tests("while 1: pass", ["assert f() == 1"], timeout_s=0.5),
        ]

    found = with_judge(body, sandbox="unsafe")
    assert [v.status for v in found] == ["pass", "fail", "fail"]
    assert found[2].kind == "time-out"
    with pytest.raises(ValueError, match="unsafe"):
        Judge(sandbox="none")


@jail
def test_run_keeps_output_and_tells_kinds_apart() -> None:
    async def body(judge: Judge) -> list[Any]:
        return await asyncio.gather(
            judge.run("print(input() + '!')", stdin="hey"),
            judge.run("print('a')\n1 / 0"),
            judge.run("print('a'"),
            judge.run("print('x', flush=True)\nwhile True: pass", timeout_s=0.5),
            judge.run("pass"),
            judge.run("import sys; sys.exit(3)"),
        )

    done = with_judge(body)
    assert [d.status for d in done] == ["ok", "fail", "fail", "fail", "ok", "fail"]
    assert [d.kind for d in done] == ["", "exception", "syntax", "time-out", "", "exception"]
    assert [d.stdout for d in done] == ["hey!\n", "a\n", "", "x\n", "", ""]
    assert "ZeroDivisionError" in done[1].stderr and done[5].exit_code == 3


@jail
def test_fresh_processes_with_their_own_hash_seeds() -> None:
    code = "import os\nprint(hash('word'))"

    async def body(judge: Judge) -> list[str]:
        return [(await judge.run(code, hash_seed=seed)).stdout for seed in (0, 1, 2, 1, 0)]

    a, b, c, b_again, a_again = with_judge(body)
    assert len({a, b, c}) == 3 and (a, b) == (a_again, b_again)


@jail
def test_a_cancelled_run_is_ended() -> None:
    async def body(judge: Judge) -> tuple[int, Verdict]:
        task = asyncio.ensure_future(judge.run("while True: pass", timeout_s=60))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.3)
        left = sum(len(z.jobs) for z in judge.pool._zygotes.values())
        return left, await judge.tests("def f(): return 1", ["assert f() == 1"])

    left, after = with_judge(body)
    assert left == 0 and after.passed


@jail
def test_many_at_once_lose_nothing() -> None:
    async def body(judge: Judge) -> list[Verdict]:
        return await asyncio.gather(
            *[
                judge.tests(f"def f(): return {n % 7}", [f"assert f() == {n % 5}"])
                for n in range(300)
            ]
        )

    found = with_judge(body)
    assert [v.passed for v in found] == [n % 7 == n % 5 for n in range(300)]
    assert {v.status for v in found} == {"pass", "fail"}


@jail
def test_values_and_whole_tests_rule_alike() -> None:
    """The same tests by both ways, on right and on wrong programs."""
    programs = [
        "def f(x): return [x, {x: (1, 2.5)}]",
        "def f(x): return [x, {x: [1, 2.5]}]",
        "def f(x): raise ValueError",
        "def f(x): return (i for i in [x, {x: (1, 2.5)}])",
    ]
    simple = ["assert f(1) == [1, {1: (1, 2.5)}]"]
    whole = ["if True:\n    assert f(1) == [1, {1: (1, 2.5)}]"]

    async def body(judge: Judge) -> list[tuple[str, str]]:
        return [
            ((await judge.tests(p, simple)).status, (await judge.tests(p, whole)).status)
            for p in programs
        ]

    assert with_judge(body) == [
        ("pass", "pass"),
        ("fail", "fail"),
        ("fail", "fail"),
        ("fail", "fail"),
    ]


@jail
def test_tests_that_compile_to_nothing_are_void() -> None:
    ruled = verdict("def f(n): return n", "for n in range(3):\n    assert f(n) == n\nreturn")
    assert (ruled.status, ruled.kind) == ("void", "tests")
    assert "outside function" in ruled.detail


@jail
def test_a_program_that_keeps_its_tests_waiting_fails_on_a_crowded_processor() -> None:
    """The tests sleep while the program waits for a processor: time that counts for neither, or
    they would end first and the endless import would be called a fault of the tests."""
    cores = os.sched_getaffinity(0)
    one = {min(cores)}
    os.sched_setaffinity(0, one)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        tests = "for n in range(3):\n    assert f(n) == n"
        endless = verdict("while True: pass", tests, timeout_s=0.4)
        idle = verdict("def f(n): return n", f"while True: pass\n{tests}", timeout_s=0.4)
    finally:
        for process in busy:
            process.kill()
            process.wait()
        os.sched_setaffinity(0, cores)
    assert (endless.status, endless.kind) == ("fail", "time-out")
    assert (idle.status, idle.kind) == ("void", "tests")


@jail
def test_a_call_with_less_time_than_others_ran_out_of_its_own(monkeypatch) -> None:
    """Also where the processor's limit is first, because the judge's own clock is late."""
    monkeypatch.setattr(Running, "deadline", lambda self: None)
    code, tests = "def f():\n    while True: pass", ["assert f() == 1"]
    ruled = with_judge(lambda judge: judge.tests(code, tests, timeout_s=0.5), timeout_s=10)
    assert (ruled.status, ruled.kind) == ("fail", "time-out")

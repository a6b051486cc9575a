"""The jail from inside, and as users of several kinds get it."""

# ruff: noqa: E501  (programs in strings: breaking them would hide their shape)

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparring.judge.sandbox import Execution, Limits, Pool, probe, procfs
from sparring.judge.sandbox.bwrap import install_command, jail_command

jail = pytest.mark.skipif(not probe().ok, reason=f"{probe().explanation}: {probe().install}")


def run(*programs: str, limits: Limits | None = None, **options: Any) -> list[Execution]:
    async def go() -> list[Execution]:
        async with Pool(limits=limits, **options) as pool:
            return [
                await pool.execute({"mode": "program", "code": code, "files": True}, whole=True)
                for code in programs
            ]

    return asyncio.run(go())


LOOK = """
import json, os, ctypes, resource
libc = ctypes.CDLL(None)
print(json.dumps({
    'uid': os.getuid(), 'pid': os.getpid(), 'sid': os.getsid(0), 'root': sorted(os.listdir('/')),
    'env': sorted(os.environ), 'fds': [fd for fd in range(256) if not libc.fcntl(fd, 1) < 0],
    'nnp': libc.prctl(39, 0, 0, 0, 0), 'seccomp': libc.prctl(21, 0, 0, 0, 0),
    'caps': [c for c in range(41) if libc.prctl(24, c, 0, 0, 0) > 0 and libc.prctl(47, 1, c, 0, 0) > 0],
    'nproc': resource.getrlimit(resource.RLIMIT_NPROC)[1],
    'core': resource.getrlimit(resource.RLIMIT_CORE)[1],
    'host': os.uname().nodename,
}))
"""


@jail
def test_what_a_program_finds_around_it() -> None:
    seen = json.loads(run(LOOK)[0].stdout)
    assert seen["uid"] != 0 and seen["pid"] == 1 and seen["sid"] == 1
    assert "proc" not in seen["root"] and "home" not in seen["root"] and "sys" not in seen["root"]
    assert set(seen["env"]) <= {
        "HOME",
        "PATH",
        "PWD",
        "PYTHONHASHSEED",
        "OPENBLAS_NUM_THREADS",
        "LC_CTYPE",
    }
    assert set(seen["fds"]) <= {0, 1, 2, 4, 5}
    assert (seen["nnp"], seen["seccomp"], seen["caps"]) == (1, 2, [])
    assert seen["nproc"] <= 64 and seen["core"] == 0 and seen["host"] == "jail"


@jail
def test_a_program_hands_its_streams_to_its_processes_and_nothing_else() -> None:
    count = (
        "import os\nprint([fd for fd in range(64) if os.path.exists('/dev/null') and _open(fd)])"
    )
    count = (
        "import os\ndef _open(fd):\n    try:\n        os.fstat(fd)\n        return True\n    except OSError:\n        return False\n"
        + count
    )
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {count!r}])"
    assert run(code)[0].stdout == "[0, 1, 2]\n"


@jail
def test_signals_threads_and_random_work_in_a_fork_and_in_its_forks() -> None:
    code = """
import os, random, signal, threading
signal.signal(signal.SIGUSR1, lambda number, frame: print('heard', flush=True))
signal.raise_signal(signal.SIGUSR1)
signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
for _ in range(2):
    reader, writer = os.pipe()
    if os.fork() == 0:
        thread = threading.Thread(target=lambda: os.write(writer, b'%r' % random.random()))
        thread.start(), thread.join(), signal.raise_signal(signal.SIGUSR1), os._exit(0)
    os.wait()
    print(float(os.read(reader, 99)) != random.random(), threading.get_native_id(), flush=True)
"""
    assert run(code)[0].stdout == "heard\nheard\n" + "heard\nTrue 1\n" * 2


@jail
def test_capabilities_are_gone() -> None:
    code = ("import ctypes, struct\nlibc = ctypes.CDLL(None)\nhead = struct.pack('=Ii', 0x20080522, 0)\n"
            "data = ctypes.create_string_buffer(24)\nlibc.capget(head, data)\nprint(data.raw.hex())")  # fmt: skip
    assert run(code)[0].stdout.strip() == "00" * 24


@jail
def test_what_one_writes_the_next_does_not_find() -> None:
    write = "open('/tmp/a', 'w').write('x')\nopen('/dev/shm/b', 'w').write('x')\nprint('ok')"
    read = "import os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'))"
    done = run(*[write, read] * 4)
    assert [d.stdout for d in done] == ["ok\n", "[] []\n"] * 4


@jail
def test_processes_of_one_are_not_counted_against_another() -> None:
    hog = "import os, time\nfor _ in range(60):\n    if os.fork() == 0:\n        time.sleep(9)\ntime.sleep(9)"
    threads = ("import threading, time\nts = [threading.Thread(target=time.sleep, args=(0.05,)) for _ in range(40)]\n"
               "[t.start() for t in ts]\nprint(len(ts))")  # fmt: skip

    async def go() -> tuple[Execution, Execution]:
        async with Pool(limits=Limits(timeout_s=3)) as pool:
            first = asyncio.ensure_future(
                pool.execute({"mode": "program", "code": hog}, whole=True)
            )
            await asyncio.sleep(0.7)
            second = await pool.execute({"mode": "program", "code": threads}, whole=True)
            return await first, second

    first, second = asyncio.run(go())
    assert first.kind == "time-out" and second.stdout == "40\n", second.stderr


@jail
def test_memory_of_many_processes_is_added_up() -> None:
    code = ("import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = b'x' * (100 << 20)\n"
            "        time.sleep(20)\ntime.sleep(20)")  # fmt: skip
    done = run(code, limits=Limits(timeout_s=10, memory_mb=256))[0]
    assert (done.status, done.kind) == ("fail", "memory") and done.seconds < 8


@jail
def test_nothing_is_left_behind_when_the_pool_closes() -> None:
    async def go() -> list[int]:
        async with Pool() as pool:
            running = asyncio.ensure_future(
                pool.execute(
                    {"mode": "program", "code": "import time; time.sleep(60)"}, timeout_s=60
                )
            )
            pids = [0]
            while not all(pids):  # a process is known to the pool when it turns out to be slow
                await asyncio.sleep(0.1)
                pids = [z.process.pid for z in pool._zygotes.values()]
                pids += [job.pid for z in pool._zygotes.values() for job in z.jobs.values()] or [0]
        assert (await running).status == "void"
        return pids

    pids = asyncio.run(go())
    assert len(pids) >= 2 and all(pids)
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@jail
def test_descriptors_are_not_leaked() -> None:
    async def go() -> tuple[int, int]:
        async with Pool() as pool:
            request = {"mode": "program", "code": "print(1)"}
            await asyncio.gather(*[pool.execute(request, stdin=b"x", whole=True) for _ in range(8)])
            before = len(os.listdir("/proc/self/fd"))
            await asyncio.gather(
                *[pool.execute(request, stdin=b"x", whole=True) for _ in range(50)]
            )
            return before, len(os.listdir("/proc/self/fd"))

    before, after = asyncio.run(go())
    assert before == after


def test_the_command_names_no_writable_bind_and_drops_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    for uid in (0, 1000):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        words = jail_command(sys.executable, (), ["-c", "pass"], 0)
        assert "--bind" not in words and "--share-net" not in words
        assert {
            "--unshare-net",
            "--unshare-pid",
            "--unshare-user",
            "--clearenv",
            "--new-session",
        } <= set(words)
        assert ("CAP_SETUID" in words) == (uid == 0)


@jail
def test_an_ordinary_user_has_the_same_jail() -> None:
    if os.geteuid() != 0:
        pytest.skip("these tests already run as an ordinary user")
    python = "/usr/bin/python3"
    package = Path(__file__).parents[3]
    probe_line = "import sys; sys.exit(sys.version_info < (3, 11))"
    reachable = subprocess.run(
        [python, "-c", probe_line], user=1234, group=1234, capture_output=True
    )
    readable = subprocess.run(
        ["/bin/cat", package / "sparring/core/types.py"], user=1234, capture_output=True
    )
    if reachable.returncode or readable.returncode:
        pytest.skip("no Python 3.11 that another user may run, or the checkout is closed to others")
    code = (
        "import asyncio\nfrom sparring.judge.python.judge import Judge\n"
        "async def go():\n    async with Judge() as judge:\n"
        "        right = await judge.tests('def f(): return 1', ['assert f() == 1'])\n"
        "        whole = await judge.tests('def f(): return 1', ['x = f()\\nassert x == 1'])\n"
        "        bomb = await judge.tests('import os\\nwhile 1: os.fork()', ['assert f() == 1'], timeout_s=1)\n"
        "        print(right.status, whole.status, bomb.status)\nasyncio.run(go())"
    )
    done = subprocess.run(
        [python, "-c", code], user=1234, group=1234, extra_groups=[], capture_output=True, text=True,
        env={"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]}, cwd="/",
    )  # fmt: skip
    assert done.stdout == "pass pass fail\n", done.stderr


def test_probe_explains_and_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "bubblewrap" in install_command()
    found = probe()
    assert found.ok or found.explanation
    monkeypatch.setattr("shutil.which", lambda name: None)
    probe.cache_clear()
    try:
        missing = probe()
    finally:
        probe.cache_clear()
    assert not missing.ok and "not installed" in missing.explanation and missing.install


def test_usage_counts_descendants() -> None:
    script = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(2)']); print('up', flush=True); time.sleep(9)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            used = procfs.usage([process.pid])[process.pid]
            assert used.tasks >= 2 and used.bytes > 5 << 20
        finally:
            process.kill()

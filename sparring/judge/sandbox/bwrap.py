"""The bubblewrap command of the jail, and whether this machine can have one at all."""

from __future__ import annotations

import importlib.util
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from sparring.judge.sandbox import seccomp
from sparring.judge.sandbox.outcome import Limits

NOBODY = 65534
START_S = 30.0  # within which a jail has started, on however busy a machine
INSIDE = Path(__file__).parent / "inside"
# Not random, nor what imports it: it reseeds itself in every fork, which costs more than importing.
PRELOAD = (
    "math", "re", "collections", "itertools", "functools", "heapq", "string", "typing",
    "datetime", "operator", "bisect", "copy", "enum", "abc", "decimal", "fractions", "hashlib",
)  # fmt: skip
DEVICES = ("null", "zero", "full", "random", "urandom")
BOOT = "import sys; sys.path.insert(0, {where!r}); from inside.boot import main; main()"
DROP = f"""import os, sys
os.setgroups([])
os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
os.execv(sys.argv[1], sys.argv[1:])"""


class SandboxMissing(RuntimeError):
    """There is no jail to be had here; the message says why and what to do."""


class Probe(NamedTuple):
    ok: bool
    explanation: str
    install: str


def install_command() -> str:
    known = {
        "apt-get": "apt-get install -y bubblewrap",
        "dnf": "dnf install -y bubblewrap",
        "apk": "apk add bubblewrap",
        "pacman": "pacman -S --noconfirm bubblewrap",
        "zypper": "zypper install -y bubblewrap",
    }
    sudo = "" if os.geteuid() == 0 else "sudo "
    command = next((line for tool, line in known.items() if shutil.which(tool)), known["apt-get"])
    return sudo + command


@lru_cache(maxsize=1)
def probe() -> Probe:
    """Whether a jail can be built here: tried, not guessed."""
    install = install_command()
    if sys.platform != "linux":
        return Probe(False, f"the jail needs Linux, and this is {sys.platform}", install)
    if shutil.which("bwrap") is None:
        return Probe(False, "bubblewrap (bwrap) is not installed", install)
    for _ in range(2):  # one that was killed, or that a busy machine kept waiting, is no proof
        failure = _try_jail()
        if not failure:
            return Probe(True, "programs run in a bubblewrap jail", install)
    return Probe(False, failure, install)


def _try_jail() -> str:
    """Why a jail did not start; nothing if it did."""
    try:
        seccomp.programs()
        with tempfile.TemporaryFile() as errors:
            process, control = launch(hash_seed=0, errors=errors.fileno())
            with control:
                answered, until = False, time.monotonic() + START_S
                while not answered and not exited(process) and time.monotonic() < until:
                    answered = bool(select.select([control], [], [], 0.1)[0])
                answer = control.recv(16) if answered else b""
            end(process)
            errors.seek(0)
            stderr = errors.read().decode(errors="replace").strip()
    except (OSError, SandboxMissing) as error:
        return f"the jail did not start: {error}"
    if answer.startswith(b"R"):
        return ""
    hint = "unprivileged user namespaces may be switched off (sysctl user.max_user_namespaces)"
    return f"bwrap is there but the jail did not start: {stderr[-400:] or 'no output'}; {hint}"


def system() -> list[str]:
    """The read-only system: /usr, and the old top-level names as the host has them."""
    words = ["--ro-bind", "/usr", "/usr"]
    for name in ("lib", "lib64", "lib32", "bin", "sbin"):
        path = Path("/") / name
        if path.is_symlink():
            words += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    words += folder("/etc")
    if Path("/etc/ld.so.cache").exists():
        words += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    return words


def folder(path: str) -> list[str]:
    return ["--perms", "0755", "--dir", path]


def devices() -> list[str]:
    words = folder("/dev")
    for name in DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    return words


def bind(source: Path, target: str) -> list[str]:
    """A read-only bind whose parents anyone may walk through, whatever they are on the host."""
    words: list[str] = []
    for parent in list(reversed(Path(target).parents))[1:]:
        words += folder(str(parent))
    return [*words, "--ro-bind", str(source), target]


def interpreter(python: str) -> tuple[str, list[str]]:
    """The real interpreter behind a virtual environment, and what it needs mounted."""
    real = os.path.realpath(python)
    prefixes = {sys.base_prefix, sys.base_exec_prefix}
    if real != os.path.realpath(sys.executable):
        prefixes = {str(Path(real).parent.parent)}
    words: list[str] = []
    for prefix in sorted(os.path.realpath(p) for p in prefixes):
        if prefix != "/usr" and not prefix.startswith("/usr/"):
            words += bind(Path(prefix), prefix)
    return real, words


def _packages(python: str, packages: Sequence[str]) -> list[str]:
    """Third-party packages of this environment that programs may import, such as numpy."""
    if os.path.realpath(python) != os.path.realpath(sys.executable):
        return []
    words: list[str] = []
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec and spec.origin and not spec.submodule_search_locations:
            words += bind(Path(spec.origin), f"/jail/site/{Path(spec.origin).name}")
        for location in (spec.submodule_search_locations or []) if spec else []:
            for folder in (Path(location), Path(location).parent / f"{name}.libs"):
                if folder.is_dir():
                    words += bind(folder, f"/jail/site/{folder.name}")
    return words


def program() -> str:
    """bwrap itself, or SandboxMissing."""
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxMissing(
            "programs are judged in a bubblewrap jail, and bwrap is not installed: "
            f"{install_command()}  (or say sandbox: unsafe, and they run with your rights)"
        )
    return path


def isolated(path: str, **variables: str) -> list[str]:
    """Nobody, with namespaces of its own for everything, and an environment of these variables."""
    words = [
        program(), "--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--unshare-pid",
        "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--hostname", "jail", "--die-with-parent", "--new-session", "--clearenv",
    ]  # fmt: skip
    for name, value in {"PATH": path, "HOME": "/tmp", **variables}.items():
        words += ["--setenv", name, value]
    return words


def become_nobody(inner: list[str], mounts: list[str], python: str) -> list[str]:
    """The command of a jail, for whoever starts it. Root's processes are never counted against
    RLIMIT_NPROC, so root first becomes nobody; and since nobody may not walk to everything that has
    to be mounted, an outer layer mounts it."""
    if os.geteuid() != 0:
        return inner
    bwrap = program()
    return [
        bwrap, "--unshare-pid", "--die-with-parent", *mounts, *devices(),
        *bind(Path(bwrap), bwrap), "--proc", "/proc", *folder("/tmp"),
        "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--",
        python, "-I", "-S", "-c", DROP, *inner,
    ]  # fmt: skip


def jail_command(
    python: str, packages: Sequence[str], zygote: list[str], hash_seed: int
) -> list[str]:
    variables = {"PYTHONHASHSEED": str(hash_seed), "OPENBLAS_NUM_THREADS": "1"}
    variables["LD_BIND_NOW"] = "1"  # for the zygote, which takes it away again
    inner = isolated("/usr/bin:/bin", **variables)
    real, needs = interpreter(python)
    inner += [
        *system(), *needs, *bind(INSIDE, "/jail/inside"), *_packages(python, packages),
        *devices(), *folder("/dev/shm"), *folder("/tmp"), "--remount-ro", "/", "--chdir", "/tmp",
        "--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN", "--", real, *zygote,
    ]  # fmt: skip
    outside = [*bind(INSIDE, str(INSIDE)), *_packages_outside(python, packages)]
    return become_nobody(inner, [*system(), *needs, *outside], real)


def _packages_outside(python: str, packages: Sequence[str]) -> list[str]:
    """The same packages at their own paths, for the inner layer to find."""
    words = _packages(python, packages)
    sources = [words[n + 1] for n, word in enumerate(words) if word == "--ro-bind"]
    return [word for source in sources for word in bind(Path(source), source)]


def launch(
    *,
    hash_seed: int,
    errors: int,
    python: str | None = None,
    packages: Sequence[str] = ("numpy",),
    preload: Sequence[str] = PRELOAD,
    jailed: bool = True,
    limits: Limits | None = None,
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a zygote and return it with the host's end of its control socket."""
    python = python or sys.executable
    config = {
        "jailed": jailed,
        "filters": [f.hex() for f in seccomp.programs()] if jailed else [],
        "preload": list(preload),
        "limits": (limits or Limits()).inside(),
        "paths": ["/jail/site"] if jailed else [sysconfig.get_path("purelib")],
    }
    where = "/jail" if jailed else str(INSIDE.parent)
    # Not -I: an isolated interpreter would not heed the hash seed. The environment is ours anyway.
    words = ["-S", "-s", "-X", "utf8", "-c", BOOT.format(where=where), json.dumps(config)]
    if jailed:
        command, environment = jail_command(python, packages, words, hash_seed), {}
    else:
        command = [python, *words]
        environment = {"PYTHONHASHSEED": str(hash_seed), "PATH": "/usr/bin:/bin"}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            command,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            cwd="/",
            process_group=0,
        )
    return process, ours


def exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether a process has ended; unlike `poll`, this keeps its id from being used again."""
    if process.returncode is not None:
        return True
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(leader: int) -> None:
    """Kill a process that was started in a group of its own, with its group: while bwrap starts,
    its child does not die with it yet, and would wait for it for ever."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end(process: subprocess.Popen[bytes], timeout_s: float = 5) -> None:
    """Kill a jail that `launch` started, and reap it."""
    if process.returncode is None:  # else its id may be somebody else's by now
        kill(process.pid)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)

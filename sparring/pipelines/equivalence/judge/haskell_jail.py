"""A warm GHCi in a jail: untrusted modules are compiled to bytecode and run there.

GHC itself is started once; every call runs in a fork of it, with limits of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from sparring.judge.sandbox import bwrap, seccomp
from sparring.judge.sandbox.bwrap import Probe, SandboxMissing
from sparring.run.outputs import cache_folder

HARNESS = Path(__file__).parent / "inside"  # what every module is loaded with

INSTALL = "apt-get install -y --no-install-recommends ghc libghc-quickcheck2-dev"
MAIN = "Main_"  # the module that imports all others
COMPILE_S = 30.0
MEMORY_MB = 1024
USES = 400  # loads after which a GHCi is replaced: it keeps a little of every one
LINE_BYTES = 4 << 20
# GHC goes by dates. A new one in the future at every load makes it compile a file anew, however
# fast one load follows another.
FUTURE = 4_000_000_000
LIMITS = 'ulimit -c 0; ulimit -f 131072; ulimit -n 256; exec "$@"'


@lru_cache(maxsize=1)
def find_ghc() -> str | None:
    return shutil.which("ghc")


@lru_cache(maxsize=1)
def probe() -> Probe:
    """Whether Haskell can be judged here: GHC, QuickCheck, and the jail."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    ghc = find_ghc()
    if ghc is None:
        return Probe(False, "GHC is not installed", sudo + INSTALL)
    if shutil.which("ghc-pkg"):
        listed = ["ghc-pkg", "list", "--simple-output", "QuickCheck"]
        listing = subprocess.run(listed, capture_output=True, text=True, check=False)
        if not listing.stdout.strip():
            return Probe(False, "GHC is there, QuickCheck is not", sudo + INSTALL)
    jail = bwrap.probe()
    return Probe(jail.ok, f"GHC at {ghc}; {jail.explanation}", jail.install)


@lru_cache(maxsize=1)
def library() -> Path:
    printed = subprocess.run(
        [find_ghc() or "ghc", "--print-libdir"], capture_output=True, text=True, check=False
    )
    return Path(printed.stdout.strip())


@lru_cache(maxsize=1)
def ghc_folders() -> tuple[Path, ...]:
    """What GHC needs beside /usr: its libraries and package database, wherever they lie."""
    paths = [Path(os.path.realpath(find_ghc() or "ghc")).parent, library().resolve()]
    paths.append((library() / "package.conf.d").resolve())
    return tuple(p for p in paths if p.is_dir() and not p.is_relative_to("/usr"))


@lru_cache(maxsize=1)
def shared_objects() -> str:
    """Where GHC's own libraries lie. It finds them by /proc, and the jail has none."""
    return ":".join(sorted({str(path.parent) for path in library().glob("**/libHS*.so")}))


FLAGS = ("-package", "ghc", "-w", "-Werror=overflowed-literals")
_compiling = threading.Lock()


def harness() -> Path:
    """The folder of the harness's modules, compiled: each GHCi would take a second to do so."""
    with _compiling:
        return _compiled()


@lru_cache(maxsize=1)
def _compiled() -> Path:
    """A copy of its own, which alone the jail sees, of what the cache has."""
    folder = Path(tempfile.mkdtemp(prefix="sparring-harness-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    sources, ghc = sorted(HARNESS.glob("*.hs")), own_binary()
    date = ghc.stat().st_mtime_ns if ghc.exists() else 0
    digest = hashlib.sha256(f"{ghc} {date}".encode())
    for path in sources:
        digest.update(path.read_bytes())
    kept = cache_folder() / f"harness-{digest.hexdigest()[:16]}"
    if kept.is_dir():
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        return folder
    for path in sources:
        shutil.copy2(path, folder)
    for name in ("Harness.hs", "Syntax.hs"):  # where one does not compile, GHCi reads its source
        words = [find_ghc() or "ghc", *FLAGS, "-v0", "-dynamic", "-c", name]
        with suppress(OSError):  # without GHC; `start` says so
            subprocess.run(words, cwd=folder, capture_output=True, check=False)
    if (folder / "Harness.o").exists():
        unfinished = Path(f"{kept}.{os.getpid()}")
        with suppress(OSError):  # the cache cannot be written to, or another process was first
            shutil.copytree(folder, unfinished)
            unfinished.rename(kept)
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def own_binary() -> Path:
    """GHC itself, behind the script that people start it by."""
    binary = library() / "bin" / "ghc"
    return binary if binary.is_file() else Path(os.path.realpath(find_ghc() or "ghc"))


def jailed(
    words: Sequence[str],
    work: Path,
    filters: Sequence[int],
    folders: Sequence[Path] = (),
    *,
    own_link: bool = False,
) -> list[str]:
    """The command that runs `words` in a jail which sees `work`, GHC, and a /tmp of its own.

    own_link: the jail has no /proc; this gives it /proc/self/exe, by which a plugin finds GHC.
    """
    mounts = [*bwrap.system()]
    for folder in (work, *ghc_folders(), *folders):
        mounts += bwrap.bind(folder, str(folder))
    variables = {"LANG": "C.UTF-8", "LD_LIBRARY_PATH": shared_objects()}
    inner = bwrap.isolated(search_path(folders), **variables)
    inner += [
        *bwrap.devices(), "--perms", "1777", "--tmpfs", "/tmp", *mounts, "--chdir", "/tmp",
        "--cap-drop", "ALL",
    ]  # fmt: skip
    if own_link:
        inner += [*bwrap.folder("/proc"), *bwrap.folder("/proc/self")]
        inner += ["--symlink", str(own_binary()), "/proc/self/exe"]
    for fd in filters:
        inner += ["--add-seccomp-fd", str(fd)]
    inner += ["--", "/bin/sh", "-c", LIMITS, "sh", *words]
    real, needs = bwrap.interpreter(sys.executable)
    return bwrap.become_nobody(inner, [*mounts, *needs], real)


def search_path(folders: Sequence[Path] = ()) -> str:
    ghc = find_ghc()
    own = [str(Path(ghc).parent)] if ghc else []
    return ":".join(dict.fromkeys([*own, *map(str, folders), "/usr/bin", "/bin"]))


@asynccontextmanager
async def process(
    words: Sequence[str],
    work: Path,
    *,
    sandbox: str,
    folders: Sequence[Path] = (),
    own_link: bool = False,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`words` under way, jailed unless `sandbox` is "unsafe"; dead at the end in any case."""
    filters: list[int] = []
    environment = {"PATH": search_path(folders), "LANG": "C.UTF-8", "HOME": str(work)}
    try:
        if sandbox == "bubblewrap":
            for text in seccomp.programs():
                filters.append(os.memfd_create("filter"))
                os.write(filters[-1], text)
                os.lseek(filters[-1], 0, os.SEEK_SET)
            words = jailed(words, work, filters, folders, own_link=own_link)
        running = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            cwd="/" if sandbox == "bubblewrap" else str(work),
            pass_fds=filters,
            limit=LINE_BYTES,
            process_group=0,
        )
    finally:
        for fd in filters:
            os.close(fd)
    try:
        yield running
    finally:
        if running.returncode is None:
            bwrap.kill(running.pid)
        await running.wait()


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of some modules. `report` is what the statement reported last.

    status: ok | compile (GHC says no) | time-out, memory (while compiling or running) | broken
    """

    status: str
    messages: str = ""
    report: list[str] = field(default_factory=list)


class _Dead(Exception):
    """GHCi ended, or was ended by the clock."""


class Ghci:
    """One warm GHCi. Not for two callers at once."""

    def __init__(self, sandbox: str) -> None:
        self.sandbox = sandbox
        self.folder = Path(tempfile.mkdtemp(prefix="sparring-haskell-"))
        self.folder.chmod(0o755)
        self.uses = 0
        self._running: asyncio.subprocess.Process | None = None
        self._context = process(
            [
                find_ghc() or "ghc", "--interactive", *FLAGS, "-v1", "-ignore-dot-ghci",
                f"-i{self.folder}:{harness()}",
                "+RTS", f"-M{MEMORY_MB}m", "-K256m", "-RTS",
            ],
            self.folder,
            sandbox=sandbox,
            folders=(harness(),),
        )  # fmt: skip

    async def start(self) -> None:
        if find_ghc() is None:
            raise SandboxMissing(f"GHC is not installed: {INSTALL}")
        self._running = await self._context.__aenter__()
        try:
            async with asyncio.timeout(120):
                await self._ask(':set prompt ""')
                (self.folder / f"{MAIN}.hs").write_text(f"module {MAIN} where\nimport Harness\n")
                output = await self._ask(f":load Harness {MAIN} Syntax")
                if not output[-1:] or not output[-1].startswith("Ok, "):
                    # Another GHC than the one that proofs need, whose parser is called otherwise.
                    output = await self._ask(f":load Harness {MAIN}")
        except (TimeoutError, _Dead):
            output = ["GHCi did not start"]
        if not any(line.startswith("Ok, ") for line in output):
            await self.stop()
            raise SandboxMissing("the harness could not be loaded: " + "\n".join(output)[-800:])

    async def stop(self) -> None:
        if self._running is not None:
            self._running = None
            await self._context.__aexit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _ask(self, command: str) -> list[str]:
        """What GHCi prints until it is done with a command, line by line."""
        running = self._running
        if running is None or running.stdin is None or running.stdout is None:
            raise _Dead
        mark = uuid.uuid4().hex  # nothing that was written before can say it
        try:
            running.stdin.write(f'{command}\nSystem.IO.putStrLn "{mark}"\n'.encode())
            await running.stdin.drain()
            output: list[str] = []
            while True:
                line = (await running.stdout.readline()).decode(errors="replace")
                if not line:
                    raise _Dead
                if line.rstrip("\n").endswith(mark):
                    rest = line.rstrip("\n")[: -len(mark)]
                    return [*output, rest] if rest else output
                output.append(line.rstrip("\n"))
        except (OSError, ValueError) as error:
            raise _Dead from error

    async def run(self, modules: Mapping[str, str], statement: str, seconds: int) -> Ran:
        """Load MAIN of `modules`, then run `statement`, in which MARK, SECONDS (as much processor
        time as it may use) and FOLDER (where the modules lie) are filled in. Without one it is
        enough that they compile."""
        self.uses += 1
        for old in self.folder.glob("*.hs"):
            old.unlink()
        for name, text in modules.items():
            path = self.folder / f"{name}.hs"
            path.write_text(text, encoding="utf-8")
            os.utime(path, (FUTURE + self.uses, FUTURE + self.uses))
        step = "compile"
        try:
            async with asyncio.timeout(COMPILE_S):
                output = await self._ask(":reload")
            if not output or not output[-1].startswith("Ok, "):
                return Ran("compile", self._clean(output))
            if not statement:
                return Ran("ok")
            step, mark = "run", uuid.uuid4().hex
            filled = statement.replace("MARK", json.dumps(mark)).replace("SECONDS", str(seconds))
            filled = filled.replace("FOLDER", str(self.folder))
            async with asyncio.timeout(5 * seconds + 10):
                lines = await self._ask(filled)
        except TimeoutError:
            await self.stop()
            return Ran("time-out", f"not done with `{step}` in time")
        except _Dead:
            await self.stop()
            return Ran("broken", f"GHCi died at `{step}`")
        return self._ruling(lines, mark)

    def _clean(self, output: list[str]) -> str:
        text = "\n".join(line for line in output if not line.startswith(("[", "Failed,")))
        return text.replace(f"{self.folder}/", "").strip()[:2000]

    @staticmethod
    def _ruling(lines: list[str], mark: str) -> Ran:
        reports: list[list[str]] = []
        for line in lines:
            with suppress(ValueError):
                if line.startswith(mark):
                    reports.append(json.loads(line[len(mark) :]))
        if not reports:
            return Ran("broken", "\n".join(lines)[-800:])
        if reports[-1][0] == "died":
            return Ran(reports[-1][1], "it was stopped", reports[-2] if reports[1:] else [])
        return Ran("ok", "", reports[-1])


class Haskell:
    """Warm GHCis, `workers` at most, started when they are needed."""

    def __init__(self, workers: int = 2, *, sandbox: str = "bubblewrap", seconds: int = 10) -> None:
        if sandbox not in ("bubblewrap", "unsafe"):
            raise ValueError(f"sandbox is 'bubblewrap' or 'unsafe', not {sandbox!r}")
        self.sandbox, self.seconds = sandbox, seconds
        self._slots = asyncio.Semaphore(workers)
        self._idle: list[Ghci] = []

    async def __aenter__(self) -> Haskell:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().stop()

    async def run(self, modules: Mapping[str, str], statement: str = "") -> Ran:
        """Raises SandboxMissing where there is no GHC or no jail."""
        async with self._slots:
            done = await self._once(modules, statement)
            if done.status == "broken":  # a GHCi that died is replaced and asked again, once
                done = await self._once(modules, statement)
            if done.status == "broken" and done.messages.startswith("GHCi died"):
                return Ran("memory", done.messages)
            return done

    async def parse(self, texts: Sequence[str]) -> Ran:
        """GHC's trees of some modules, as `Syntax.hs` writes them; empty where it cannot parse."""
        files = {f"Parsed{n}_": text for n, text in enumerate(texts)}
        paths = ", ".join(f'"FOLDER/{name}.hs"' for name in files)
        main = {MAIN: f"module {MAIN} where\n"}
        return await self.run(
            {**main, **files}, f"Harness.report MARK SECONDS (Syntax.trees [{paths}])"
        )

    async def _once(self, modules: Mapping[str, str], statement: str) -> Ran:
        ghci = self._idle.pop() if self._idle else Ghci(self.sandbox)
        try:
            if ghci.uses == 0:
                await ghci.start()
            done = await ghci.run(modules, statement, self.seconds)
        except BaseException:
            await ghci.stop()
            raise
        if done.status in ("time-out", "broken") or ghci.uses >= USES:
            await ghci.stop()
        else:
            self._idle.append(ghci)
        return done

"""The real Liquid Haskell: how it is located and started in the jail, several proofs at once, and
what its answer is taken to mean."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Protocol

from sparring.core.types import Verdict
from sparring.judge.sandbox import bwrap
from sparring.pipelines.equivalence.judge import haskell_jail
from sparring.pipelines.equivalence.judge.liquid import NAME

COMMAND = "SPARRING_LIQUID"  # a command line that is GHC with the plugin
PACKAGES = ("liquid-base", "liquid-prelude", "liquidhaskell")
CPU_S = 60  # of GHC and of z3, each: a proof that takes more is no proof
WALL_S = 600.0  # a machine so busy that this passes is the judge's fault, not the proof's
Z3_WORK = 400_000_000  # z3's own count of what it does for one question, whatever the machine
Z3_MB = 2048
OPTIONS = ("-fforce-recomp", "-outputdir", "o", "-fplugin-opt=LiquidHaskell:--no-annotations")
RTS = ("+RTS", "-A64m", "-RTS")  # GHC collects less garbage: a fifth less time
PROOF_MB = 600  # of memory that one check may come to, z3 included
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BANNER = re.compile(r"^\*\*\*\* LIQUID: (.*)$", re.MULTILINE)
SAFE = re.compile(r"SAFE \(([0-9]+) constraints checked\) \*+")
HOW = f"see docs/haskell.md, or name GHC with its plugin in {COMMAND}"


def ruling(exit_code: int, output: str) -> Verdict:
    """Exit 0 and a banner, on a line of its own, of constraints that were checked."""
    plain = COLOUR.sub("", output)
    if exit_code == 124:
        return Verdict("fail", "prover time-out", "Liquid Haskell was not done within its limits")
    banners = BANNER.findall(plain)
    safe = SAFE.fullmatch(banners[0]) if len(banners) == 1 else None
    if exit_code == 0 and safe and int(safe[1]) > 0:
        return Verdict("pass", "proved", f"Liquid Haskell: SAFE ({safe[1]} constraints checked)")
    return Verdict("fail", "unproved", plain.strip()[-1500:])


class Prover(Protocol):
    """Whatever rules on a module: Liquid Haskell, or a record of its output."""

    async def prove(self, text: str) -> Verdict: ...


def command() -> list[str]:
    """GHC with the plugin: as SPARRING_LIQUID says, or with the package database of cabal's store
    that has it. `base` is hidden, for liquid-base has its modules too."""
    given = os.environ.get(COMMAND)
    if given:
        return shlex.split(given)
    words = [haskell_jail.find_ghc() or "ghc"]
    for store in _stores():
        for base in sorted(store.glob("ghc-*/package.db")):
            if any(base.glob("liquidhaskell-*.conf")) or any(base.glob("lqdhskll-*.conf")):
                words += ["-package-db", str(base)]
    words += ["-hide-package", "base"]
    for package in PACKAGES:
        words += ["-package", package]
    return [*words, "-fplugin=LiquidHaskell"]


def _stores() -> list[Path]:
    home = Path.home()
    return [home / ".cabal" / "store", home / ".local" / "state" / "cabal" / "store"]


def databases(words: list[str]) -> list[Path]:
    """The package databases that a command line names, by itself or in an environment file."""
    paths = []
    for n, word in enumerate(words):
        if word in ("-package-db", "-package-env") and n + 1 < len(words):
            path = Path(words[n + 1])
            paths.append(path)
            if word == "-package-env" and path.is_file():
                lines = path.read_text(encoding="utf-8").splitlines()
                named = [line.split(None, 1)[1] for line in lines if line.startswith("package-db ")]
                paths += [path.parent / name for name in named]
    return paths


def folders(words: list[str]) -> list[Path]:
    """What the tool reads beside /usr and GHC: package databases, where their libraries lie, z3."""
    paths = {path.resolve() for path in databases(words)}
    for base in list(paths):
        for conf in base.glob("*.conf") if base.is_dir() else []:
            for line in re.findall(r"/[^\s\"]+", conf.read_text(encoding="utf-8")):
                paths |= {Path(line)} if Path(line).is_dir() else set()
    paths |= {p for p in _stores() if p.is_dir()}
    paths |= {p for p in (Path.home() / ".ghcup" / "ghc", Path.home() / ".ghc") if p.is_dir()}
    z3 = shutil.which("z3")
    paths |= {Path(z3).resolve().parent} if z3 else set()
    outside = {p for p in paths if p.exists() and not p.is_relative_to("/usr")}
    return sorted(p for p in outside if not any(p != o and p.is_relative_to(o) for o in outside))


def workers() -> int:
    """How many proofs run at once: one per core, as long as memory lasts."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), pages // (PROOF_MB << 20)))


class LiquidHaskell:
    """The real tool, in the jail; one process per proof, as many at once as there are cores."""

    def __init__(self, *, sandbox: str = "bubblewrap", at_once: int | None = None) -> None:
        self.sandbox = sandbox
        self._slots = asyncio.Semaphore(at_once or workers())

    def absent(self) -> str:
        """What is missing that can be seen without trying; empty where nothing is."""
        if haskell_jail.find_ghc() is None or shutil.which("z3") is None:
            return f"Liquid Haskell needs GHC and z3: {HOW}"
        return ""

    async def prove(self, text: str) -> Verdict:
        if absent := self.absent():
            return Verdict("void", "liquid", absent)
        async with self._slots:
            code, output = await self._run(text)
        if code == BROKEN:
            return Verdict("void", "liquid", output)
        if problem := _not_itself(output):
            return Verdict("void", "liquid", problem)
        return ruling(code, output)

    async def _run(self, text: str) -> tuple[int, str]:
        folder = Path(tempfile.mkdtemp(prefix="sparring-liquid-"))
        try:
            folder.chmod(0o755)
            (folder / f"{NAME}.hs").write_text(text, encoding="utf-8")
            _limited_z3(folder)
            words = [*command(), *OPTIONS, f"{NAME}.hs", *RTS]
            # The tool writes beside the module, and the jail's own /tmp is where it may.
            where = "/tmp" if self.sandbox == "bubblewrap" else str(folder)
            script = (
                f"ulimit -t {CPU_S}; export PATH={folder}/bin:$PATH; "
                f'cp -n {folder}/{NAME}.hs {where}/ 2>/dev/null; cd {where} && exec "$@"'
            )
            async with haskell_jail.process(
                ["/bin/sh", "-c", script, "sh", *words],
                folder,
                sandbox=self.sandbox,
                folders=folders(words),
                own_link=True,
            ) as running:
                try:
                    async with asyncio.timeout(WALL_S):
                        out, _ = await running.communicate()
                except TimeoutError:
                    return BROKEN, f"Liquid Haskell was given no time to work in {WALL_S:g} s"
                code = running.returncode or 0
                killed = code in KILLED or "Cpu time limit" in out.decode(errors="replace")
                return (124 if killed else code), out.decode(errors="replace")
        except (bwrap.SandboxMissing, OSError) as error:
            return BROKEN, str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


BROKEN = 125  # nothing was checked, and not by a fault of what is judged
KILLED = (-24, 152, -9, 137)  # by its limit of processor time


def _not_itself(output: str) -> str:
    """Why GHC never came to check anything; empty where it did."""
    for sign, meaning in SIGNS:
        if sign in output:
            return f"Liquid Haskell does not run: {meaning} ({HOW})"
    return ""


SIGNS = (
    ("Ambiguous module name", "`base` is not hidden beside liquid-base"),
    ("Could not find module ‘Language.Haskell.Liquid.ProofCombinators’", "no liquid-prelude"),
    ("Could not find module ‘LiquidHaskell’", "GHC does not find the plugin"),
    ("cannot satisfy -package", "GHC does not find its packages"),
    ("readSymbolicLink", "the jail has no /proc/self/exe"),
    ("z3: not found", "z3 is not found"),
    ("does not exist (No such file or directory)", "a file of the tool's is missing"),
)


def _limited_z3(folder: Path) -> None:
    """z3 as the tool starts it, with limits that the tool has none of."""
    z3 = shutil.which("z3")
    if z3:
        (folder / "bin").mkdir(mode=0o755)
        script = folder / "bin" / "z3"
        script.write_text(f'#!/bin/sh\nexec {z3} rlimit={Z3_WORK} -memory:{Z3_MB} "$@"\n')
        script.chmod(0o755)

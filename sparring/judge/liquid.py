"""Proofs of equivalence by Liquid Haskell. The harness writes the module and its statement; what is
given fills in Q, helper lemmas and the equations of `lemma`, all of it held to a whitelist."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from sparring.judge import liquid_proof as rules
from sparring.judge.haskell_source import Declaration, Program, Refused, renamed, text_of, tokens
from sparring.judge.haskell_types import Signature
from sparring.sandbox import bwrap, haskell
from sparring.types import Verdict

NAME = "Equivalence"
COMMAND = "SPARRING_LIQUID"  # a command line that is GHC with the plugin
TIMEOUT_S = 60.0
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
BANNER = re.compile(r"^\*\*\*\* LIQUID: (.*)$", re.MULTILINE)
SAFE = re.compile(r"SAFE \(([0-9]+) constraints checked\) \*+")
OPTIONS = ("--reflection", "--ple", "--ple-with-undecided-guards")
COMBINATORS = """type Proof = ()
data QED = QED
infixl 3 ===, ***, ?
trivial :: Proof
trivial = ()
(===) :: a -> a -> a
_ === y = y
(***) :: a -> QED -> Proof
_ *** _ = ()
(?) :: a -> b -> a
x ? _ = x
"""
PRELUDE = (
    "import Prelude (Int, Integer, Bool (..), Char, String, Maybe (..), Either (..), Show, "
    "Eq ((==), (/=)), Ord ((<), (<=), (>), (>=)), Num ((+), (-), (*), negate), (&&), (||), not, "
    "otherwise, (.), ($), div, mod)"
)


def module(p: Program, q: Program, function: str, signature: Signature, proof: str) -> str:
    """The module that Liquid Haskell is to check, or Refused: "proof" and why."""
    if not proof.strip():
        raise rules.refuse("there is no proof")
    rules.check_program(p, "P")
    rules.check_program(q, "Q")
    rules.check_machine_integers((p, q))
    if signature.context:
        raise rules.refuse("a proof for all types of a class would have to hold for its worst one")
    both = _merged(p, q, function)
    given = rules.read_proof(proof)
    lemmas = given.functions
    if "lemma" not in lemmas:
        raise rules.refuse("the proof has no equations for `lemma`")
    rules.check_proof(given, both, lemmas)
    declared = {name: both.signatures[name] for name in both.functions}
    arguments = rules.split_arrows(declared[f"{function}P"])[:-1]
    statement, lemma_type = _statement(function, arguments)
    annotations = _annotations(given, both, lemmas, declared, (statement, lemma_type), function)
    parts = {name: both.equations(name) for name in both.functions}
    parts |= {name: given.equations(name) for name in lemmas}
    rules.check_recursion(parts)
    return _written(both, given, annotations, (statement, lemma_type))


def _merged(p: Program, q: Program, function: str) -> Program:
    """P and Q in one program; the function is called <function>P and <function>Q there."""
    if not (function[0].isalpha() or function[0] == "_"):
        raise rules.refuse(f"{function} is an operator: give the function a name")
    names = {f"{function}P", f"{function}Q"}
    sides: list[list[Declaration]] = []
    for role, program in (("P", p), ("Q", q)):
        taken = names & {*program.functions}
        if taken:
            raise rules.refuse(f"{role}: {taken.pop()} is the name of something else in a proof")
        change = {function: f"{function}{role}"}
        sides.append([])
        for declaration in program.declarations:
            if declaration.kind != "liquid":
                new = tuple(change.get(name, name) for name in declaration.names)
                tokens_ = renamed(declaration.tokens, change)
                sides[-1].append(Declaration(declaration.kind, new, tokens_))
    ours, theirs = sides
    shared = _shared(ours, theirs)
    return Program((), (*ours, *(d for d in theirs if not set(d.names) & shared)))


def _shared(ours: Sequence[Declaration], theirs: Sequence[Declaration]) -> set[str]:
    """Names that both define, and define alike."""

    def table(found: Sequence[Declaration]) -> dict[str, list[tuple[str, ...]]]:
        made: dict[str, list[tuple[str, ...]]] = {}
        for declaration in found:
            if declaration.kind != "fixity":
                for name in declaration.names:
                    made.setdefault(name, []).append(declaration.words)
        return made

    a, b = table(ours), table(theirs)
    for name in sorted(set(a) & set(b)):
        if a[name] != b[name]:
            raise rules.refuse(f"{name} is one thing in P and another in Q: rename it in Q")
    return set(a) & set(b)


def _statement(function: str, arguments: Sequence[Sequence[rules.Token]]) -> tuple[str, str]:
    types = [" ".join(t.text for t in part) for part in arguments]
    binders = [f"x{n}" for n in range(1, len(types) + 1)]
    applied = " ".join(binders)
    left = " -> ".join(f"{x}:{t}" for x, t in zip(binders, types, strict=True))
    equation = f"{{ {function}P {applied} == {function}Q {applied} }}"
    return f"lemma :: {left} -> {equation}", f"lemma :: {' -> '.join(types)} -> Proof"


def _annotations(
    given: Program,
    both: Program,
    lemmas: Sequence[str],
    declared: dict[str, tuple[rules.Token, ...]],
    own: tuple[str, str],
    function: str,
) -> dict[str, str]:
    """Statements of helper lemmas, and types of helpers that say more. That of `lemma` is ours."""
    found: dict[str, str] = {}
    signatures = given.signatures
    said = [t.text for t in signatures.get("lemma", ())]
    if said and ["lemma", "::", *said] != _plain(own[1]):
        raise rules.refuse("the type of `lemma` is not yours to write")
    for declaration in given.of("liquid"):
        name, rest = rules.statement_parts(declaration.tokens[0])
        text = f"{name} :: {' '.join(t.text for t in rest)}"
        if name in found:
            raise rules.refuse(f"proof: {name} is stated twice")
        if name == "lemma":
            if _alike(text) != _alike(own[0]):
                raise rules.refuse("the statement of `lemma` is not yours to write")
        elif name in lemmas:
            if name not in signatures:
                raise rules.refuse(f"proof: {name} needs a type")
            rules.check_statement(name, rest, signatures[name], both)
        elif name in declared and name not in (f"{function}P", f"{function}Q"):
            rules.check_signature(name, rest, declared[name], both)
        else:
            raise rules.refuse(f"proof: {name} is not yours to say anything of")
        found[name] = text
    unstated = [n for n in lemmas if n not in found and n != "lemma"]
    stray = [n for n in signatures if n not in lemmas]
    if unstated or stray:
        raise rules.refuse(f"proof: {(unstated + stray)[0]} is no helper lemma with a statement")
    return found


def _plain(text: str) -> list[str]:
    return [t.text for t in tokens(text)]


def _alike(text: str) -> list[str]:
    """The words of a statement, its binders numbered."""
    found = _plain(text)
    binders = [w for n, w in enumerate(found[:-1]) if found[n + 1] == ":" and w[0].islower()]
    numbers = {name: f"x{n}" for n, name in enumerate(binders)}
    return [numbers.get(word, word) for word in found]


def _written(
    both: Program, given: Program, annotations: dict[str, str], own: tuple[str, str]
) -> str:
    lines = [f'{{-@ LIQUID "{option}" @-}}' for option in OPTIONS]
    lines += [f"module {NAME} where", "", "import Language.Haskell.Liquid.ProofCombinators", ""]
    lines += [_flat(d) for d in both.of("data", "fixity")]
    for name in both.functions:
        if not name[0].isalpha():
            lines.append(f"{{-@ infix {name} @-}}")
        lines.append(f"{{-@ reflect {name} @-}}")
        if name in annotations:
            lines.append(f"{{-@ {annotations[name]} @-}}")
        types = " ".join(t.text for t in both.signatures[name])
        lines.append(f"{name if name[0].isalpha() else f'({name})'} :: {types}")
        lines += [_flat(d) for d in both.equations(name)]
    for name in [n for n in given.functions if n != "lemma"]:
        types = " ".join(t.text for t in given.signatures[name])
        lines += [f"{{-@ {annotations[name]} @-}}", f"{name} :: {types}"]
        lines += [_flat(d) for d in given.equations(name)]
    lines += [f"{{-@ {own[0]} @-}}", own[1]]
    lines += [_flat(d) for d in given.equations("lemma")]
    return "\n".join(lines) + "\n"


def _flat(declaration: Declaration) -> str:
    first = declaration.tokens[0].column - 1
    moved = [replace(t, column=t.column - first) for t in declaration.tokens]
    return text_of(moved)


def stand_in(text: str) -> dict[str, str]:
    """The same module for GHC alone: with nothing in scope but what the whitelist names, and every
    case covered."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith(("{-@", "import")))
    head = "{-# LANGUAGE Safe #-}\n{-# OPTIONS_GHC -Werror=incomplete-patterns #-}\n"
    body = body.replace(f"module {NAME} where", f"module Proof_ where\n{PRELUDE}\n{COMBINATORS}", 1)
    return {"Proof_": head + body + "\n"}


def ruling(exit_code: int, output: str) -> Verdict:
    """Exit 0 and a banner, on a line of its own, of constraints that were checked."""
    plain = COLOUR.sub("", output)
    if exit_code == 124:
        return Verdict("fail", "prover time-out", "Liquid Haskell was not done in time")
    banners = BANNER.findall(plain)
    safe = SAFE.fullmatch(banners[0]) if len(banners) == 1 else None
    if exit_code == 0 and safe and int(safe[1]) > 0:
        return Verdict("pass", "proved", f"Liquid Haskell: SAFE ({safe[1]} constraints checked)")
    return Verdict("fail", "unproved", plain.strip()[-1500:])


class Prover(Protocol):
    """Whatever rules on a module: Liquid Haskell, or a record of what it said."""

    async def prove(self, text: str) -> Verdict: ...


TRUE = """{-@ LIQUID "--reflection" @-}
{-@ LIQUID "--ple" @-}
module Equivalence where
import Language.Haskell.Liquid.ProofCombinators
{-@ reflect twiceP @-}
twiceP :: Integer -> Integer
twiceP x = x + x
{-@ reflect twiceQ @-}
twiceQ :: Integer -> Integer
twiceQ x = 2 * x
{-@ lemma :: x:Integer -> { twiceP x == twiceQ x } @-}
lemma :: Integer -> Proof
lemma _ = trivial
"""
FALSE = TRUE.replace("2 * x", "3 * x")


class LiquidHaskell:
    """The real tool, in the jail. Before it is believed it must prove a truth and refuse a lie."""

    def __init__(self, *, sandbox: str = "bwrap", timeout_s: float = TIMEOUT_S) -> None:
        self.sandbox, self.timeout_s = sandbox, timeout_s
        self._place = asyncio.Semaphore(1)  # a check takes some 270 MB
        self._missing: str | None = None

    async def missing(self) -> str:
        """Why the tool cannot be used, tried once; empty where it can."""
        if self._missing is None:
            self._missing = await self._try()
        return self._missing

    async def _try(self) -> str:
        how = f"see docs/haskell.md, or name GHC with its plugin in {COMMAND}"
        if haskell.find_ghc() is None or shutil.which("z3") is None:
            return f"Liquid Haskell needs GHC and z3: {how}"
        true, false = await self._run(TRUE), await self._run(FALSE)
        if not ruling(*true).passed:
            return f"Liquid Haskell is not installed, or does not work: {true[1][-300:]} ({how})"
        return "Liquid Haskell proved a falsehood" if ruling(*false).passed else ""

    async def prove(self, text: str) -> Verdict:
        async with self._place:
            missing = await self.missing()
            if missing:
                return Verdict("void", "liquid", missing)
            return ruling(*await self._run(text))

    async def _run(self, text: str) -> tuple[int, str]:
        folder = Path(tempfile.mkdtemp(prefix="sparring-liquid-"))
        try:
            folder.chmod(0o755)
            (folder / f"{NAME}.hs").write_text(text, encoding="utf-8")
            words = shlex.split(os.environ.get(COMMAND, "ghc -fplugin=LiquidHaskell"))
            words += ["-fforce-recomp", "-outputdir", "o", f"{NAME}.hs"]
            # The tool writes beside the module, and the jail's own /tmp is where it may.
            script = f'cp {folder}/{NAME}.hs /tmp/ && cd /tmp && exec "$@"'
            if self.sandbox == "bwrap":
                words = ["/bin/sh", "-c", script, "sh", *words]
            async with haskell.process(
                words, folder, sandbox=self.sandbox, folders=_folders()
            ) as running:
                try:
                    async with asyncio.timeout(self.timeout_s):
                        out, _ = await running.communicate()
                except TimeoutError:
                    return 124, ""
                return running.returncode or 0, out.decode(errors="replace")
        except (bwrap.SandboxMissing, OSError, Refused) as error:
            return 1, str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _folders() -> list[Path]:
    """Where people's package managers put GHC's packages, and z3."""
    home = Path.home()
    z3 = shutil.which("z3")
    found = [home / ".cabal" / "store", home / ".local" / "state" / "cabal" / "store"]
    found += [home / ".ghcup" / "ghc", home / ".ghc"]
    found += [Path(z3).resolve().parent] if z3 else []
    return [p for p in found if p.is_dir() and not p.is_relative_to("/usr")]

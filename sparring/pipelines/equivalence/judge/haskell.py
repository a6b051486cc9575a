"""Judges pairs of Haskell functions: whether they differ on an input, whether anything tells them
apart, and whether a proof says that nothing can. What counts as the same is in docs/haskell.md.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from sparring.core.types import Verdict, derive
from sparring.judge.sandbox.bwrap import SandboxMissing
from sparring.pipelines.equivalence.judge import liquid, liquid_tool
from sparring.pipelines.equivalence.judge.checkers import INCIDENT
from sparring.pipelines.equivalence.judge.haskell_hints import hints
from sparring.pipelines.equivalence.judge.haskell_jail import MAIN, Haskell, Ran
from sparring.pipelines.equivalence.judge.haskell_source import Program, Refused, parse, text_of
from sparring.pipelines.equivalence.judge.haskell_types import (
    Signature,
    constructors,
    literals,
    monomorphic,
    same_type,
    signature_of,
)

CASES = 800  # random inputs of an attack; edge cases are half as many at most
BUDGET_MS = 2500
ATTACK_S = 4  # of processor time, before an attack that hangs is ended
THOROUGH = 4  # times as much for a pair that is proved: two checkers have to agree
ENOUGH = 10  # inputs on which both must have come to something
RESTARTS = 3
SHARED = ("data", "synonym", "class", "instance")
TWICE = "twice :: Integer -> Integer\ntwice x = x + x\n"
ACTIONS = re.compile(r"IO|main|unsafe\w+|putStr(?:Ln)?|print|getLine|getContents|interact")


@dataclass(frozen=True, slots=True)
class Pair:
    """P and Q, parsed and checked to be functions of one type."""

    p: Program
    q: Program
    function: str
    signature: Signature


def read(source: str, function: str, role: str) -> Program:
    """A program with `function` in it, or Refused, which says of which program and why."""
    try:
        program = parse(source)
        for declaration in program.declarations:
            for token in declaration.tokens:
                if token.kind == "name" and ACTIONS.fullmatch(token.text):
                    raise Refused("IO", f"line {token.line}: {token.text} is about actions")
        signature_of(program, function)
    except Refused as problem:
        raise Refused(problem.kind, f"{role}: {problem}") from problem
    return program


def pair(p: str, q: str, function: str) -> Pair:
    first, second = read(p, function, "P"), read(q, function, "Q")
    signature = signature_of(first, function)
    ours = {d.names[0]: d.words for d in first.of("data", "synonym")}
    for declaration in second.of("data", "synonym"):
        if ours.get(declaration.names[0], declaration.words) != declaration.words:
            raise Refused("type", f"Q: {declaration.names[0]} is declared otherwise than in P")
    shared = replace(second, declarations=(*first.of("synonym"), *second.declarations))
    theirs = signature_of(shared, function)
    if not same_type(signature, theirs):
        raise Refused("type", f"Q: {function} has another type than in P")
    return Pair(first, second, function, signature)


class HaskellChecker:
    """Rules on Haskell programs and pairs of them, `workers` at a time.

        async with HaskellChecker() as checker:
            verdict = await checker.diverges(p, q, "double", "(-3)")

    Where GHC, the jail or Liquid Haskell is missing, the verdict is void and says so.
    """

    def __init__(
        self,
        sandbox: str = "bubblewrap",
        *,
        workers: int = 2,
        seconds: int = 5,
        prover: liquid_tool.Prover | None = None,
    ) -> None:
        self.ghc = Haskell(workers, sandbox=sandbox, seconds=seconds)
        self.prover = prover or liquid_tool.LiquidHaskell(sandbox=sandbox)
        self.seconds = seconds

    async def __aenter__(self) -> HaskellChecker:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.ghc.close()

    async def compiles(self, p: str, function: str) -> Verdict:
        """Whether P is one function that can be judged: typed, pure, of plain values."""

        async def rule() -> Verdict:
            program = read(p, function, "P")
            one = Pair(program, program, function, signature_of(program, function))
            done = await self.ghc.run(modules(one))
            return _stopped(done) or Verdict("pass", "compiles")

        return await _ruled(rule)

    async def diverges(self, p: str, q: str, function: str, input: str) -> Verdict:
        """Passes where P and Q come to different things on `input`."""

        async def rule() -> Verdict:
            both = pair(p, q, function)
            if not isinstance(input, str):
                raise Refused("input", "the input of a Haskell function is a text")
            known = constructors(both.p)
            given = literals(input, len(both.signature.arguments), known)
            micros = self.seconds * 1_000_000 // 2
            call = f"Harness.report MARK SECONDS ({MAIN}.both_ {micros})"
            done = await self.ghc.run(modules(both, given), call)
            stopped = _stopped(done, "input")
            if stopped:
                return stopped
            if done.report[0] != "ran":
                return _nothing(f"on {input}: {done.report[-1]}")
            a, b = done.report[1:3], done.report[3:5]
            for name, outcome in (("P", a), ("Q", b)):
                if outcome[0] == "none":
                    return _nothing(f"{name} comes to nothing ({outcome[1]}) on {input}")
            reason = f"{function} {input}: {_describe('P', a)}, {_describe('Q', b)}"
            return Verdict("fail", "same", reason) if a == b else Verdict("pass", "differ", reason)

        return await _ruled(rule)

    async def attack(self, p: str, q: str, function: str) -> Verdict:
        """Edge cases and random inputs: fails with one that tells P and Q apart."""
        return await _ruled(lambda: self._attack(pair(p, q, function)))

    async def _attack(self, both: Pair, thorough: bool = False) -> Verdict:
        """`thorough`: with a larger budget, and inputs worked out from the programs' constants."""
        texts = modules(both, thorough=thorough)
        seed = derive("attack", texts["P"], texts["Q"]) % (1 << 30)
        times = THOROUGH if thorough else 1
        start, agreed, done = 0, 0, Ran("ok")
        for _ in range(RESTARTS):
            call = f"{MAIN}.attack_ {seed} {start} {CASES * times} {BUDGET_MS * times}"
            call = f"Harness.report MARK {ATTACK_S * times} ({call})"
            done = await self.ghc.run(texts, call)
            if done.status in ("time-out", "memory") and done.report[3:4] == ["P"]:
                start, agreed = int(done.report[1]) + 1, agreed + int(done.report[2])
                continue
            break
        report = done.report
        if report[:1] == ["refuted"]:
            difference = (
                f"{both.function} {report[1]}: {_describe('P', report[2:4])}, "
                f"{_describe('Q', report[4:6])}"
            )
            return Verdict("fail", "refuted", difference)
        if report[:1] == ["unanswered"]:
            p = _describe("P", report[3:5])
            return _nothing(f"Q comes to nothing ({report[2]}) on {report[1]}, where {p}")
        if report[3:4] == ["Q"]:
            return _nothing(f"Q comes to nothing ({done.status}) on {report[4]}, where P answers")
        if report[:1] == ["agree"]:
            agreed += int(report[1])
        elif report[:1] != ["at"]:
            return _stopped(done) or _nothing("the attack came to nothing")
        if agreed < ENOUGH:
            return _nothing(f"both came to something on {agreed} inputs only")
        return Verdict("pass", "not refuted", f"the same on {agreed} inputs")

    async def equivalent(self, p: str, q: str, function: str, proof: str | None) -> Verdict:
        """Passes where Liquid Haskell takes the proof and no input tells P and Q apart."""

        async def rule() -> Verdict:
            both = pair(p, q, function)
            draft = liquid.draft(both.p, both.q, function, both.signature, proof or "")
            text = await self._compiled(both, draft)
            if isinstance(text, Verdict):
                return text
            ruling = await self.prover.prove(text)
            if ruling.status == "fail":
                return replace(ruling, detail=draft.spelling.plain(ruling.detail))
            attack = await self._attack(both, thorough=True)
            if attack.kind == "refuted" and ruling.passed:
                reason = f"Liquid Haskell said SAFE, and yet {attack.detail}"
                return Verdict("fail", INCIDENT, reason)
            if not attack.passed or not ruling.passed:
                return attack if not attack.passed else ruling
            return Verdict("pass", "proved", f"{ruling.detail}; {attack.detail}")

        return await _ruled(rule)

    async def provable(self, p: str, function: str) -> Verdict:
        """Whether anything can be proved about P: whether it is of the part of Haskell that the
        logic speaks of truly."""

        async def rule() -> Verdict:
            both = pair(p, p, function)
            draft = liquid.program_draft(both.p, function, both.signature)
            done = await self._compiled(both, draft)
            return done if isinstance(done, Verdict) else Verdict("pass", "provable")

        return await _ruled(rule)

    async def self_check(self) -> str:
        """What is wrong with proofs here, tried on a true lemma and a false one by the path that
        every claim takes; empty where nothing is."""
        true, false = await asyncio.gather(
            self.equivalent(TWICE, TWICE.replace("x + x", "2 * x"), "twice", "lemma _ = trivial"),
            self.equivalent(TWICE, TWICE.replace("x + x", "3 * x"), "twice", "lemma _ = trivial"),
        )
        if not true.passed:
            return f"x + x == 2 * x could not be proved ({true.kind}): {true.detail[-600:]}"
        if false.kind != "unproved":
            return f"x + x == 3 * x was not refused as it should be ({false.kind}): {false.detail}"
        return ""

    async def _compiled(self, both: Pair, draft: liquid.Draft) -> str | Verdict:
        """The draft's text, once its tree keeps to the rules and GHC compiles it; or why not. The
        rules come first: they say what would mend it, and GHC only that a name is unknown."""
        parsed = await self.ghc.parse([draft.text])
        if parsed.status == "ok" and parsed.report[1]:
            draft.checked(parsed.report[1])
        compiled = {**modules(both, also=("Proof_",)), **liquid.stand_in(draft.text)}
        done = await self.ghc.run(compiled)
        stopped = _stopped(parsed) or _stopped(done)
        if stopped:
            return replace(stopped, detail=draft.spelling.plain(stopped.detail))
        return draft.checked(parsed.report[1])


async def _ruled(rule: Callable[[], Awaitable[Verdict]]) -> Verdict:
    started = time.perf_counter()
    try:
        verdict = await rule()
    except Refused as problem:
        verdict = Verdict("fail", problem.kind, str(problem))
    except SandboxMissing as problem:
        verdict = Verdict("void", "ghc", str(problem))
    return replace(verdict, seconds=time.perf_counter() - started)


def _stopped(done: Ran, ours: str = "type") -> Verdict | None:
    """What went wrong. `ours`: whose fault it is when our own module does not fit theirs."""
    if done.status == "ok":
        return None
    if done.status == "broken":
        return Verdict("void", "ghc", done.messages)
    if done.status in ("time-out", "memory"):
        return _nothing(f"{done.status}: {done.messages}")
    if done.status == "compile" and done.messages.startswith(f"{MAIN}.hs"):
        return Verdict("fail", ours, done.messages)
    return Verdict("fail", done.status, done.messages)


def _nothing(detail: str) -> Verdict:
    """A time-out, a full memory, a dead process: no outcome, and no win."""
    return Verdict("fail", "no outcome", detail)


def _describe(name: str, outcome: list[str]) -> str:
    value = outcome[1] if len(outcome[1]) <= 200 else outcome[1][:200] + "…"
    return f"{name} {'gives' if outcome[0] == 'value' else 'raises'} {value}"


def modules(
    both: Pair,
    given: list[str] | None = None,
    also: Sequence[str] = (),
    *,
    thorough: bool = False,
) -> dict[str, str]:
    """The modules that GHC compiles, each with a header of ours."""
    types = both.p.of(*SHARED)
    known = {d.words for d in types}
    names = _reached(both)
    texts = {
        "P": _module("P", both.p, "import Types_" if types else "", set(known)),
        "Q": _module("Q", both.q, "import Types_" if types else "", set(known)),
        MAIN: _main(both, names, given, also, thorough),
    }
    if types:
        body = [text_of(d.tokens) for d in (*both.p.of("import"), *types)]
        texts["Types_"] = "".join([_head("Types_", both.p), *body])
    return texts


def _head(name: str, program: Program) -> str:
    return f"{{-# LANGUAGE {', '.join(['Safe', *program.extensions])} #-}}\nmodule {name} where\n"


def _module(name: str, program: Program, types: str, known: set[tuple[str, ...]]) -> str:
    kept = [d for d in program.declarations if d.kind != "liquid" and d.words not in known]
    imports = [text_of(d.tokens) for d in kept if d.kind == "import"]
    rest = [text_of(d.tokens) for d in kept if d.kind != "import"]
    return "".join([_head(name, program), types + "\n", *imports, *rest])


def _reached(both: Pair) -> list[str]:
    """The program's own data types that values of the function's type can hold."""
    declared = {d.names[0]: set(d.words) for d in both.p.of("data")}
    names: list[str] = []
    todo = sorted(set().union(*(t.heads() for t in both.signature.types)) & set(declared))
    while todo:
        name = todo.pop()
        if name not in names:
            names.append(name)
            todo += sorted(declared[name] & set(declared))
    return names


def _main(
    both: Pair,
    names: list[str],
    given: list[str] | None,
    also: Sequence[str],
    thorough: bool,
) -> str:
    signature = monomorphic(both.signature)
    inputs, variables = "()", "()"
    for n in reversed(range(len(signature.arguments))):
        inputs, variables = f"({signature.arguments[n]}, {inputs})", f"(x{n}, {variables})"
    applied = " ".join(f"x{n}" for n in range(len(signature.arguments)))
    lines = [
        "{-# LANGUAGE StandaloneDeriving, DeriveGeneric, FlexibleContexts #-}",
        "{-# LANGUAGE UndecidableInstances #-}",
        f"module {MAIN} where",
        "import qualified Harness",
        "import qualified GHC.Exts",
        "import qualified GHC.Generics",
        "import Data.Ratio ((%))",
        "import qualified P",
        "import qualified Q",
        *(f"import {name} ()" for name in also),
        *[text_of(d.tokens).rstrip() for d in both.p.of("import")],
        *(["import Types_"] if both.p.of(*SHARED) else []),
        *_instances(both, names),
        f"p_, q_ :: {inputs} -> {signature.result}",
        *(f"{name.lower()}_ {variables} = ({name}.{both.function}) {applied}" for name in "PQ"),
        "attack_ seed start cases budget say =",
        f"  Harness.attack say ({hints((both.p, both.q), thorough)}) seed start cases budget p_ q_",
    ]
    if given is not None:
        value = "()"
        for literal in reversed(given):
            value = f"({literal}, {value})"
        lines.append(f"input_ :: {inputs}\ninput_ = {value}")
        lines.append("both_ micros = Harness.both micros input_ p_ q_")
    return "\n".join(lines) + "\n"


def _instances(both: Pair, names: list[str]) -> list[str]:
    """The harness looks at a value's structure, not at the program's own instances."""
    lines = []
    for declaration in both.p.of("data"):
        if declaration.names[0] in names:
            words = list(declaration.words)
            head = words[1 : words.index("=")] if "=" in words else words[1:]
            if any(not word[0].isalpha() for word in head):
                raise Refused("type", f"the data type {declaration.names[0]} is not plain")
            context = ", ".join(f"Harness.Value {v}" for v in head[1:])
            lines.append(f"deriving instance GHC.Generics.Generic ({' '.join(head)})")
            lines.append(f"instance ({context}) => Harness.Value ({' '.join(head)})")
    return lines

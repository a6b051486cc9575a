"""What the real Liquid Haskell said of modules that the harness writes, on record in
`liquid_answers.jsonl`, so that the rules are tested where the tool is missing. Run as a program
where `SPARRING_LIQUID` names the tool, this file writes the record anew."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from proofs import Proof

from sparring.core.types import Verdict
from sparring.pipelines.equivalence.judge import liquid
from sparring.pipelines.equivalence.judge.haskell import modules, pair
from sparring.pipelines.equivalence.judge.haskell_jail import Haskell
from sparring.pipelines.equivalence.judge.haskell_source import Refused
from sparring.pipelines.equivalence.judge.liquid_tool import LiquidHaskell

PATH = Path(__file__).with_name("liquid_answers.jsonl")


class Written(NamedTuple):
    """What became of a proof before any tool was asked: its module, or why there is none."""

    draft: liquid.Draft | None
    refusal: str


def key(text: str) -> str:
    """A module, however its words are spaced."""
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:20]


def read_answers() -> dict[str, str]:
    """The tool's answers by module: SAFE, or the first line of what it had against it."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    return {row["module"]: row["answer"] for row in map(json.loads, lines)}


class Recorded:
    """A prover that answers as the tool did, and nothing to what the tool was never shown."""

    def __init__(self) -> None:
        self.answers = read_answers()

    async def prove(self, text: str) -> Verdict:
        answer = self.answers.get(key(text))
        if answer is None:
            return Verdict("void", "unseen", "Liquid Haskell was never shown this module")
        status = "pass" if answer == "SAFE" else "fail"
        return Verdict(status, "proved" if status == "pass" else "unproved", answer)


async def write_all(proofs: Iterable[Proof]) -> list[Written]:
    """Every proof as far as the rules let it come; all trees are asked for at once."""
    found: list[Written] = []
    for proof in proofs:
        try:
            both = pair(proof.p, proof.q, proof.function)
            made = liquid.draft(both.p, both.q, proof.function, both.signature, proof.proof)
            found.append(Written(made, ""))
        except Refused as refusal:
            found.append(Written(None, str(refusal)))
    async with Haskell(1, seconds=60) as ghc:
        done = await ghc.parse([one.draft.text for one in found if one.draft])
    if done.status != "ok":
        raise RuntimeError(f"GHC's parser could not be asked: {done.messages}")
    trees = iter(done.report[1:])
    return [_checked(one, next(trees)) if one.draft else one for one in found]


def _checked(one: Written, tree: str) -> Written:
    try:
        if one.draft:
            one.draft.checked(tree)
        return one
    except Refused as refusal:
        return Written(None, str(refusal))


async def compile_all(proofs: Iterable[Proof]) -> list[str]:
    """What GHC alone has against each; empty where it compiles with every case covered."""
    found = []
    async with Haskell(1) as ghc:
        for proof in proofs:
            both = pair(proof.p, proof.q, proof.function)
            text = liquid.draft(both.p, both.q, proof.function, both.signature, proof.proof).text
            done = await ghc.run({**modules(both, also=("Proof_",)), **liquid.stand_in(text)})
            found.append("" if done.status == "ok" else done.messages or done.status)
    return found


async def record(texts: Iterable[str]) -> None:
    """Ask the tool about every module and write down what it says."""
    tool = LiquidHaskell()
    wanted = {key(text): text for text in texts}
    known = read_answers() if PATH.exists() else {}
    answers = {name: known[name] for name in wanted if name in known}

    async def ask(name: str) -> None:
        verdict = await tool.prove(wanted[name])
        if verdict.status == "void":
            raise RuntimeError(verdict.detail)
        lines = [line.strip() for line in verdict.detail.splitlines() if "error" in line]
        answers[name] = "SAFE" if verdict.passed else (lines or [verdict.kind])[0][:80]

    try:
        await asyncio.gather(*(ask(name) for name in wanted if name not in answers))
    finally:
        rows = [{"module": name, "answer": answers[name]} for name in sorted(answers)]
        PATH.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    import liquid_cases
    from liquid_attacks import ATTACKS, CHANGED
    from liquid_honest import HONEST
    from proofs import PROOFS

    shown = [*PROOFS, *HONEST, *ATTACKS, *CHANGED, *liquid_cases.proofs()]
    made = asyncio.run(write_all(shown))
    asyncio.run(record(one.draft.text for one in made if one.draft))
    print(f"{len(read_answers())} modules on record")

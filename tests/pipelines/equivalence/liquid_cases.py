"""Modules that Liquid Haskell was shown, with its answers, put as what Alice would hand in: P, Q
and a proof. What of a module is not P, Q or the harness's own goes into the proof, as a cheat would
have it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofs import Proof

from sparring.pipelines.equivalence.judge import liquid
from sparring.pipelines.equivalence.judge.haskell_source import (
    Declaration,
    Refused,
    declaration,
    renamed,
    text_of,
    tokens,
    top_level,
)

OWN_OPTIONS = {f'{{-@ LIQUID "{option}" @-}}' for option in liquid.OPTIONS}
COMBINATORS = "Language.Haskell.Liquid.ProofCombinators"


@dataclass(frozen=True)
class Claim:
    p: str
    q: str
    function: str
    proof: str


def read_cases() -> list[dict[str, Any]] | None:
    folder = os.environ.get("SPARRING_LIQUID_CASES")
    path = Path(folder) if folder else Path(__file__).parents[4] / "shared" / "liquid"
    path = path / "cases.jsonl"
    if not path.is_file():
        return None
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def split_module(source: str) -> tuple[list[str], list[Declaration]]:
    """The pragmas and imports of a module, as text, and its declarations."""
    head: list[str] = []
    rest = []
    found_tokens = tokens(source)
    first = next((t.line for t in found_tokens if t.text == "module"), 0)
    for token in found_tokens:
        if token.kind == "liquid" and token.text in OWN_OPTIONS:
            continue
        if token.kind == "pragma" or (token.kind == "liquid" and token.line < first):
            head.append(token.text)
        else:
            rest.append(token)
    found = []
    for part in top_level(rest):
        if part[0].text == "import":
            if part[1].text != COMBINATORS:
                head.append(text_of(part))
        else:
            found.append(declaration(part))
    return head, found


def stated(found: list[Declaration]) -> tuple[str, str] | None:
    """The two functions that the module's lemma says are equal, if it says that of two."""
    for one in found:
        text = one.tokens[0].text[3:-3]
        if one.kind == "liquid" and " lemma ::" in text:
            inside = text[text.rfind("{") + 1 : text.rfind("}")]
            sides = [side.split() for side in inside.replace("(", " ( ").split("==")]
            if len(sides) == 2 and all(sides) and sides[0][1:] == sides[1][1:]:
                return sides[0][0], sides[1][0]
    return None


def claim(source: str) -> Claim:
    """What Alice would hand in for this module. Where its lemma is not about two functions, she
    takes the first two (or the first one twice) and keeps her statement."""
    head, found = split_module(source)
    functions = {d.names[0] for d in found if d.kind == "equation"}
    names = stated(found)
    if names is None or not set(names) <= functions:
        names = _first_two(found)
    lemmas = {d.names[0] for d in found if d.kind == "signature" and d.words[-1] == "Proof"}
    reach = {n: _reach(n, found, functions - lemmas) for n in names}
    rest = functions - lemmas - reach[names[0]] - reach[names[1]]
    change = {names[0]: "fun"}, {names[0]: "other", names[1]: "fun"}
    kinds = ("data", "fixity", "class", "instance")
    p = [d for d in found if d.kind in kinds or set(d.names) & reach[names[0]]]
    q = [d for d in found if d.kind in kinds or set(d.names) & (reach[names[1]] | rest)]
    in_proof = {names[1]: "funQ", names[0]: "funP"}
    proof = [d for d in found if d.kind == "liquid" and not _reflects(d)]
    proof += [d for d in found if set(d.names) & lemmas and d.kind != "liquid"]
    return Claim(
        "".join(text_of(renamed(d.tokens, change[0])) for d in p if d.kind != "liquid"),
        "".join(text_of(renamed(d.tokens, change[1])) for d in q if d.kind != "liquid"),
        "fun",
        "\n".join(head) + "\n" + "".join(_proof_text(d, in_proof) for d in proof),
    )


def _first_two(found: list[Declaration]) -> tuple[str, str]:
    names = [d.names[0] for d in found if d.kind == "equation"]
    names = [n for n in dict.fromkeys(names) if n != "lemma"]
    return names[0], names[min(1, len(names) - 1)]


def _reflects(one: Declaration) -> bool:
    return one.words[0].split()[1] in ("reflect", "infix")


def _reach(name: str, found: list[Declaration], functions: set[str]) -> set[str]:
    seen, todo = set(), [name]
    while todo:
        now = todo.pop()
        if now not in seen:
            seen.add(now)
            for one in found:
                if one.kind == "equation" and one.names[0] == now:
                    todo += [w for w in one.words if w in functions]
    return seen


def _proof_text(one: Declaration, names: dict[str, str]) -> str:
    if one.kind != "liquid":
        return text_of(renamed(one.tokens, names))
    text = one.words[0]
    if '"' in text:
        return text + "\n"
    try:
        inner = tokens(text[3:-3])
    except Refused:
        return text + "\n"
    return f"{{-@ {' '.join(names.get(t.text, t.text) for t in inner)} @-}}\n"


def proofs() -> list[Proof]:
    """Every case that can be handed in at all, by its name; the tool's own answer is not asked."""
    found = []
    for case in read_cases() or []:
        try:
            made = claim(str(case["source"]))
        except Refused:
            continue  # cannot even be split into programs and a proof
        found.append(Proof(case["name"], made.p, made.q, made.proof, "case", made.function))
    return found

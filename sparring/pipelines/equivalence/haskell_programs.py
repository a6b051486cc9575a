"""Haskell programs as data sets have them, with several functions, helpers, tests, a `main`: which
function is meant, and the program without what that function does not need."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from sparring.pipelines.equivalence.call_graph import reachable, root
from sparring.pipelines.equivalence.judge.haskell import ACTIONS
from sparring.pipelines.equivalence.judge.haskell_source import (
    EXTENSIONS,
    Declaration,
    Program,
    Refused,
    Token,
    declaration,
    text_of,
    tokens,
    top_level,
)
from sparring.pipelines.equivalence.judge.haskell_types import signature_of


def choose_function(code: str, named: str | None = None) -> tuple[str, str]:
    """The function to judge, and the program to judge it in; Refused where there is none. Without
    a name it is the root of the call graph: the function that no other pure one calls."""
    program, left_out = _lenient(code)
    calls = _calls(program)
    missing = _missing(left_out)
    pure = [name for name in program.functions if not _acts(name, program, calls, missing)]
    function = named or _root(program, calls, pure, missing)
    if function not in program.functions:
        raise Refused("type", f"there is no function {function} in the program")
    kept = _kept(program, calls, function)
    if used := _used(kept, missing):
        raise Refused("forbidden", f"{function} needs {used}, of a module that is not allowed")
    if not left_out and all(name in pure for name in program.functions):
        return function, code  # unused functions do no harm
    extensions = "".join(f"{{-# LANGUAGE {name} #-}}\n" for name in program.extensions)
    return function, extensions + "\n".join(text_of(d.tokens) for d in kept)


def _lenient(code: str) -> tuple[Program, list[list[Token]]]:
    """The program without what no pure function may have, and what was left out."""
    all_tokens = tokens(code)
    extensions: list[str] = []
    kept, left_out = [], []
    for token in all_tokens:
        if token.kind == "pragma":
            first, *words = re.findall(r"\w+", token.text) or [""]
            asked = words if first.upper() == "LANGUAGE" else []
            extensions += [word for word in asked if word in EXTENSIONS]
            if not asked or any(word not in EXTENSIONS for word in asked):
                left_out.append([token])  # if it was needed, GHC will say so
    for part in top_level([token for token in all_tokens if token.kind != "pragma"]):
        try:
            kept.append(declaration(part))
        except Refused:
            left_out.append(part)
    return Program(tuple(extensions), tuple(kept)), left_out


def _missing(left_out: Sequence[Sequence[Token]]) -> set[str]:
    """What the imports that were left out have brought: names, and prefixes that end in a dot."""
    names: set[str] = set()
    for part in left_out:
        words = [t.text for t in part]
        if words[0] != "import":
            continue
        module = next((w for w in words[1:] if w[:1].isupper()), "")
        alias = words[words.index("as") + 1] if "as" in words[:-1] else module
        names.add(f"{alias}.")
        if "(" in words and "hiding" not in words:
            names |= {t.text for t in part[words.index("(") :] if _word(t) and t.text != ".."}
    return names


def _used(parts: Iterable[Declaration], missing: Collection[str]) -> str:
    """The first name among these declarations that nothing brings any more, if any."""
    words = (t.text for d in parts for t in d.tokens if _word(t))
    return next((w for w in words if w in missing or w.rpartition(".")[0] + "." in missing), "")


def _calls(program: Program) -> dict[str, set[str]]:
    """Which top-level functions each one mentions."""
    names = set(program.functions)
    return {
        name: {t.text for d in program.equations(name) for t in d.tokens if _word(t)} & names
        for name in program.functions
    }


def _word(token: Token) -> bool:
    return token.kind in ("name", "symbol")


def _acts(
    name: str,
    program: Program,
    calls: Mapping[str, Collection[str]],
    missing: Collection[str],
) -> bool:
    """Whether a function, or one that it needs, is about actions or needs what is not allowed."""
    needed = reachable(calls, [name])
    parts = [d for d in program.of("equation", "signature") if needed & set(d.names)]
    names = (t.text for d in parts for t in d.tokens if t.kind == "name")
    return bool(_used(parts, missing)) or any(ACTIONS.fullmatch(name) for name in names)


def _root(
    program: Program,
    calls: Mapping[str, Collection[str]],
    pure: Sequence[str],
    missing: Collection[str],
) -> str:
    """The root among the pure functions that can be judged."""
    if not program.functions:
        raise Refused("type", "there is no function in the program")
    if not pure and (used := _used(program.declarations, missing)):
        raise Refused("forbidden", f"{used} is of a module that is not allowed")
    if not pure:
        raise Refused("IO", f"{', '.join(program.functions)}: all of it is about actions")
    why: Refused | None = None
    able = []
    order = [*dict.fromkeys([*program.signatures, *pure])]
    for name in (n for n in order if n in pure):
        try:
            signature_of(program, name)
        except Refused as refusal:
            why = why or refusal
        else:
            able.append(name)
    if not able:
        raise why or Refused("type", "there is no function in the program")
    hinted = {called for name in calls if name not in pure for called in calls[name]}
    return root({name: calls[name] for name in pure}, able, hinted)


def _kept(
    program: Program, calls: Mapping[str, Collection[str]], function: str
) -> list[Declaration]:
    """The declarations that a function needs: its helpers, and all types and instances."""
    functions = set(program.functions)
    start = {function}
    for d in program.of("class", "instance"):
        start |= {t.text for t in d.tokens if _word(t)} & functions
    needed = reachable(calls, start)
    together = [set(d.names) for d in program.of("signature") if len(d.names) > 1]
    while any(names & needed and not names <= needed for names in together):
        shared = [names for names in together if names & needed]
        needed = reachable(calls, needed.union(*shared))
    apart = ("signature", "equation", "fixity")
    return [
        d
        for d in program.declarations
        if d.kind != "liquid" and (d.kind not in apart or needed & set(d.names) or _operators(d))
    ]


def _operators(d: Declaration) -> bool:
    """A fixity of constructors, which belong to no function."""
    return d.kind == "fixity" and any(name.startswith(":") for name in d.names)

"""Rewrites Haskell functions by rules, some of which keep their meaning and some of which break it.
They are proposals only: a checker has the last word on each."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sparring.pipelines.equivalence.judge.haskell_source import (
    Program,
    Token,
    bound_names,
    parse,
    pattern_positions,
    text_of,
)
from sparring.pipelines.equivalence.judge.haskell_types import Refused, signature_of
from sparring.pipelines.equivalence.rewrites import Rewrite, in_order
from sparring.pipelines.equivalence.rules_haskell import BREAK, FLOATING, KEEP, Edit, Site

WHOLE = ("rename a variable", "move the body to a helper", "step aside at one value")
LAYOUT = ("of", "where", "let", "do")
FRESH = ("a1", "b1", "item", "rest1", "value", "v", "w")


def rewrites(source: str, function: str) -> list[Rewrite]:
    """Everything the rules make of a program, without repeats, in a fixed order."""
    program = parse(source)
    original = written(program)
    by_code: dict[str, Rewrite] = {}
    for keeps, rules in ((True, KEEP), (False, BREAK)):
        for name, rule in rules.items():
            for at, site in _sites(program):
                for edit in rule(site):
                    code = _with(program, at, edit)
                    if code != original:
                        by_code.setdefault(code, Rewrite(name, keeps, code))
    for name, keeps, code in _whole(program, function):
        by_code.setdefault(code, Rewrite(name, keeps, code))
    return list(by_code.values())


def choose(source: str, function: str, keeps: bool, rng: random.Random) -> list[Rewrite]:
    return in_order(rewrites, source, function, keeps, rng)


def written(program: Program) -> str:
    """The program as text: declarations with a blank line before each signature."""
    parts: list[str] = []
    for declaration in program.declarations:
        if parts and declaration.kind in ("signature", "data") and parts[-1]:
            parts.append("\n")
        parts.append(text_of(declaration.tokens))
    return "".join(parts)


def _sites(program: Program) -> Iterator[tuple[int, Site]]:
    floating = any(
        FLOATING & set(d.words) for d in program.of("signature", "data", "synonym", "equation")
    )
    defined = set(program.functions)
    for at, declaration in enumerate(program.declarations):
        if declaration.kind == "equation":
            own = defined | bound_names(declaration.tokens)
            tokens = declaration.tokens
            yield at, Site(tokens, pattern_positions(tokens), frozenset(own), floating)


def _with(program: Program, at: int, edit: Edit) -> str:
    declaration = program.declarations[at]
    changed = replace(declaration, tokens=splice(declaration.tokens, edit))
    parts = [*program.declarations[:at], changed, *program.declarations[at + 1 :]]
    return written(replace(program, declarations=tuple(parts)))


def splice(tokens_: Sequence[Token], edit: Edit) -> tuple[Token, ...]:
    """The tokens with an edit made. What follows on the line moves along, unless lines below hang
    on its columns: then it goes to a line of its own."""
    first, last = tokens_[edit.start], tokens_[edit.end - 1]
    end = last.column + len(last.text)
    moved = first.column + len(edit.text) - end
    rest = tokens_[edit.end :]
    on_line = [t for t in rest if t.line == last.line]
    hangs = any(t.text in LAYOUT for t in on_line[:-1])
    new = Token("name", edit.text, first.line, first.column, broken=hangs)
    if not hangs:
        shifted = [replace(t, column=t.column + moved) for t in on_line]
        rest = (*shifted, *rest[len(on_line) :])
    return (*tokens_[: edit.start], new, *rest)


def _whole(program: Program, function: str) -> Iterator[tuple[str, bool, str]]:
    yield from ((WHOLE[0], True, code) for code in _renamings(program))
    yield from ((WHOLE[1], True, code) for code in _helper(program, function))
    yield from ((WHOLE[2], False, code) for code in _needles(program, function))


def _renamings(program: Program) -> Iterator[str]:
    used = {t.text for d in program.declarations for t in d.tokens}
    fresh = [name for name in FRESH if name not in used]
    for at, declaration in enumerate(program.declarations):
        if declaration.kind != "equation":
            continue
        names = sorted(bound_names(declaration.tokens) - set(program.functions))
        for number, name in enumerate(n for n in names if not n.startswith("_")):
            if not fresh:
                return
            change = {name: fresh[number % len(fresh)]}
            tokens = _renamed_in_line(declaration.tokens, change)
            parts = [*program.declarations]
            parts[at] = replace(declaration, tokens=tokens)
            yield written(replace(program, declarations=tuple(parts)))


def _renamed_in_line(tokens_: Sequence[Token], change: dict[str, str]) -> tuple[Token, ...]:
    """Names exchanged, each line kept whole where no other line hangs on its columns."""
    tokens = tuple(tokens_)
    for n in range(len(tokens)):
        if tokens[n].kind == "name" and tokens[n].text in change:
            tokens = splice(tokens, Edit(n, n + 1, change[tokens[n].text]))
    return tokens


def _signature(program: Program, function: str) -> tuple[str, list[str], str] | None:
    """The written type, and the types of arguments and result; None where that is not plain."""
    try:
        signature = signature_of(program, function)
    except Refused:
        return None
    declared = program.signatures[function]
    text = " ".join(text_of(declared).split())
    return text, [str(t) for t in signature.arguments], str(signature.result)


def _moved(program: Program, function: str) -> tuple[str, str]:
    """The program with its function under another name, and that name."""
    used = {t.text for d in program.declarations for t in d.tokens}
    name = next(n for n in (f"{function}Aux", "helper1", "inner1") if n not in used)
    change = {function: name}
    parts = [replace(d, tokens=_renamed_in_line(d.tokens, change)) for d in program.declarations]
    return written(replace(program, declarations=tuple(parts))), name


def _helper(program: Program, function: str) -> Iterator[str]:
    types = _signature(program, function)
    if types is None:
        return
    rest, name = _moved(program, function)
    names = " ".join(f"x{n}" for n in range(1, len(types[1]) + 1))
    call = f"{function} :: {types[0]}\n{function} {names} = {name} {names}\n"
    yield _after_types(rest, program, call)


def _needles(program: Program, function: str) -> Iterator[str]:
    """Another argument at one value, or at lists of one length."""
    types = _signature(program, function)
    if types is None:
        return
    rest, name = _moved(program, function)
    names = [f"x{n}" for n in range(1, len(types[1]) + 1)]
    for n, type_ in enumerate(types[1]):
        x = names[n]
        if type_ in ("Integer", "Int"):
            test, other = f"{x} == 41", f"({x} + 1)"
        elif type_.startswith("["):
            test, other = f"length {x} == 3", f"(drop 1 {x})"
        else:
            continue
        changed = " ".join([*names[:n], other, *names[n + 1 :]])
        body = f"if {test} then {name} {changed} else {name} {' '.join(names)}"
        call = f"{function} :: {types[0]}\n{function} {' '.join(names)} = {body}\n"
        yield _after_types(rest, program, call)


def _after_types(rest: str, program: Program, call: str) -> str:
    """The new function stands where the old one did: after imports and types, before the rest."""
    lines = rest.splitlines(keepends=True)
    heads = [d for d in program.declarations if d.kind in ("import", "data", "synonym")]
    text = "".join(text_of(d.tokens) for d in heads)
    skip, seen = 0, 0
    wanted = len([line for line in text.splitlines() if line.strip()])
    while skip < len(lines) and seen < wanted:
        seen += bool(lines[skip].strip())
        skip += 1
    head = "".join(lines[:skip])
    return head + ("\n" if head else "") + call + "\n" + "".join(lines[skip:]).lstrip("\n")

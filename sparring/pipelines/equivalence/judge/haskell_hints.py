"""Numbers and texts that are worth trying on two programs: their own constants, and what makes
their comparisons come out otherwise than they mostly do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import isqrt

from sparring.pipelines.equivalence.judge.haskell_source import Program, Token

MOST_WANTED = 400  # numbers that are worked out for a pair with a proof
WRAP = 1 << 64
_WHOLE = re.compile(r"\d{1,40}")
_SMALL = re.compile(r"\d{1,2}")
_BROKEN = re.compile(r"\d+\.\d+(e-?\d{1,2})?")


def hints(programs: Sequence[Program], thorough: bool) -> str:
    """The harness's `Hints` of two programs. `thorough`: with roots and inverses as well."""
    by_kind: dict[str, list[str]] = {"whole": [], "broken": [], "string": [], "char": []}
    for program in programs:
        for declaration in program.of("equation"):
            for token in declaration.tokens:
                kind = token.kind
                if kind == "number":
                    kind = "whole" if _WHOLE.fullmatch(token.text) else "broken"
                    if kind == "broken" and not _BROKEN.fullmatch(token.text):
                        continue
                if kind in by_kind and token.text not in by_kind[kind]:
                    by_kind[kind].append(token.text)
            by_kind["whole"] += _powers(declaration.tokens)
    strings = by_kind["string"][:12] + [f"[{c}]" for c in by_kind["char"][:12]]
    fractions = by_kind["broken"][:10] + [w for w in by_kind["whole"][:10] if len(w) < 10]
    wanted = sought(map(int, by_kind["whole"])) if thorough else []
    lists = (by_kind["whole"][:12], fractions, strings, map(str, wanted))
    return "Harness.Hints " + " ".join(f"[{', '.join(items)}]" for items in lists)


def _powers(part: Sequence[Token]) -> list[str]:
    """What `10 ^ 9` names, if it is no longer than a constant may be."""
    powers = [
        int(base.text) ** int(exponent.text)
        for base, sign, exponent in zip(part, part[1:], part[2:], strict=False)
        if sign.text == "^" and _WHOLE.fullmatch(base.text) and _SMALL.fullmatch(exponent.text)
    ]
    return [text for text in map(str, powers) if _WHOLE.fullmatch(text)]


def sought(constants: Iterable[int]) -> list[int]:
    """Constants, their neighbours, roots, and solutions of comparisons between them: x * x == c,
    a * x + b == c, and the same modulo 2^64."""
    known = list(dict.fromkeys(constants))[:16]
    candidates: dict[int, None] = {}

    def add(*numbers: int) -> None:
        for number in numbers:
            for near in (number, number + 1, number - 1):
                candidates.setdefault(near)
                candidates.setdefault(-near)

    for c in known:
        add(c)
        for power in (2, 3, 4, 5):
            add(root(c, power))
    for c in known:
        for a in known:
            add(c + a, c - a, c * a)
            if a > 1:
                add(c // a)
            if a % 2:
                add(signed(pow(a, -1, WRAP) * c))
            for b in known:
                if a > 1:
                    add((c - b) // a, (c + b) // a)
                if a > 0 and c >= b:
                    add(root((c - b) // a, 2))
    add((1 << 63) - 1, 1 << 62, 1 << 32, 1 << 31, isqrt(1 << 63))
    return list(candidates)[:MOST_WANTED]


def root(number: int, power: int) -> int:
    """The whole part of a root, exactly, whatever the number's size."""
    if power == 2:
        return isqrt(number)
    low, high = 0, 1 << (number.bit_length() // power + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**power <= number else (low, middle - 1)
    return low


def signed(number: int) -> int:
    """A number modulo 2^64 as Int has it."""
    number %= WRAP
    return number - WRAP if number >= WRAP // 2 else number

"""Rules that rewrite one place of a Haskell program: some keep its meaning, some break it.

A rule looks at the tokens of one equation and says which of them it would have otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from sparring.pipelines.equivalence.judge.haskell_source import Token
from sparring.pipelines.equivalence.judge.liquid_vocabulary import COMPARISON, DENIED, MIRRORED

FLOATING = {"Double", "Float", "Fractional", "Floating", "RealFrac", "RealFloat"}
OPENS, CLOSES = "([", ")]"
# Where an operand ends: what binds less tightly than a comparison, or is no expression at all.
EDGES = {"=", "|", "->", "if", "then", "else", "of", "in", "where", "let", ",", "&&", "||", "$"}


@dataclass(frozen=True, slots=True)
class Edit:
    """Tokens [start, end) of an equation become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Site:
    """One equation, and what rules need to know of the program around it."""

    tokens: Sequence[Token]
    patterns: frozenset[int]  # tokens that stand in patterns
    own: frozenset[str]  # names the program defines or binds itself
    floating: bool

    def text(self, start: int, end: int) -> str:
        """A stretch of one line as it stands."""
        result = ""
        for token in self.tokens[start:end]:
            gap = token.column - self.tokens[start].column - len(result)
            result += " " * max(gap, 0) + token.text
        return result

    def line(self, n: int) -> tuple[int, int]:
        """The first and the one after the last token of a line."""
        here = self.tokens[n].line
        same = [k for k, token in enumerate(self.tokens) if token.line == here]
        return same[0], same[-1] + 1


Rule = Callable[[Site], Iterator[Edit]]


def _operand(site: Site, n: int, step: int, edges: set[str]) -> int | None:
    """How far the operand beside an operator reaches, on its line; None where that is not plain."""
    low, high = site.line(n)
    depth, at = 0, n + step
    while low <= at < high:
        text = site.tokens[at].text
        opens, closes = (OPENS, CLOSES) if step > 0 else (CLOSES, OPENS)
        if depth == 0 and (text in edges or text in closes):
            break
        depth += (text in opens) - (text in closes)
        at += step
    if depth or abs(at - n) == 1:
        return None
    if step > 0 and at == high and not _ends(site, at):
        return None
    return at if step > 0 else at + 1


def _ends(site: Site, at: int) -> bool:
    """Whether an expression that ends with its line ends there."""
    if at == len(site.tokens):
        return True
    after = site.tokens[at]
    return after.text in ("|", "where", "then", "else", "in") or after.column <= 3


def _binary(site: Site, operators: Collection[str], edges: set[str]) -> Iterator[tuple[int, ...]]:
    for n, token in enumerate(site.tokens):
        if token.text in operators and token.kind == "symbol" and n not in site.patterns:
            left, right = _operand(site, n, -1, edges), _operand(site, n, +1, edges)
            if left is not None and right is not None:
                yield n, left, right


def swap_sum(site: Site) -> Iterator[Edit]:
    edges = EDGES | COMPARISON | {":", "++", "<>"}
    for n, left, right in _binary(site, "+", edges):
        inside = site.tokens[left:n] + site.tokens[n + 1 : right]  # type: ignore[operator]
        if not any(t.text in ("-", "+", "\\") for t in inside):
            a, b = site.text(left, n), site.text(n + 1, right)
            yield Edit(left, right, f"{b} + {a}")


def swap_product(site: Site) -> Iterator[Edit]:
    edges = EDGES | COMPARISON | {":", "++", "<>", "+", "-"}
    for n, left, right in _binary(site, "*", edges):
        inside = [t.text for t in (*site.tokens[left:n], *site.tokens[n + 1 : right])]
        if not {"*", "`", "/", "^", ".", "\\", "!!"} & set(inside):
            a, b = site.text(left, n), site.text(n + 1, right)
            yield Edit(left, right, f"{b} * {a}")


def mirror_comparison(site: Site) -> Iterator[Edit]:
    for n, left, right in _binary(site, COMPARISON, EDGES | COMPARISON):
        a, b = site.text(left, n), site.text(n + 1, right)
        yield Edit(left, right, f"{b} {MIRRORED[site.tokens[n].text]} {a}")


def negate_comparison(site: Site) -> Iterator[Edit]:
    if site.floating:  # NaN is neither less nor not less
        return
    for n, left, right in _binary(site, COMPARISON, EDGES | COMPARISON):
        a, b = site.text(left, n), site.text(n + 1, right)
        yield Edit(left, right, f"not ({a} {DENIED[site.tokens[n].text]} {b})")


def _conditionals(site: Site) -> Iterator[tuple[int, int, int, int]]:
    for n, token in enumerate(site.tokens):
        if token.text != "if":
            continue
        end = site.line(n)[1]
        depth, nested, then, other = 0, 0, 0, 0
        for at in range(n + 1, site.line(n)[1]):
            text = site.tokens[at].text
            depth += (text in OPENS) - (text in CLOSES)
            if depth < 0 or (depth == 0 and text in (",", "where")):
                end = at
                break
            nested += (text == "if") - (text == "else" and nested > 0)
            if depth == 0 and nested == 0 and text == "then":
                then = at
            elif depth == 0 and nested == 0 and text == "else" and then and not other:
                other = at
        inside = [t.text for t in site.tokens[n + 1 : end]]
        if (
            then
            and other
            and inside.count("if") == 0
            and (_ends(site, end) or end < site.line(n)[1])
        ):
            yield n, then, other, end


def flip_conditional(site: Site) -> Iterator[Edit]:
    for n, then, other, end in _conditionals(site):
        condition = site.text(n + 1, then)
        yes, no = site.text(then + 1, other), site.text(other + 1, end)
        yield Edit(n, end, f"if not ({condition}) then {no} else {yes}")


def exchange_branches(site: Site) -> Iterator[Edit]:
    for n, then, other, end in _conditionals(site):
        condition = site.text(n + 1, then)
        yes, no = site.text(then + 1, other), site.text(other + 1, end)
        yield Edit(n, end, f"if {condition} then {no} else {yes}")


def write_out_literal(site: Site) -> Iterator[Edit]:
    for n, token in enumerate(site.tokens):
        if token.kind == "number" and token.text.isdigit() and n not in site.patterns:
            negative = n > 0 and site.tokens[n - 1].text == "-"
            if 1 <= int(token.text) <= 10**6 and not negative:
                yield Edit(n, n + 1, f"({int(token.text) - 1} + 1)")


def cons_as_append(site: Site) -> Iterator[Edit]:
    for n, token in enumerate(site.tokens):
        if token.text == ":" and n and n not in site.patterns:
            before = site.tokens[n - 1]
            earlier = site.tokens[n - 2].text if n > 1 else "="
            plain = before.kind in ("name", "number", "char") and earlier in EDGES | {"("}
            if plain and before.line == token.line and n - 1 not in site.patterns:
                yield Edit(n - 1, n + 1, f"[{before.text}] ++")


def _words(table: dict[str, str], exact: bool = True) -> Rule:
    """Names of the Prelude exchanged for what is in the table."""

    def rule(site: Site) -> Iterator[Edit]:
        if exact and site.floating:
            return
        for n, token in enumerate(site.tokens):
            if token.text not in table or token.text in site.own or n in site.patterns:
                continue
            quoted = n > 0 and site.tokens[n - 1].text == "`"
            if not quoted or table[token.text].isidentifier():
                yield Edit(n, n + 1, table[token.text])

    return rule


SPELLED_OUT = {
    "sum": "foldr (+) 0",
    "product": "foldr (*) 1",
    "concat": "foldr (++) []",
    "reverse": "foldl (flip (:)) []",
    "length": "(foldr (\\_ k -> k + 1) 0)",
    "even": "(\\k -> k `mod` 2 == 0)",
    "odd": "(\\k -> k `mod` 2 == 1)",
    "null": "((== 0) . length)",
    "abs": "(\\k -> if k < 0 then negate k else k)",
    "negate": "(\\k -> 0 - k)",
    "max": "(\\j k -> if j >= k then j else k)",
    "min": "(\\j k -> if j <= k then j else k)",
    "map": "(\\g ks -> [g k | k <- ks])",
    "filter": "(\\g ks -> [k | k <- ks, g k])",
    "maximum": "foldr1 max",
    "minimum": "foldr1 min",
    "not": "(== False)",
    "head": "(\\ks -> ks !! 0)",
}
SPELLED_OUT = {name: text if text[0] == "(" else f"({text})" for name, text in SPELLED_OUT.items()}
CONFUSED = {
    "head": "last",
    "last": "head",
    "maximum": "minimum",
    "minimum": "maximum",
    "max": "min",
    "min": "max",
    "even": "odd",
    "odd": "even",
    "take": "drop",
    "drop": "take",
    "any": "all",
    "all": "any",
    "sum": "product",
    "reverse": "id",
    "sort": "reverse",
    "nub": "id",
    "True": "False",
    "False": "True",
    "LT": "GT",
    "GT": "EQ",
    "abs": "negate",
    "sqrt": "abs",
    "scanl1": "scanr1",
    "words": "lines",
    "not": "id",
}
ROUNDING = {"div": "quot", "mod": "rem"}


def _symbols(table: dict[str, str]) -> Rule:
    def rule(site: Site) -> Iterator[Edit]:
        for n, token in enumerate(site.tokens):
            if token.kind == "symbol" and token.text in table and n not in site.patterns:
                before = site.tokens[n - 1] if n else token
                if before.text not in ("(", "=", "->", ",", "[", "then", "else"):
                    yield Edit(n, n + 1, table[token.text])

    return rule


def other_literal(site: Site) -> Iterator[Edit]:
    for n, token in enumerate(site.tokens):
        if token.kind == "number" and token.text.isdigit() and n not in site.patterns:
            yield Edit(n, n + 1, str(int(token.text) + 1))


def other_text(site: Site) -> Iterator[Edit]:
    for n, token in enumerate(site.tokens):
        if token.kind in ("string", "char") and n not in site.patterns and len(token.text) >= 3:
            last = token.text[-2]
            if last.isalnum() or last in "!?()":
                other = {"!": "?", "?": "!", "(": ")", ")": "("}.get(
                    last, "q" if last != "q" else "k"
                )
                yield Edit(n, n + 1, token.text[:-2] + other + token.text[-1])


KEEP: dict[str, Rule] = {
    "swap the terms of a sum": swap_sum,
    "swap the factors of a product": swap_product,
    "mirror a comparison": mirror_comparison,
    "negate a comparison twice": negate_comparison,
    "flip a conditional": flip_conditional,
    "write a literal as a sum": write_out_literal,
    "write a cons as an append": cons_as_append,
    "spell a function out": _words(SPELLED_OUT),
    "say True for otherwise": _words({"otherwise": "True"}, exact=False),
}
BREAK: dict[str, Rule] = {
    "move a boundary": _symbols({"<": "<=", "<=": "<", ">": ">=", ">=": ">"}),
    "turn an equality round": _symbols({"==": "/=", "/=": "=="}),
    "exchange plus and minus": _symbols({"+": "-", "-": "+"}),
    "add instead of multiplying": _symbols({"*": "+"}),
    "exchange and and or": _symbols({"&&": "||", "||": "&&"}),
    "exchange the branches": exchange_branches,
    "change a literal": other_literal,
    "change a text": other_text,
    "confuse two functions": _words(CONFUSED, exact=False),
    "round towards zero": _words(ROUNDING, exact=False),
}

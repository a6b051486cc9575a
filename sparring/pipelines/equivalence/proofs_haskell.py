"""First tries at proofs that a rewrite kept the meaning of a Haskell function: by the function's
own equations, its cases and its calls of itself. Liquid Haskell has the last word on each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparring.pipelines.equivalence.judge.haskell_source import Program, Token, parse, split
from sparring.pipelines.equivalence.judge.haskell_types import signature_of

Tokens = Sequence[Token]
TRIVIAL = "trivial"
IF = ("then", "else")


def proofs(p: str, q: str, function: str) -> list[str]:
    """Proofs that P and Q are equal, without repeats, in the order to try them."""
    first, second = parse(p), parse(q)
    arity = len(signature_of(first, function).arguments)
    blanks = f"lemma {' '.join(['_'] * arity)} = {TRIVIAL}\n"
    names = [f"x{n}" for n in range(1, arity + 1)]
    texts = []
    for source in (first, second):
        followed = follow(source, function, "lemma", arity)
        for helper in _alike(first, second, function):
            types = [_text(part) for part in split(first.signatures[function], "->")]
            stated = " -> ".join(f"{x}:{t}" for x, t in zip(names, types, strict=False))
            given = " ".join(names)
            texts.append(
                f"{{-@ same :: {stated} -> {{ {function}P {given} == {helper} {given} }} @-}}\n"
                f"same :: {' -> '.join([*types[:-1], 'Proof'])}\n"
                f"{follow(source, function, 'same', arity)}lemma {given} = same {given}\n"
            )
        texts.append(followed)
    return list(dict.fromkeys([*texts, blanks]))


def follow(program: Program, function: str, lemma: str, arity: int) -> str:
    """A lemma with the function's own equations, which calls itself where the function does."""
    lines = []
    for equation in program.equations(function):
        patterns, rest = _split(list(equation.tokens)[1:], ("=", "|"))
        head = f"{lemma} {_text(patterns)}"
        if rest and rest[0].text == "=":
            lines.append(f"{head} = {_body(rest[1:], function, lemma, arity)}")
        else:
            lines.append(head)
            for condition, body in _guards(rest):
                right_side = _body(body, function, lemma, arity)
                lines.append(f"  | {_text(condition)} = {right_side}")
    return "\n".join(lines) + "\n"


def _guards(rest: Tokens) -> Iterator[tuple[Tokens, Tokens]]:
    while rest and rest[0].text == "|":
        condition, after = _split(rest[1:], ("=",))
        body, rest = _split(after[1:], ("|",))
        yield condition, body


def _body(body: Tokens, function: str, lemma: str, arity: int) -> str:
    body = _split(body, ("where",))[0]
    if body and body[0].text == "if":
        condition, after = _split(body[1:], ("then",))
        then, other = _split(after[1:], ("else",))
        if other:
            yes = _body(then, function, lemma, arity)
            no = _body(other[1:], function, lemma, arity)
            return f"if {_text(condition)} then {yes} else {no}"
    if body and body[0].text == "case":
        return _case(body, function, lemma, arity)
    return " ? ".join([TRIVIAL, *_calls(body, function, lemma, arity)])


def _case(body: Tokens, function: str, lemma: str, arity: int) -> str:
    subject, after = _split(body[1:], ("of",))
    column = after[1].column if len(after) > 1 else 0
    lines = [f"case {_text(subject)} of"]
    alternative: list[Token] = []
    for token in [*after[1:], None]:
        if token is None or (token.column == column and alternative):
            pattern, rest = _split(alternative, ("->",))
            equation = _body(rest[1:], function, lemma, arity).replace("\n", "\n    ")
            lines.append(f"    {_text(pattern)} -> {equation}")
            alternative = []
        if token is not None:
            alternative.append(token)
    return "\n".join(lines)


def _calls(body: Tokens, function: str, lemma: str, arity: int) -> Iterator[str]:
    """The function's calls of itself, as calls of the lemma."""
    for n, token in enumerate(body):
        if token.text == function:
            given: list[str] = []
            at = n + 1
            while at < len(body) and len(given) < arity:
                end = _atom(body, at)
                given.append(_text(body[at:end]))
                at = end
            if len(given) == arity:
                yield " ".join([lemma, *given])


def _atom(body: Tokens, at: int) -> int:
    """Where the name, the literal or the bracketed group that begins at `at` ends."""
    depth = 0
    while at < len(body):
        depth += (body[at].text in "([") - (body[at].text in ")]")
        at += 1
        if depth <= 0:
            break
    return at


def _split(tokens: Tokens, words: Sequence[str]) -> tuple[list[Token], list[Token]]:
    """What stands before the first of some words that is in no brackets, and the rest."""
    depth, nested = 0, 0
    for n, token in enumerate(tokens):
        if depth == 0 and token.text in words:
            if nested == 0:
                return list(tokens[:n]), list(tokens[n:])
            nested -= 1
        depth += (token.text in "([") - (token.text in ")]")
        if token.text == "if" and set(words) & set(IF):
            nested += 1
    return list(tokens), []


def _alike(p: Program, q: Program, function: str) -> list[str]:
    """Helpers of Q's own with the function's type: it may have moved there."""
    wanted = _text(p.signatures[function])
    new = [name for name in q.functions if name not in p.functions]
    return [n for n in new if _text(q.signatures.get(n, ())) == wanted]


def _text(tokens: Tokens) -> str:
    return " ".join(token.text for token in tokens)

"""Haskell sources taken apart: tokens, top-level declarations, and what a program may be made of.

The judge writes every module that GHC sees; of what it is given it keeps declarations, and only
those it knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MOST_SOURCE = 100_000
_KEYWORDS = """case class data default deriving do else foreign if import in infix infixl infixr
    instance let module newtype of then type where _"""
# Pure modules of GHC's own packages. What prints, traces, reads the clock or trusts is not here.
_MODULES = """
    Prelude Control.Applicative Control.Arrow Control.Monad Control.Monad.ST Control.Monad.State
    Control.Monad.Reader Control.Monad.Writer Data.Array Data.Array.ST Data.Array.Unboxed
    Data.Bifunctor Data.Bits Data.Bool Data.Char Data.Complex Data.Either Data.Fixed Data.Foldable
    Data.Function Data.Functor Data.Functor.Identity Data.Graph Data.Int Data.IntMap
    Data.IntMap.Strict Data.IntSet Data.List Data.List.NonEmpty Data.Map Data.Map.Strict Data.Maybe
    Data.Monoid Data.Ord Data.Ratio Data.STRef Data.Semigroup Data.Sequence Data.Set Data.String
    Data.Traversable Data.Tree Data.Tuple Data.Typeable Data.Void Data.Word Numeric Numeric.Natural
    Text.Printf Text.Read"""
_EXTENSIONS = """BangPatterns BinaryLiterals DeriveFoldable DeriveFunctor DeriveTraversable
    EmptyCase EmptyDataDecls ExplicitForAll FlexibleContexts FlexibleInstances InstanceSigs
    KindSignatures LambdaCase MultiWayIf NamedFieldPuns NumericUnderscores ParallelListComp
    PatternGuards RankNTypes RecordWildCards ScopedTypeVariables StandaloneDeriving
    TupleSections TypeApplications ViewPatterns"""
KEYWORDS, MODULES, EXTENSIONS = (frozenset(t.split()) for t in (_KEYWORDS, _MODULES, _EXTENSIONS))
PIECE = re.compile(
    r"""(?P<space>[ \t\r\n\f]+)
    |(?P<line>--+(?![!\#$%&*+./<=>?@\\^|~:-])[^\n]*)
    |(?P<block>\{-)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<number>0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)
    |(?P<name>(?:[A-Z][\w']*\.)*[A-Za-z_][\w']*)
    |(?P<char>'(?:[^'\\\n]|\\(?:[A-Z@^\[\]_]+|.)[A-Z0-9a-fA-F^@]*)')
    |(?P<special>[()\[\]{},;`])
    |(?P<symbol>[!\#$%&*+./<=>?@\\^|~:-]+)""",
    re.VERBOSE | re.ASCII,
)
QUALIFIED_SYMBOL = re.compile(r"(?:[A-Z][\w']*\.)+[!\#$%&*+./<=>?@\\^|~:-]+", re.ASCII)


class Refused(Exception):
    """What was given is no program that can be judged. `kind` is counted, the message is read."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is one of name, symbol, number, string, char, special, pragma, liquid."""

    kind: str
    text: str
    line: int
    column: int
    broken: bool = False  # renamed: what follows goes to a new line, at its old column


def _block(source: str, start: int) -> int:
    """Where the comment that begins at `start` ends; they nest."""
    depth, at = 0, start
    while at < len(source):
        if source.startswith("{-", at):
            depth, at = depth + 1, at + 2
        elif source.startswith("-}", at):
            depth, at = depth - 1, at + 2
            if not depth:
                return at
        else:
            at += 1
    raise Refused("syntax", "a comment does not end")


def tokens(source: str) -> list[Token]:
    """Without comments; pragmas and Liquid Haskell's annotations are tokens of their own."""
    if len(source) > MOST_SOURCE:
        raise Refused("syntax", f"longer than {MOST_SOURCE} characters")
    source = source.expandtabs(8).replace("\r", "")
    result: list[Token] = []
    at, line, line_start = 0, 1, 0
    while at < len(source):
        match = QUALIFIED_SYMBOL.match(source, at) or PIECE.match(source, at)
        if match is None:
            raise Refused("syntax", f"line {line}: {source[at]!r} is not understood here")
        kind, end = match.lastgroup or "symbol", match.end()
        if kind == "block":
            end = _block(source, at)
            kind = {"#": "pragma", "@": "liquid"}.get(source[at + 2 : at + 3], "space")
        if kind not in ("space", "line"):
            result.append(Token(kind, source[at:end], line, at - line_start + 1))
        breaks = source.count("\n", at, end)
        if breaks:
            line, line_start = line + breaks, source.rfind("\n", at, end) + 1
        at = end
    return result


def split(part: Sequence[Token], separator: str) -> list[list[Token]]:
    """What stands between separators that are in no brackets."""
    parts, depth = [list[Token]()], 0
    for token in part:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == separator and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class Cursor:
    """A parser's position among tokens; a subclass says what `wrong` tokens are refused with."""

    def __init__(self, part: Iterable[Token]) -> None:
        self.tokens, self.at = list(part), 0

    def wrong(self, text: str) -> Refused:
        raise NotImplementedError

    @property
    def next(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def peek(self) -> str:
        """The next token's text; empty at the end."""
        return self.next.text if self.next else ""

    def take(self, wanted: str = "") -> Token:
        token = self.next
        if token is None or (wanted and token.text != wanted):
            raise self.wrong(token.text if token else "its end")
        self.at += 1
        return token

    def skip(self, text: str) -> bool:
        """Take the next token where it is this one."""
        if self.peek() != text:
            return False
        self.at += 1
        return True


@dataclass(frozen=True, slots=True)
class Declaration:
    """One top-level declaration. `kind` is one of import, data, synonym, class, instance, fixity,
    signature, equation, liquid; `names` is what it is about."""

    kind: str
    names: tuple[str, ...]
    tokens: tuple[Token, ...]

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(token.text for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Program:
    extensions: tuple[str, ...]
    declarations: tuple[Declaration, ...]

    def of(self, *kinds: str) -> list[Declaration]:
        return [d for d in self.declarations if d.kind in kinds]

    @property
    def functions(self) -> list[str]:
        """Names that have equations, in order."""
        return list(dict.fromkeys(d.names[0] for d in self.of("equation")))

    @property
    def signatures(self) -> dict[str, tuple[Token, ...]]:
        types = {}
        for declaration in self.of("signature"):
            at = declaration.words.index("::")
            for name in declaration.names:
                types[name] = declaration.tokens[at + 1 :]
        return types

    @property
    def constructors(self) -> set[str]:
        """Of its own data types."""
        bodies = [d.words for d in self.of("data")]
        return {w[n + 1] for w in bodies for n in range(len(w) - 1) if w[n] in ("=", "|")}

    def equations(self, name: str) -> list[Declaration]:
        return [d for d in self.of("equation") if d.names[0] == name]


def parse(source: str) -> Program:
    """The declarations of a source, of kinds that a pure program is made of."""
    extensions: list[str] = []
    rest: list[Token] = []
    for token in tokens(source):
        if token.kind == "pragma":
            extensions += _extensions(token)
        else:
            rest.append(token)
    return Program(tuple(extensions), tuple(declaration(part) for part in top_level(rest)))


def _extensions(pragma: Token) -> list[str]:
    words = re.findall(r"\w+", pragma.text)
    if not words or words[0].upper() != "LANGUAGE":
        raise Refused("forbidden", f"line {pragma.line}: the pragma {pragma.text} is not allowed")
    wrong = [word for word in words[1:] if word not in EXTENSIONS]
    if wrong:
        raise Refused("forbidden", f"line {pragma.line}: the extension {wrong[0]} is not allowed")
    return words[1:]


def _after_header(tokens_: list[Token]) -> list[Token]:
    code = [t for t in tokens_ if t.kind != "liquid"]
    if not code:
        raise Refused("syntax", "there is no program")
    if code[0].text != "module":
        return tokens_
    where = next((n for n, t in enumerate(tokens_) if t.text == "where"), None)
    if where is None:
        raise Refused("syntax", "the module's header has no `where`")
    return tokens_[where + 1 :]


def top_level(tokens_: list[Token]) -> Iterable[list[Token]]:
    """The tokens of each top-level declaration, the module's header left out."""
    tokens_ = _after_header(tokens_)
    if not tokens_:
        raise Refused("syntax", "there is no program")
    base = min(token.column for token in tokens_)
    parts: list[list[Token]] = []
    for token in tokens_:
        if token.column == base or token.kind == "liquid" or not parts:
            parts.append([])
        elif parts[-1][0].kind == "liquid":
            raise Refused("syntax", f"line {token.line}: {token.text} is at no declaration's place")
        parts[-1].append(token)
    return parts


def declaration(part: list[Token]) -> Declaration:
    head, words = part[0], [token.text for token in part]
    kind = head.text
    if head.kind == "liquid":
        return Declaration("liquid", (), tuple(part))
    if kind == "import":
        return Declaration("import", (_imported(part),), tuple(part))
    if kind in ("data", "newtype", "type", "class", "instance"):
        body = words[1 : words.index("=")] if "=" in words else words[1:]
        name = next((w for w in body if w[:1].isupper()), "?")
        kinds = {"type": "synonym", "newtype": "data"}
        return Declaration(kinds.get(kind, kind), (name,), tuple(part))
    if kind in ("infix", "infixl", "infixr"):
        return Declaration("fixity", tuple(w for w in words[1:] if w not in ",`"), tuple(part))
    if kind in KEYWORDS or head.kind not in ("name", "special", "symbol", "string", "number"):
        raise Refused("forbidden", f"line {head.line}: `{kind}` may not stand here")
    names = _signed(part)
    if names:
        return Declaration("signature", names, tuple(part))
    return Declaration("equation", (_defined(part),), tuple(part))


def _imported(part: list[Token]) -> str:
    name = next((t.text for t in part[1:] if t.text not in ("qualified", "safe")), "")
    if name not in MODULES:
        raise Refused("forbidden", f"line {part[0].line}: the module {name} may not be imported")
    return name


def _signed(part: list[Token]) -> tuple[str, ...]:
    """The names of `f, (+++) :: …`; none if this is no signature."""
    words = [token.text for token in part]
    if "::" not in words:
        return ()
    before = part[: words.index("::")]
    if all(t.kind in ("name", "symbol") or t.text in "()," for t in before) and "=" not in (
        t.text for t in before
    ):
        return tuple(t.text for t in before if t.text not in "(),")
    return ()


def _defined(part: list[Token]) -> str:
    """The name that an equation defines, before its `=` or first guard."""
    depth, left = 0, []
    for token in part:
        if depth == 0 and token.text in ("=", "|"):
            break
        depth += (token.text in "([{") - (token.text in ")]}")
        left.append((token, depth))
    else:
        raise Refused("syntax", f"line {part[0].line}: neither a type nor an equation")
    words = [token.text for token, _ in left]
    if len(words) > 2 and words[0] == "(" and words[2] == ")" and left[1][0].kind == "symbol":
        return words[1]
    for n, (token, depth) in enumerate(left):
        if depth == 0 and n and token.kind == "symbol" and token.text not in ("@", "~", "!", "-"):
            return token.text
        if depth == 0 and token.text == "`":
            return words[n + 1]
    if left and left[0][0].kind == "name" and words[0] not in KEYWORDS and words[0][0].islower():
        return words[0]
    if len(words) > 1 and words[0] == "(" and words[1][:1].isidentifier():
        inner = [w for w in words[1:] if w != "("]
        if inner and inner[0][:1].islower() and words[-1] != ")":
            return inner[0]
    raise Refused("syntax", f"line {part[0].line}: only functions may be defined at the top level")


def renamed(part: Iterable[Token], names: dict[str, str]) -> tuple[Token, ...]:
    """Names exchanged; columns stay, for layout counts on them."""
    return tuple(
        replace(t, text=names[t.text], broken=True)
        if t.kind in ("name", "symbol") and names.get(t.text, t.text) != t.text
        else t
        for t in part
    )


def pattern_positions(tokens_: Sequence[Token]) -> frozenset[int]:
    """Positions in patterns: before the first `=` or guard, and before any other `=` or `->`, back
    to where that pattern starts. What stands in a guard is no pattern."""
    positions: set[int] = set()
    segment: list[int] = []
    line, left, guard, done = tokens_[0].line if tokens_ else 0, True, False, False
    inside = 0  # brackets of lists
    for n, token in enumerate(tokens_):
        inside += (token.text == "[") - (token.text == "]")
        if not left and token.line != line:
            if token.text != "|" or done:  # guards may stand on lines below their pattern
                segment = []
            line, guard, done = token.line, False, False
        if token.text in ("of", "let", "where", "in", "then", "else", "\\"):
            segment, guard = [], False
        if inside and not left and token.text in ("|", ","):  # a list, or what it is drawn from
            segment = []
        elif token.text in ("=", "->", "|", "<-"):
            if not guard:
                positions.update(segment)
            segment, left, line, guard = [], False, token.line, token.text == "|"
            done = token.text != "|"
        segment.append(n)
    return frozenset(positions)


def bound_names(tokens_: Sequence[Token]) -> set[str]:
    """Variables in patterns."""
    patterns = (tokens_[n] for n in pattern_positions(tokens_))
    names = {token.text for token in patterns if token.kind == "name"}
    return {name for name in names if name[0].islower() or name[0] == "_"} - KEYWORDS


def text_of(part: Iterable[Token]) -> str:
    """The tokens on lines of their own, each in its column."""
    lines: list[str] = [""]
    last: Token | None = None
    for token in part:
        if last and (token.line != last.line or last.broken):
            lines.append("")
        lines[-1] = lines[-1].ljust(token.column - 1) + token.text
        last = token
    return "\n".join(lines) + "\n"

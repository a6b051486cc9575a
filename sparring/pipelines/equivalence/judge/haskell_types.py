"""Types and literals of Haskell, as far as a judged function may have them in its signature."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparring.pipelines.equivalence.judge.haskell_source import (
    Cursor,
    Declaration,
    Program,
    Refused,
    Token,
    tokens,
)

FRACTIONAL = {"Fractional", "Floating", "RealFrac", "RealFloat"}
CONSTRUCTORS = frozenset({"True", "False", "Just", "Nothing", "Left", "Right", "LT", "EQ", "GT"})


@dataclass(frozen=True, slots=True)
class Type:
    """`head` is a constructor, a variable, "[]", "(,)" or "->"."""

    head: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.head == "[]":
            return f"[{self.args[0]}]"
        if self.head == "(,)":
            return f"({', '.join(map(str, self.args))})"
        if self.head == "->":
            return f"({self.args[0]} -> {self.args[1]})"
        return f"({' '.join([self.head, *map(str, self.args)])})" if self.args else self.head

    @property
    def variable(self) -> bool:
        return self.head[0].islower() or self.head[0] == "_"

    def heads(self) -> set[str]:
        return {self.head}.union(*(arg.heads() for arg in self.args))


@dataclass(frozen=True, slots=True)
class Signature:
    """A function's type: class constraints as (class, variable), arguments, result."""

    context: tuple[tuple[str, str], ...]
    arguments: tuple[Type, ...]
    result: Type

    @property
    def types(self) -> tuple[Type, ...]:
        return (*self.arguments, self.result)


class _Parser(Cursor):
    """Recursive descent over the tokens of a type."""

    def wrong(self, text: str) -> Refused:
        whole = " ".join(token.text for token in self.tokens)
        return Refused("type", f"the type {whole} is not understood")

    def arrows(self) -> Type:
        left = self.application()
        return Type("->", (left, self.arrows())) if self.skip("->") else left

    def application(self) -> Type:
        head = self.atom()
        args = []
        while self.peek() and (self.peek() in "([" or self.peek()[0].isalpha()):
            args.append(self.atom())
        if args and head.head in ("[]", "(,)", "->"):
            raise self.wrong(head.head)
        return Type(head.head, (*head.args, *args))

    def atom(self) -> Type:
        word = self.take().text
        if word == "[":
            inner = self.arrows()
            self.take("]")
            return Type("[]", (inner,))
        if word == "(":
            parts = []
            while self.peek() != ")":
                parts.append(self.arrows())
                self.skip(",")
            self.take(")")
            return parts[0] if len(parts) == 1 else Type("(,)", tuple(parts))
        if not (word[0].isalpha() or word[0] == "_") or word == "forall":
            raise self.wrong(word)
        return Type(word)


def parse_type(tokens: Sequence[Token]) -> Type:
    parser = _Parser(token for token in tokens if token.text != "!")
    whole = parser.arrows()
    if parser.peek():
        raise parser.wrong(parser.peek())
    return whole


def _synonyms(declarations: Iterable[Declaration]) -> dict[str, tuple[list[str], Type]]:
    synonyms: dict[str, tuple[list[str], Type]] = {"String": ([], Type("[]", (Type("Char"),)))}
    for declaration in declarations:
        words = declaration.words
        equals = words.index("=") if "=" in words else len(words)
        body = parse_type(declaration.tokens[equals + 1 :])
        synonyms[declaration.names[0]] = (list(words[2:equals]), body)
    return synonyms


def _expand(type_: Type, synonyms: dict[str, tuple[list[str], Type]], depth: int = 0) -> Type:
    if depth > 20:
        raise Refused("type", "type synonyms that go round in circles")
    args = tuple(_expand(arg, synonyms, depth) for arg in type_.args)
    if type_.head in synonyms:
        names, body = synonyms[type_.head]
        if len(names) != len(args):
            raise Refused("type", f"the synonym {type_.head} has {len(names)} arguments")
        whole = substitute(body, dict(zip(names, args, strict=True)))
        return _expand(whole, synonyms, depth + 1)
    return Type(type_.head, args)


def substitute(type_: Type, values: dict[str, Type]) -> Type:
    if type_.head in values and not type_.args:
        return values[type_.head]
    return Type(type_.head, tuple(substitute(arg, values) for arg in type_.args))


def signature_of(program: Program, function: str) -> Signature:
    """The declared type of a function, synonyms written out. Refuses what cannot be judged."""
    if function not in program.functions:
        raise Refused("type", f"there is no function {function} in the program")
    declared = program.signatures.get(function)
    if declared is None:
        raise Refused("type", f"{function} has no type: write {function} :: …")
    words = [t.text for t in declared]
    if words[0] == "forall":
        declared = declared[words.index(".") + 1 :]
        words = [t.text for t in declared]
    context: list[tuple[str, str]] = []
    if "=>" in words:
        at = words.index("=>")
        inside = [w for w in words[:at] if w not in "(),"]
        if len(inside) % 2:
            raise Refused("type", f"the context of {function}'s type is not understood")
        context = sorted(zip(inside[::2], inside[1::2], strict=True))
        declared = declared[at + 1 :]
    whole = _expand(parse_type(declared), _synonyms(program.of("synonym")))
    arguments = []
    while whole.head == "->":
        arguments.append(whole.args[0])
        whole = whole.args[1]
    signature = Signature(tuple(context), tuple(arguments), whole)
    _refuse(function, signature)
    return signature


def _refuse(function: str, signature: Signature) -> None:
    heads = set().union(*(t.heads() for t in signature.types))
    if "IO" in heads:
        raise Refused("IO", f"{function} is an action, not a function: its type has IO in it")
    if not signature.arguments:
        raise Refused("type", f"{function} takes no arguments")
    if "->" in heads:
        raise Refused("type", f"{function} takes or returns a function, which cannot be compared")
    if len(signature.arguments) > 6:
        raise Refused("type", f"{function} takes more than six arguments")
    for type_ in signature.types:
        if type_.variable and type_.args:
            raise Refused("type", f"{function} is about an unknown {type_.head}, not a plain type")


def same_type(a: Signature, b: Signature) -> bool:
    """Equal but for the names of type variables and the order of constraints."""
    return _canonical(a) == _canonical(b)


def _canonical(signature: Signature) -> Signature:
    names: dict[str, Type] = {}

    def walk(type_: Type) -> None:
        if type_.variable:
            names.setdefault(type_.head, Type(f"t{len(names)}"))
        for arg in type_.args:
            walk(arg)

    for type_ in signature.types:
        walk(type_)
    context = sorted((c, names[v].head if v in names else v) for c, v in signature.context)
    arguments = tuple(substitute(t, names) for t in signature.arguments)
    return Signature(tuple(context), arguments, substitute(signature.result, names))


def monomorphic(signature: Signature) -> Signature:
    """Type variables at Integer, or at Double where the constraints ask for fractions."""
    values: dict[str, Type] = {}
    for type_ in signature.types:
        for head in type_.heads():
            if head[0].islower():
                fraction = any(v == head and c in FRACTIONAL for c, v in signature.context)
                values[head] = Type("Double" if fraction else "Integer")
    arguments = tuple(substitute(t, values) for t in signature.arguments)
    return Signature((), arguments, substitute(signature.result, values))


def constructors(program: Program) -> frozenset[str]:
    """Constructors that an input may be made of."""
    return CONSTRUCTORS | {name for name in program.constructors if name[:1].isupper()}


class _Literals(Cursor):
    """Reads what stands after a function's name in an application: literals, nothing else."""

    def __init__(self, text: str, known: frozenset[str]) -> None:
        super().__init__(tokens(text))
        self.known = known

    def wrong(self, text: str, why: str = "is out of place") -> Refused:
        return Refused("input", f"the input is not made of literals: {text} {why}")

    def atom(self) -> str:
        token = self.take()
        if token.kind in ("number", "string", "char") or token.text in self.known:
            return token.text
        if token.text == "[":
            return f"[{', '.join(self.items(']'))}]"
        if token.text == "(":
            return f"({', '.join(self.items(')'))})"
        raise self.wrong(token.text, "is none")

    def items(self, end: str) -> list[str]:
        parts: list[str] = []
        while self.peek() not in ("", end):
            parts.append(self.expression())
            self.skip(",")
        self.take(end)
        return parts

    def expression(self) -> str:
        if self.skip("-"):
            if (number := self.take()).kind != "number":
                raise Refused("input", f"-{number.text} is no literal")
            return self.fraction(f"-{number.text}")
        if self.next is not None and self.next.kind == "name":
            parts = [self.constructor()]
            while self.peek() not in ("", ")", "]", ",", ":"):
                parts.append(self.atom())
            whole = " ".join(parts)
        else:
            whole = self.fraction(self.atom())
        return f"{whole} : {self.expression()}" if self.skip(":") else whole

    def fraction(self, above: str) -> str:
        """3 % 4, and 0/0 and ±1/0, which have no literals of their own."""
        if self.peek() not in ("%", "/"):
            return above
        sign, below = self.take().text, self.take()
        zero = above in ("0", "1", "-1") and below.text == "0"
        if below.kind != "number" or (sign == "/" and not zero):
            raise Refused("input", f"{above} {sign} {below.text} is no literal")
        return f"{above} {sign} {below.text}"

    def constructor(self) -> str:
        text = self.take().text
        if text == "fromList" or text.endswith(".fromList"):
            return "GHC.Exts.fromList"
        if text not in self.known:
            raise self.wrong(text, "is none")
        return text


def literals(text: str, arity: int, known: frozenset[str]) -> list[str]:
    """The arguments in `text`, each as an expression; GHC holds them to their types."""
    reader = _Literals(text, known)
    values = []
    while reader.peek():
        values.append(reader.atom())
    if len(values) != arity:
        raise Refused("input", f"the input has {len(values)} arguments, and the function {arity}")
    return values

"""Liquid Haskell's annotations, as far as a proof may have them: statements of lemmas, types of
helpers with what grows smaller. They are parsed, and written anew from what was parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sparring.pipelines.equivalence.judge.haskell_source import (
    Cursor,
    Refused,
    Token,
    split,
    tokens,
)
from sparring.pipelines.equivalence.judge.liquid_nodes import (
    Call,
    Expression,
    If,
    Items,
    Name,
    Number,
    refuse,
)

# From loosest to tightest; the operators of a program stand among them by their own strength.
_LEVELS = {
    "<=>": (-3, "n"), "=>": (-2, "r"), "||": (2, "r"), "&&": (3, "r"),
    "==": (4, "n"), "=": (4, "n"), "/=": (4, "n"), "!=": (4, "n"), "<": (4, "n"), "<=": (4, "n"),
    ">": (4, "n"), ">=": (4, "n"), ":": (5, "r"), "+": (6, "l"), "-": (6, "l"), "*": (7, "l"),
}  # fmt: skip
_SPELLED = {"=": "==", "!=": "/="}
NUMBERS = (["Int"], ["Integer"])
CONS = "op_cons"  # x : xs in a statement would be a sort's name after a colon
MEASURE = "len"  # the one measure of the tool's own that a statement may name


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a statement: what it is called, its type, and what is required of it."""

    binder: str
    type: tuple[str, ...]
    local: str = ""  # what the value is called in the requirement
    requirement: Expression | None = None

    def least(self) -> bool:
        """Whether the requirement gives it a least value."""
        todo = [self.requirement] if self.requirement is not None else []
        while todo:
            now = todo.pop()
            if not isinstance(now, Call) or not isinstance(now.function, Name):
                continue
            word, sides = now.function.text, now.arguments
            if word == "&&":
                todo += sides
            low, high = (sides[0], sides[-1]) if word in ("<", "<=") else (sides[-1], sides[0])
            bounds = word in ("<", "<=", ">", ">=") and isinstance(low, Number)
            if bounds and isinstance(high, Name) and high.text in (self.local, self.binder):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Statement:
    """{-@ name :: x:T -> … -> { equation } / [n] @-}, or a helper's type with `/ [n]`."""

    name: str
    arguments: tuple[Argument, ...]
    equation: Expression | None  # None for a helper's type
    result: tuple[str, ...] = ()  # a helper's
    nat: bool = False  # whether that is 0 or more
    metric: tuple[Expression, ...] = ()

    def bounded(self) -> frozenset[int]:
        return frozenset(n for n, argument in enumerate(self.arguments) if argument.least())


@dataclass(frozen=True)
class Scope:
    """What a statement may speak of: functions and constructors, and how operators bind."""

    known: frozenset[str]
    fixities: Mapping[str, tuple[int, str]] = field(default_factory=dict)


def parse_annotation(annotation: Token) -> tuple[str, list[Token]]:
    """("reflect", [name]) or (name, the rest of `name :: …`); every other annotation is refused."""
    text = annotation.text
    if not text.startswith("{-@") or not text.endswith("@-}"):
        raise refuse(f"line {annotation.line}: {text[:60]} is not closed by @-}}")
    inner = tokens(text[3:-3])
    words = [t.text for t in inner]
    if len(words) == 2 and words[0] == "reflect":
        return "reflect", inner[1:]
    if len(words) < 3 or words[1] != "::" or inner[0].kind not in ("name", "symbol"):
        raise refuse(
            f"line {annotation.line}: {text} is not allowed in a proof; a lemma is written "
            "{-@ name :: x:T -> { equation } @-}, and a helper {-@ reflect name @-}"
        )
    if "." in words[0] and inner[0].kind == "name":
        raise refuse(f"line {annotation.line}: {words[0]} is not yours to say anything of")
    return words[0], inner[2:]


def parse_statement(
    name: str, tokens: Sequence[Token], declared: Sequence[Token], scope: Scope
) -> Statement:
    """A lemma's statement, whose types are those of its Haskell signature."""
    parts, types = split(tokens, "->"), split(declared, "->")
    if [t.text for t in types[-1]] != ["Proof"] or len(parts) != len(types):
        raise refuse(f"proof: the statement of {name} does not fit its type, which ends in Proof")
    reader = _Reader(name, scope)
    arguments = tuple(
        reader.argument(part, tuple(t.text for t in type_))
        for part, type_ in zip(parts[:-1], types[:-1], strict=True)
    )
    result, metric = _without_metric(parts[-1])
    if len(result) < 3 or result[0].text != "{" or result[-1].text != "}":
        raise refuse(f"proof: the statement of {name} does not end in an {{ equation }}")
    equation = reader.predicate(result[1:-1])
    return Statement(name, arguments, equation, metric=reader.metric(metric))


def parse_signature(
    name: str, tokens: Sequence[Token], declared: Sequence[Token], scope: Scope
) -> Statement:
    """A helper's type again, with what grows smaller, and perhaps Nat for a result. Arguments stay
    as they are: what is reflected must hold for all of them."""
    parts, types = split(tokens, "->"), split(declared, "->")
    result, metric = _without_metric(parts[-1])
    if len(parts) != len(types):
        raise refuse(f"proof: {name} has another type")
    reader = _Reader(name, scope)
    arguments = []
    for part, type_ in zip(parts[:-1], types[:-1], strict=True):
        argument = reader.argument(part, tuple(t.text for t in type_))
        if argument.requirement is not None:
            raise refuse(
                f"proof: {name} is unfolded for all arguments, so none can be required of it: "
                f"leave out `{' '.join(t.text for t in part)}` and let a guard decide"
            )
        arguments.append(argument)
    texts, wanted = [t.text for t in result], [t.text for t in types[-1]]
    is_nat = texts == ["Nat"] and wanted in NUMBERS
    if texts != wanted and not is_nat:
        raise refuse(f"proof: {name} has another type")
    return Statement(name, tuple(arguments), None, tuple(wanted), is_nat, reader.metric(metric))


def _without_metric(tokens: list[Token]) -> tuple[list[Token], list[Token]]:
    depth = 0
    for n, token in enumerate(tokens):
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "/" and depth == 0:
            return tokens[:n], tokens[n + 1 :]
    return tokens, []


class _Reader:
    def __init__(self, name: str, scope: Scope) -> None:
        self.name, self.scope = name, scope
        self.binders: set[str] = set()

    def argument(self, part: list[Token], wanted: tuple[str, ...]) -> Argument:
        texts = [t.text for t in part]
        binder = ""
        if len(part) > 1 and part[0].kind == "name" and texts[1] == ":":
            binder, part, texts = texts[0], part[2:], texts[2:]
            self._new(binder)
        if tuple(texts) == wanted:
            return Argument(binder, wanted)
        if texts == ["Nat"] and list(wanted) in NUMBERS:
            local = "value1"
            at_least = Call(Name(">="), (Name(local), Number(0)))
            return Argument(binder, wanted, local, at_least)
        if len(texts) > 3 and texts[0] == "{" and texts[-1] == "}" and "|" in texts:
            bar = texts.index("|")
            head, local = texts[1:bar], binder
            if len(head) > 2 and head[1] == ":":
                local, head = head[0], head[2:]
                if local != binder:
                    self._new(local)
            if tuple(head) == wanted and local:
                required = self.predicate(part[bar + 1 : -1])
                if local != binder:
                    self.binders.discard(local)
                return Argument(binder, wanted, local, required)
        written_type, meant = " ".join(texts), " ".join(wanted)
        raise refuse(
            f"proof: the statement of {self.name} says {written_type} where its type says {meant}"
        )

    def _new(self, binder: str) -> None:
        taken = self.binders | self.scope.known | {MEASURE}
        if binder in taken or not binder[0].islower():
            raise refuse(f"proof: {binder} is a name for something else in {self.name}: rename it")
        self.binders.add(binder)

    def predicate(self, tokens: Sequence[Token]) -> Expression:
        parser = _Parser(self.name, tokens, self.scope, frozenset(self.binders))
        return parser.all()

    def metric(self, tokens: Sequence[Token]) -> tuple[Expression, ...]:
        """[n, len xs - m]: sums and differences of parameters, numbers and lengths."""
        if not tokens:
            return ()
        if tokens[0].text != "[" or tokens[-1].text != "]" or len(tokens) < 3:
            raise refuse(f"proof: what grows smaller in {self.name} is written / [n]")
        made = tuple(self.predicate(part) for part in split(tokens[1:-1], ","))
        for expression in made:
            self._check_metric(expression)
        return made

    def _check_metric(self, now: Expression) -> None:
        match now:
            case Number():
                return
            case Name(text) if text in self.binders:
                return
            case Call(Name("+" | "-"), (left, right)):
                self._check_metric(left)
                self._check_metric(right)
                return
            case Call(Name(text), (Name(of),)) if text == MEASURE and of in self.binders:
                if MEASURE not in self.scope.known:
                    return
        raise refuse(
            f"proof: what grows smaller in {self.name} is made of its parameters, numbers, + and "
            "-, and len of a list: write / [n] or / [len xs]"
        )


class _Parser(Cursor):
    """Predicates by precedence."""

    def __init__(
        self, name: str, tokens: Sequence[Token], scope: Scope, binders: frozenset[str]
    ) -> None:
        super().__init__(tokens)
        self.name, self.scope, self.binders = name, scope, binders

    def wrong(self, text: str) -> Refused:
        return refuse(f"proof: {text} may not stand here in the statement of {self.name}")

    def all(self) -> Expression:
        made = self.binary(-9)
        if self.peek():
            raise self.wrong(self.peek())
        return made

    def _level(self, token: Token) -> tuple[int, str] | None:
        if token.text in _LEVELS:
            return _LEVELS[token.text]
        if token.kind == "symbol" and token.text in self.scope.known:
            return self.scope.fixities.get(token.text, (9, "l"))
        return None

    def binary(self, least: int) -> Expression:
        left = self.prefix()
        while (token := self.next) is not None:
            level = self._level(token)
            if level is None or level[0] < least:
                break
            self.take()
            right = self.binary(level[0] if level[1] == "r" else level[0] + 1)
            left = Call(Name(_SPELLED.get(token.text, token.text)), (left, right))
            if level[1] == "n" and self.next and self._level(self.next) == level:
                raise self.wrong(self.peek())
        return left

    def prefix(self) -> Expression:
        if self.skip("-"):
            value = self.binary(7)
            return Number(-value.value) if isinstance(value, Number) else _minus(value)
        if self.skip("not"):
            return Call(Name("not"), (self.atom(),))
        if self.skip("if"):
            condition = self.binary(-9)
            self.take("then")
            then = self.binary(-9)
            self.take("else")
            return If(condition, then, self.binary(-9))
        return self.application()

    def application(self) -> Expression:
        head = self.atom()
        arguments = []
        while (token := self.next) is not None and (
            token.kind in ("name", "number") or token.text in "(["
        ):
            if token.text in ("then", "else", "if", "not"):
                break
            arguments.append(self.atom())
        if not arguments:
            return head
        if not isinstance(head, Name):
            raise self.wrong(self.tokens[self.at - 1].text)
        return Call(head, tuple(arguments))

    def atom(self) -> Expression:
        token = self.take()
        if token.kind == "number" and token.text.isdigit():
            return Number(int(token.text))
        if token.text == "(":
            inside = self._items(")")
            return inside[0] if len(inside) == 1 else Items("tuple", tuple(inside))
        if token.text == "[":
            return Items("list", tuple(self._items("]")))
        fine = token.text in self.binders | self.scope.known | {"True", "False", MEASURE}
        if token.kind == "name" and fine:
            return Name(token.text)
        raise self.wrong(token.text)

    def _items(self, end: str) -> list[Expression]:
        items: list[Expression] = []
        while items or not self.skip(end):
            items.append(self.binary(-9))
            if self.skip(end):
                break
            self.take(",")
        return items


def _minus(value: Expression) -> Expression:
    return Call(Name("-"), (Number(0), value))


def written(statement: Statement, spelled: Callable[[str], str]) -> str:
    """The annotation's text, every part in brackets, its names as `spelled` has them."""
    parts = []
    for argument in statement.arguments:
        type_ = " ".join(map(spelled, argument.type))
        if argument.requirement is not None:
            local = spelled(argument.local)
            type_ = f"{{{local}:{type_} | {logic(argument.requirement, spelled)}}}"
        parts.append(f"{spelled(argument.binder)}:{type_}" if argument.binder else type_)
    if statement.equation is not None:
        parts.append(f"{{ {logic(statement.equation, spelled)} }}")
    else:
        result = " ".join(map(spelled, statement.result))
        parts.append(f"{{my_value:{result} | my_value >= 0}}" if statement.nat else result)
    metric = ", ".join(logic(part, spelled) for part in statement.metric)
    end = f" / [{metric}]" if metric else ""
    return f"{spelled(statement.name)} :: {' -> '.join(parts)}{end}"


def logic(now: Expression, spelled: Callable[[str], str]) -> str:
    match now:
        case Number(value):
            return str(value) if value >= 0 else f"(0 - {-value})"
        case Name(text):
            return spelled(text)
        case Call(Name(":"), (left, right)):
            return f"({CONS} {logic(left, spelled)} {logic(right, spelled)})"
        case Call(Name(text), (left, right)) if not spelled(text)[0].isalpha():
            return f"({logic(left, spelled)} {spelled(text)} {logic(right, spelled)})"
        case Call(function, arguments):
            return f"({' '.join(logic(part, spelled) for part in (function, *arguments))})"
        case If(condition, then, other):
            asked, yes, no = (logic(part, spelled) for part in (condition, then, other))
            return f"(if {asked} then {yes} else {no})"
        case Items("tuple", items):
            return f"({', '.join(logic(item, spelled) for item in items)})"
        case Items(_, items):
            made = "[]"
            for item in reversed(items):
                made = f"({CONS} {logic(item, spelled)} {made})"
            return made
    raise refuse("this may not stand in a statement")

"""What P, Q and a proof may be where Liquid Haskell is to be believed: declarations by their words,
equations by GHC's tree. Nothing is let through for not being known to be bad."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparring.pipelines.equivalence.judge import liquid_vocabulary as words
from sparring.pipelines.equivalence.judge.haskell_source import Declaration, Program, split
from sparring.pipelines.equivalence.judge.liquid_nodes import (
    Call,
    Clause,
    Expression,
    Let,
    Module,
    Name,
    Number,
    Pattern,
    everything,
    inside,
    parts_of,
    refuse,
)
from sparring.pipelines.equivalence.judge.liquid_nodes import Case as CaseOf
from sparring.pipelines.equivalence.judge.liquid_vocabulary import LOWER, plain

MOST_DIGITS = 40


def check_program(program: Program, role: str) -> None:
    """Whether a program's declarations are of kinds and types that the logic speaks of truly."""
    if program.extensions:
        raise refuse(f"{role}: no extensions where there is to be a proof")
    for declaration in program.declarations:
        line = f"{role}, line {declaration.tokens[0].line}"
        if declaration.kind in ("import", "class", "instance", "synonym"):
            raise refuse(f"{line}: `{declaration.words[0]}` is not allowed where there is a proof")
        if declaration.kind == "data":
            _check_data(declaration, program, line)
        if declaration.kind == "signature":
            check_types(declaration, program, line)
        check_tokens(declaration, line)
    missing = [name for name in program.functions if name not in program.signatures]
    if missing:
        raise refuse(f"{role}: {missing[0]} needs a type, which Liquid Haskell reads")


def check_tokens(declaration: Declaration, line: str) -> None:
    for token in declaration.tokens:
        if token.kind == "name" and "." in token.text:
            raise refuse(f"{line}: {token.text} is not among the words that may stand here")
        if token.kind in ("string", "char") and ("{-" in token.text or "-}" in token.text):
            raise refuse(f"{line}: {token.text} is not among the words that may stand here")
        if token.text in ("{", "}", ";"):
            raise refuse(f"{line}: {token.text} may not stand here: use lines")


def data_types(program: Program) -> set[str]:
    return {d.names[0] for d in program.of("data")}


def _check_data(declaration: Declaration, program: Program, line: str) -> None:
    """Sums of products of plain types: a field that is a function could hold a paradox."""
    types, made = data_types(program), program.constructors
    if (types | made) & words.KEPT:
        raise refuse(f"{line}: a type or constructor of that name exists already")
    allowed = types | made | words.TYPES | words.CLASSES | {"data", "newtype", "deriving"}
    for token in declaration.tokens:
        variable = token.kind == "name" and token.text[0].islower() and token.text != "forall"
        if not (token.text in allowed or token.text in "=|()[]," or variable):
            raise refuse(f"{line}: {token.text} may not stand in a data type")
    _check_founded(declaration, line)


def _check_founded(declaration: Declaration, line: str) -> None:
    """A type whose every constructor holds a value of it has no value at all, and all is true of
    what there is none of."""
    words_ = declaration.words
    if "=" not in words_:
        raise refuse(f"{line}: {declaration.names[0]} has no constructor")
    end = words_.index("deriving") if "deriving" in words_ else len(words_)
    alternatives = split(declaration.tokens[words_.index("=") + 1 : end], "|")
    if all(declaration.names[0] in [t.text for t in part[1:]] for part in alternatives):
        raise refuse(f"{line}: {declaration.names[0]} has no constructor to begin with")


def check_types(declaration: Declaration, program: Program, line: str) -> None:
    types = data_types(program)
    at = declaration.words.index("::")
    for token in declaration.tokens[at + 1 :]:
        known = token.text in words.TYPES | types | {"->", "Proof"} or token.text in "()[],"
        if not known and not (token.kind == "name" and token.text[0].islower()):
            why = "the logic knows it otherwise than Haskell does, or not at all"
            raise refuse(f"{line}: {token.text} may not stand in a type here: {why}")
    if "forall" in declaration.words:
        raise refuse(f"{line}: forall may not stand in a type here")


def check_tree(module: Module, functions: Sequence[str], lemmas: Sequence[str]) -> None:
    """Every name bound and used, divisions, and calls in a circle; `functions` are those that are
    reflected, `lemmas` those that prove."""
    if set(module.functions) != {*functions, *lemmas}:
        odd = sorted(set(module.functions) ^ {*functions, *lemmas})
        raise refuse(f"{plain(odd[0])} is neither reflected nor stated")
    known = {*functions, *module.constructors, *words.CONSTRUCTORS, *words.BUILT_IN}
    for name, clauses in module.functions.items():
        proves = name in lemmas
        values = words.VALUES - words.DIVISION | words.COMBINATORS if proves else words.VALUES
        checker = _Names(name, known | values | (set(lemmas) if proves else set()), module)
        for clause in clauses:
            checker.clause(clause, frozenset())
        check_divisions(name, clauses)
    check_circles(module)


class _Names:
    """Each name is one that may stand there, and each bound one is new."""

    def __init__(self, where: str, known: set[str], module: Module) -> None:
        self.where, self.known, self.module = plain(where), known, module

    def clause(self, clause: Clause, bound: frozenset[str]) -> None:
        for pattern in clause.patterns:
            self._pattern(pattern)
        inner = self._bind(clause.bound(), bound)
        for part in inside(clause):
            self.expression(part, inner)

    def _pattern(self, pattern: Pattern) -> None:
        built_in = pattern.name in words.CONSTRUCTORS | words.BUILT_IN or pattern.name[:2] == "(,"
        if pattern.kind == "constructor" and not built_in:
            fields = self.module.constructors.get(pattern.name)
            if fields is None:
                raise refuse(f"{self.where}: there is no constructor {plain(pattern.name)} here")
            if fields != len(pattern.parts):
                raise refuse(f"{self.where}: {plain(pattern.name)} has {fields} fields")
        for part in pattern.parts:
            self._pattern(part)

    def _bind(self, names: Sequence[str], bound: frozenset[str]) -> frozenset[str]:
        for n, name in enumerate(names):
            if not name.startswith(LOWER):
                raise refuse(f"{self.where}: {name} has a meaning already: call it otherwise")
            if name in bound or name in names[:n] or name in self.module.functions:
                label = plain(name)
                raise refuse(
                    f"{self.where}: {label} is the name of two things: write {label}2 for one"
                )
        return bound | set(names)

    def expression(self, now: Expression, bound: frozenset[str]) -> None:
        match now:
            case Name(text):
                if text not in self.known and text not in bound:
                    raise refuse(
                        f"{self.where}: {plain(text)} is not among the words that may stand here: "
                        "define it at the top level, with its type, under that or another name"
                    )
            case Number(value):
                if len(str(abs(value))) > MOST_DIGITS:
                    raise refuse(f"{self.where}: a number of more than {MOST_DIGITS} digits")
            case Let(bindings, body):
                inner = self._bind([name for name, _ in bindings], bound)
                for _, bound_value in bindings:
                    self.expression(bound_value, inner)
                self.expression(body, inner)
            case CaseOf(subject, clauses):
                self.expression(subject, bound)
                for clause in clauses:
                    self.clause(clause, bound)
            case _:
                for part in parts_of(now):
                    self.expression(part, bound)


def divides(clauses: Sequence[Clause]) -> bool:
    return any(isinstance(e, Name) and e.text in words.DIVISION for e in everything(clauses))


def check_divisions(name: str, clauses: Sequence[Clause]) -> None:
    """Only x `div` 2 and the like. By a negative number the logic rounds otherwise, and the tool's
    own account of div contradicts itself: whatever is checked in sight of it holds."""
    label = plain(name)
    right = 0
    for now in everything(clauses):
        match now:
            case Call(Name(text), (_, Number(by))) if text in words.DIVISION and by > 0:
                right += 1
    named = [e.text for e in everything(clauses) if isinstance(e, Name)]
    wrong = [text for text in named if text in words.DIVISION]
    if len(wrong) != right:
        word = wrong[0]
        raise refuse(f"{label}: write {word} as x `{word}` 2, by a number above 0")
    if right and name in named:
        raise refuse(
            f"{label} is recursive and divides: put the division into a helper, half n = n `div` 2"
        )


def check_circles(module: Module) -> None:
    """No function calls another that calls it: their termination is not checked as it should be."""
    calls = {
        name: {e.text for e in everything(clauses) if isinstance(e, Name)} & set(module.functions)
        for name, clauses in module.functions.items()
    }
    for name in module.functions:
        seen: set[str] = set()
        todo = sorted(calls[name] - {name})
        while todo:
            other = todo.pop()
            if other == name:
                raise refuse(
                    f"{plain(name)} calls itself by way of others: write one function of them"
                )
            if other not in seen:
                seen.add(other)
                todo += sorted(calls[other])


def mentions(declarations: Iterable[Declaration], word: str) -> bool:
    return any(word in d.words for d in declarations)

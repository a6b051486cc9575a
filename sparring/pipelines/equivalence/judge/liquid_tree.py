"""A module as GHC's parser reads it, in the few forms that a proof may be made of. What is not one
of them is refused here, whatever it is, so that every rule after this one sees all there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sparring.pipelines.equivalence.judge.haskell_source import Refused
from sparring.pipelines.equivalence.judge.liquid_nodes import (
    FIXITIES,
    Binding,
    Branch,
    Call,
    Case,
    Clause,
    Expression,
    If,
    Items,
    Let,
    Letter,
    Module,
    Name,
    Number,
    Pattern,
    parts_of,
    refuse,
)
from sparring.pipelines.equivalence.judge.liquid_vocabulary import plain

Json = Any


def parse_tree(text: str) -> Module:
    """The module that `Syntax.hs` wrote down; Refused where it is more than a proof may be."""
    if not text:
        raise Refused("syntax", "GHC cannot parse the module")
    return _Reader(json.loads(text)).module()


class _Reader:
    """Turns GHC's nodes, [constructor, line, child, ...], into ours."""

    def __init__(self, root: Json) -> None:
        self.root = root
        self.fixities = dict(FIXITIES)
        self.where = "the module"

    def other(self, node: Json, meant: str) -> Refused:
        kind = node[0] if isinstance(node, list) and node else node
        form = FORMS.get(str(kind), f"this form ({kind})")
        return refuse(f"{self.where}: {form} may not stand {meant}")

    def module(self) -> Module:
        declarations = self.root[6]
        functions: dict[str, tuple[Clause, ...]] = {}
        constructors: dict[str, int] = {}
        for node in declarations:
            if node[0] == "SigD" and node[2][0] == "FixSig":
                self._fixity(node[2][2])
        for node in declarations:
            if node[0] == "TyClD" and node[2][0] == "DataDecl":
                constructors |= self._data(node[2])
            elif node[0] == "ValD" and node[2][0] == "FunBind":
                name, clauses = self._function(node[2])
                if name in functions:
                    raise refuse(f"{name} is defined twice: keep its equations together")
                functions[name] = clauses
            elif node[0] != "SigD" or node[2][0] not in ("TypeSig", "FixSig"):
                raise self.other(node[2], "at the top level")
        return Module(functions, constructors)

    def _fixity(self, node: Json) -> None:
        _, _, names, (_, _, _, strength, (side, _)) = node
        sides = {"InfixL": "l", "InfixR": "r", "InfixN": "n"}
        for name in names:
            self.fixities[name] = (strength, sides[side])

    def _data(self, node: Json) -> dict[str, int]:
        """Plain sums of products; their types are checked by `liquid_rules`."""
        types = {}
        definition = node[5]
        for one in definition[6]:
            if one[0] != "ConDeclH98" or one[6][0] != "PrefixCon":
                raise self.other(one, "in a data type")
            types[one[2]] = len(one[6][2])
        return types

    def _function(self, node: Json) -> tuple[str, tuple[Clause, ...]]:
        name = node[2]
        self.where = plain(name)
        clauses = self._clauses(node[3])
        if len({len(clause.patterns) for clause in clauses}) != 1:
            raise refuse(f"{name}: its equations have different numbers of arguments")
        return name, clauses

    def _clauses(self, group: Json) -> tuple[Clause, ...]:
        return tuple(self._clause(match) for match in group[2])

    def _clause(self, match: Json) -> Clause:
        _, _, _, patterns, (_, _, branches, bindings) = match
        return Clause(
            tuple(self.pattern(p) for p in patterns),
            tuple(self._branch(b) for b in branches),
            self._bindings(bindings),
        )

    def _branch(self, node: Json) -> Branch:
        guards = []
        for guard in node[2]:
            if guard[0] != "BodyStmt":
                raise refuse(f"{self.where}: a pattern may not stand in a guard: use `case`")
            guards.append(self.expression(guard[2]))
        return Branch(tuple(guards), self.expression(node[3]))

    def _bindings(self, node: Json) -> tuple[Binding, ...]:
        """Local names for values, each of which may use those before it."""
        if node[0] == "EmptyLocalBinds":
            return ()
        if node[0] != "HsValBinds" or node[2][0] != "ValBinds":
            raise self.other(node, "in `let` or `where`")
        bindings: list[Binding] = []
        for bind in node[2][2][2]:
            plain = bind[0] == "FunBind" and len(bind[3][2]) == 1
            clause = self._clause(bind[3][2][0]) if plain else None
            if clause is None or clause.patterns or clause.bindings or len(clause.branches) != 1:
                raise refuse(
                    f"{self.where}: `let` and `where` name values only, as in y = x + 1: "
                    "write a function of its own at the top level"
                )
            if clause.branches[0].guards:
                raise refuse(f"{self.where}: no guards in `let` or `where`: use `if`")
            bindings.append((bind[2], clause.branches[0].body))
        return in_order(bindings, self.where)

    def expression(self, node: Json) -> Expression:
        kind = node[0]
        match kind:
            case "HsVar":
                return Name(node[2])
            case "HsPar":
                return self.expression(node[2])
            case "HsOverLit":
                return Number(self._number(node[2]))
            case "HsLit" if node[2][0] == "HsChar":
                return Letter(node[2][3])
            case "NegApp":
                return _negated(self.expression(node[2]))
            case "HsApp":
                function, argument = self.expression(node[2]), self.expression(node[3])
                if isinstance(function, Call) and node[2][0] == "HsApp":
                    return Call(function.function, (*function.arguments, argument))
                return Call(function, (argument,))
            case "OpApp":
                return self._operators(node)
            case "HsIf":
                condition, then, other = (self.expression(part) for part in node[2:5])
                return If(condition, then, other)
            case "HsCase":
                return Case(self.expression(node[2]), self._clauses(node[3]))
            case "HsLet":
                return Let(self._bindings(node[2]), self.expression(node[3]))
            case "ExplicitList" if node[2][0] == "Nothing":
                return Items("list", tuple(self.expression(item) for item in node[3]))
            case "ExplicitTuple" if all(item[0] == "Present" for item in node[2]):
                return Items("tuple", tuple(self.expression(item[2]) for item in node[2]))
        raise self.other(node, "here")

    def _operators(self, node: Json) -> Expression:
        """A chain of operators, which GHC's parser leaves as it stands, by how they bind."""
        operands: list[Expression] = []
        operators: list[str] = []

        def flatten(now: Json) -> None:
            if now[0] == "OpApp":
                flatten(now[2])
                if now[3][0] != "HsVar":
                    raise self.other(now[3], "as an operator")
                operators.append(now[3][2])
                if _last(now[2])[0] == "NegApp" and self._strength(operators[-1]) > 6:
                    raise refuse(f"{self.where}: put brackets round what is negated")
                flatten(now[4])
            else:
                operands.append(self.expression(now))

        flatten(node)
        return self._climb(operands, operators)

    def _strength(self, operator: str) -> int:
        return self.fixities.get(operator, (9, "l"))[0]

    def _climb(self, operands: list[Expression], operators: list[str]) -> Expression:
        stack: list[str] = []
        done = [operands[0]]

        def reduce() -> None:
            right, left = done.pop(), done.pop()
            done.append(Call(Name(stack.pop()), (left, right)))

        for operator, operand in zip(operators, operands[1:], strict=True):
            strength, side = self.fixities.get(operator, (9, "l"))
            while stack:
                top, top_side = self.fixities.get(stack[-1], (9, "l"))
                if top == strength and (side != top_side or side == "n"):
                    raise refuse(f"{self.where}: put brackets between {stack[-1]} and {operator}")
                if top < strength or (top == strength and side == "r"):
                    break
                reduce()
            stack.append(operator)
            done.append(operand)
        while stack:
            reduce()
        return done[0]

    def _number(self, literal: Json) -> int:
        if literal[0] != "OverLit" or literal[2][0] != "HsIntegral":
            raise refuse(f"{self.where}: only whole numbers")
        return int(literal[2][2][4])

    def pattern(self, node: Json) -> Pattern:
        kind = node[0]
        match kind:
            case "WildPat":
                return Pattern("wild")
            case "VarPat":
                return Pattern("variable", node[2])
            case "ParPat":
                return self.pattern(node[2])
            case "AsPat":
                return Pattern("alias", node[2], (self.pattern(node[3]),))
            case "NPat":
                sign = 1 if node[3][0] == "Nothing" else -1
                return Pattern("number", value=sign * self._number(node[2]))
            case "LitPat" if node[2][0] == "HsChar":
                return Pattern("letter", value=node[2][3])
            case "TuplePat":
                parts = tuple(self.pattern(part) for part in node[2])
                return Pattern("constructor", "(" + "," * (len(parts) - 1) + ")", parts)
            case "ListPat":
                result = Pattern("constructor", "[]")
                for part in reversed(node[2]):
                    result = Pattern("constructor", ":", (self.pattern(part), result))
                return result
            case "ConPat" if node[3][0] == "PrefixCon":
                return Pattern("constructor", node[2], tuple(map(self.pattern, node[3][2])))
            case "ConPat" if node[3][0] == "InfixCon":
                *firsts, result = map(self.pattern, self._chain(node))
                for part in reversed(firsts):
                    result = Pattern("constructor", ":", (part, result))
                return result
        raise self.other(node, "in a pattern")

    def _chain(self, node: Json) -> list[Json]:
        """The parts of x:y:rest, which GHC's parser leaves in the order they stand."""
        if node[0] != "ConPat" or node[3][0] != "InfixCon":
            return [node]
        if node[2] != ":":
            raise refuse(f"{self.where}: the constructor {node[2]} is written before its fields")
        return [*self._chain(node[3][2]), *self._chain(node[3][3])]


FORMS = {
    "HsLam": "a lambda", "HsLamCase": "a lambda", "SectionL": "a section like (x +)",
    "SectionR": "a section like (+ x)", "HsDo": "`do` or a list comprehension",
    "ArithSeq": "a range of numbers", "ExprWithTySig": "a type after an expression",
    "SigPat": "a type after a pattern", "LazyPat": "a lazy pattern", "BangPat": "a strict pattern",
    "RecordCon": "a record", "RecordUpd": "a record", "HsMultiIf": "`if` with guards",
    "HsLit": "this literal", "PatBind": "a pattern that is given a value",
    "ViewPat": "a view pattern",
    "HsAppType": "a type application", "NPlusKPat": "a pattern n + k",
}  # fmt: skip


def _last(node: Json) -> Json:
    """What stands directly before the next operator of a chain."""
    return _last(node[4]) if node[0] == "OpApp" else node


def _negated(value: Expression) -> Expression:
    return Number(-value.value) if isinstance(value, Number) else Call(Name("negate"), (value,))


def in_order(bindings: list[Binding], where: str) -> tuple[Binding, ...]:
    """Bindings such that each uses only those before it; one that uses itself is refused."""
    names = {name for name, _ in bindings}
    if len(names) != len(bindings):
        raise refuse(f"{where}: a name is given a value twice")
    uses = {
        name: {e.text for e in _whole(value) if isinstance(e, Name)} & names
        for name, value in bindings
    }
    done: list[Binding] = []
    left = list(bindings)
    while left:
        ready = [b for b in left if not uses[b[0]] - {name for name, _ in done}]
        if not ready:
            label = plain(left[0][0])
            raise refuse(f"{where}: {label} stands for something that uses {label}")
        done += ready
        left = [b for b in left if b not in ready]
    return tuple(done)


def _whole(expression: Expression) -> Iterator[Expression]:
    yield expression
    for part in parts_of(expression):
        yield from _whole(part)

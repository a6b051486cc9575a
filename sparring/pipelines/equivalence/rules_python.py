"""Rules that rewrite one place of a Python function: some keep its meaning, some break it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Scope:
    """What a rule may need to know of the function around a node."""

    types: dict[str, str]  # parameter -> annotation
    tests: set[int] = field(default_factory=set)  # nodes of which only the truth counts

    @property
    def floats(self) -> bool:
        return any("float" in text for text in self.types.values())


Change = Callable[[ast.AST, Scope], Any]  # a node or statements in its place, or None

_MIRROR = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
_MIRROR |= {ast.Eq: ast.Eq, ast.NotEq: ast.NotEq}
_OPPOSITE = {ast.Lt: ast.GtE, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.GtE: ast.Lt}
_OPPOSITE |= {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In}
_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OTHER_OPERATOR = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mod,
    ast.Mod: ast.FloorDiv,
    ast.Div: ast.Mult,
}
_OTHER_NAME = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "lower": "upper",
    "isdigit": "isalpha",
    "append": "extend",
    "ValueError": "TypeError",
}


def expression(text: str, **parts: ast.expr) -> ast.expr:
    """An expression from its text, with `parts` in place of the names that stand for them."""

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return copy.deepcopy(parts[node.id]) if node.id in parts else node

    return Fill().visit(ast.parse(text, mode="eval").body)


def _plain(node: ast.expr) -> bool:
    """Whether nothing happens when it is worked out, so that it may be moved."""
    match node:
        case ast.Constant() | ast.Name():
            return True
        case ast.UnaryOp(operand=operand):
            return _plain(operand)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            return _plain(left) and _plain(right)
        case ast.Call(func=ast.Name(id="len"), args=[ast.Name()]):
            return True
    return False


def _int(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def mirror(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _MIRROR:
            if _plain(left) and _plain(right):
                return ast.Compare(right, [_MIRROR[type(op)]()], [left])
    return None


def deny(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OPPOSITE and not scope.floats:
            opposite = ast.Compare(node.left, [_OPPOSITE[type(op)]()], node.comparators)
            return ast.UnaryOp(ast.Not(), opposite)
    return None


def unchain(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Compare(left=a, ops=[first, second], comparators=[b, c]) if _plain(b):
            return ast.BoolOp(
                ast.And(), [ast.Compare(a, [first], [b]), ast.Compare(b, [second], [c])]
            )
    return None


def turn_branches(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.If(test=test, body=body, orelse=orelse) if orelse:
            return ast.If(ast.UnaryOp(ast.Not(), test), orelse, body)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ast.IfExp(ast.UnaryOp(ast.Not(), test), orelse, body)
    return None


def de_morgan(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.BoolOp) and id(node) in scope.tests:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        denied: list[ast.expr] = [ast.UnaryOp(ast.Not(), value) for value in node.values]
        return ast.UnaryOp(ast.Not(), ast.BoolOp(other, denied))
    return None


def spell_out(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
            return ast.Assign([ast.Name(name, ast.Store())], ast.BinOp(ast.Name(name), op, value))
    return None


def commute(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _plain(left) and _plain(right):
            return ast.BinOp(right, ast.Mult(), left)
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _int(left) or _int(right):
            return ast.BinOp(right, ast.Add(), left)
    return None


def split_constant(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value > 1:
        return ast.BinOp(ast.Constant(node.value - 1), ast.Add(), ast.Constant(1))
    return None


def same_otherwise(node: ast.AST, scope: Scope) -> Any:
    """Small identities, each with its own pattern."""
    match node:
        case ast.BinOp(left=ast.Name() as x, op=ast.Mult(), right=ast.Constant(value=2)):
            return expression("x + x", x=x)
        case ast.Call(func=ast.Name(id="abs"), args=[ast.Name() as x]) if not scope.floats:
            return expression("max(x, -x)", x=x)
        case ast.Compare(
            left=ast.BinOp(op=ast.Mod()) as rest,
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=0)],
        ):
            return expression("not rest", rest=rest)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="len"), args=[ast.Name() as x]),
            ops=[ast.Eq()],
            comparators=[ast.Constant(value=0)],
        ):
            return expression("not x", x=x)
        case ast.Subscript(value=ast.Name(), slice=ast.Slice(lower=None, upper=upper, step=None)):
            if upper is not None:
                return ast.Subscript(node.value, ast.Slice(ast.Constant(0), upper, None), node.ctx)
    return None


def else_for_return(node: ast.AST, scope: Scope) -> Any:
    """Not a node but a body: `if c: return a` and the rest becomes an if with an else."""
    if isinstance(node, ast.FunctionDef):
        for index, part in enumerate(node.body[:-1]):
            if (
                isinstance(part, ast.If)
                and not part.orelse
                and isinstance(part.body[-1], ast.Return)
            ):
                joined = ast.If(part.test, part.body, node.body[index + 1 :])
                return _with_body(node, [*node.body[:index], joined])
    return None


def _with_body(node: ast.FunctionDef, body: list[ast.stmt]) -> ast.FunctionDef:
    made = copy.copy(node)
    made.body = body
    return made


def other_constant(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        return ast.Constant(node.value * 2 + 1)
    return None


def lower_constant(node: ast.AST, scope: Scope) -> Any:
    return ast.Constant(node.value - 1) if _int(node) else None  # type: ignore[attr-defined]


def boundary(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _BOUNDARY:
            return ast.Compare(node.left, [_BOUNDARY[type(op)]()], node.comparators)
    return None


def opposite(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Compare(ops=[op]) if type(op) in _OPPOSITE:
            return ast.Compare(node.left, [_OPPOSITE[type(op)]()], node.comparators)
    return None


def other_junction(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    return None


def other_operator(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OTHER_OPERATOR:
        made = copy.copy(node)
        made.op = _OTHER_OPERATOR[type(node.op)]()
        return made
    return None


def swap_operands(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.BinOp(left=left, op=ast.Sub() | ast.FloorDiv() | ast.Mod() | ast.Div() as op):
            return ast.BinOp(node.right, op, left)
        case ast.BinOp(left=left, op=ast.Add() as op) if not _int(left) and not _int(node.right):
            return ast.BinOp(node.right, op, left)
    return None


def drop_not(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
    return None


def other_name(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if name in _OTHER_NAME:
            return ast.Name(_OTHER_NAME[name], ast.Load())
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in _OTHER_NAME:
            return ast.Attribute(node.value, _OTHER_NAME[name], ast.Load())
    return None


def other_type(node: ast.AST, scope: Scope) -> Any:
    """The same value to the eye, of another type."""
    match node:
        case ast.Return(value=ast.Constant(value=bool(value))):
            return ast.Return(ast.Constant(int(value)))
        case ast.Return(value=ast.Compare() as value):
            return ast.Return(expression("int(x)", x=value))
        case ast.Return(value=ast.Name() as value) if value.id not in scope.types:
            return ast.Return(expression("x + 0.0", x=value))
        case ast.Return(value=ast.ListComp() as value):
            return ast.Return(expression("tuple(x)", x=value))
    return None


def drop_statement(node: ast.AST, scope: Scope) -> Any:
    return ast.Pass() if isinstance(node, ast.AugAssign | ast.Expr) else None


def other_text(node: ast.AST, scope: Scope) -> Any:
    if isinstance(node, ast.Constant) and type(node.value) is str:
        return ast.Constant(node.value[:-1] if node.value else " ")
    return None


def other_slice(node: ast.AST, scope: Scope) -> Any:
    match node:
        case ast.Slice(lower=None, upper=None, step=ast.UnaryOp()):
            return ast.Slice()
        case ast.Slice(lower=ast.expr() as lower, upper=None, step=None):
            return ast.Slice(ast.BinOp(lower, ast.Add(), ast.Constant(1)), None, None)
        case ast.Slice(lower=None, upper=ast.expr() as upper, step=None):
            return ast.Slice(None, ast.BinOp(upper, ast.Add(), ast.Constant(1)), None)
    return None


KEEP: dict[str, Change] = {
    f.__name__: f
    for f in (
        mirror, deny, unchain, turn_branches, de_morgan, spell_out, commute, split_constant,
        same_otherwise, else_for_return,
    )
}  # fmt: skip
BREAK: dict[str, Change] = {
    f.__name__: f
    for f in (
        other_constant, lower_constant, boundary, opposite, other_junction, other_operator,
        swap_operands, drop_not, other_name, other_type, drop_statement, other_text, other_slice,
    )
}  # fmt: skip

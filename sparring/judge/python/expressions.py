"""What is left of an assert once the program's values are in: evaluated on plain data, by hand.

A small interpreter instead of `eval`: a test reaches nothing here but arithmetic, comparison and
a few functions of plain values, and no hostile value can make it take long.
"""

from __future__ import annotations

import ast
import math
import operator
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sparring.judge.sandbox.inside import wire
from sparring.judge.sandbox.inside.wire import BITS, TooMuch

ITEMS = 2_000_000
NUMBERS = {int, float, bool, complex}
REPEATED = (str, bytes, bytearray, list, tuple, deque)


def _sum(items: Any, /, start: Any = 0) -> Any:
    """Of numbers only: every part of a sum of lists or of fractions is as long as all before it."""
    items = items if isinstance(items, list | tuple | range) else list(items)
    if not isinstance(items, range) and not {*map(type, items), type(start)} <= NUMBERS:
        raise TooMuch("a sum of what are no numbers")
    return sum(items, start)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        abs, all, any, bool, bytes, complex, dict, divmod, float, frozenset, int, isinstance, len,
        list, max, min, round, set, sorted, str, tuple, type, range, reversed, enumerate, zip,
        repr, ord, chr, issubclass, bytearray,
    )
} | {"sum": _sum}  # fmt: skip
TYPES = {
    "NoneType": type(None), "object": object,
    **{t.__name__: t for t in (bool, int, float, complex, str, bytes, list, tuple, dict, set,
                               frozenset, range, bytearray)},
}  # fmt: skip
MODULES: dict[str, dict[str, Any]] = {
    "math": {
        name: getattr(math, name)
        for name in (
            "isclose", "fabs", "isnan", "isinf", "isfinite", "floor", "ceil", "trunc", "sqrt",
            "pi", "e", "inf", "nan", "log", "log2", "log10", "sin", "cos", "tan", "radians",
            "degrees", "hypot", "gcd",
        )
    }
}  # fmt: skip
METHODS = {
    str: {"startswith", "endswith", "lower", "upper", "strip", "lstrip", "rstrip", "split",
          "splitlines", "count", "find", "index", "isdigit", "isalpha", "isalnum", "isupper",
          "islower", "isspace", "title", "capitalize", "join"},
    list: {"count", "index", "copy"},
    tuple: {"count", "index"},
    dict: {"keys", "values", "items", "get", "copy"},
    set: {"issubset", "issuperset", "isdisjoint", "union", "intersection", "difference"},
    float: {"is_integer"},
}  # fmt: skip
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Hostile(Exception):
    """A value that makes any operation on it take long."""


class Value(ast.expr):
    """Where the n-th value of the program goes."""

    _fields = ("number",)

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def evaluate(node: ast.expr, values: list[Any]) -> Any:
    """The value of an expression that `sparring.judge.python.hoisting` accepts."""
    return _RULES[type(node)](node, values)


def fold(node: ast.expr) -> ast.expr:
    """A literal, made once for all evaluations: nothing here changes a value it is given."""
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() | complex())):
            return ast.Constant(evaluate(node, []))
        case ast.List(parts) | ast.Tuple(parts) | ast.Set(parts):
            known = all(isinstance(part, ast.Constant) for part in parts)
        case ast.Dict(keys, parts):
            known = all(isinstance(part, ast.Constant) for part in (*keys, *parts))
        case _:
            return node
    with suppress(TypeError):  # a list as a key: an error that belongs to the evaluation
        return ast.Constant(evaluate(node, [])) if known else node
    return node


def _call(node: ast.Call, values: list[Any]) -> Any:
    args = [evaluate(arg, values) for arg in node.args]
    named = {k.arg or "": evaluate(k.value, values) for k in node.keywords}
    for arg in (*args, *named.values()):
        _bounded(arg)
        _small(arg)
    if isinstance(node.func, ast.Name):
        function = FUNCTIONS[node.func.id]
        if function is range:
            _bounded(range(*args))
        if function is round and any(
            type(n) is int and abs(n) > BITS for n in (*args[1:], *named.values())
        ):
            raise TooMuch("rounding to that many digits")
        if function in (bytes, bytearray) and args and type(args[0]) is int and args[0] > ITEMS:
            raise TooMuch("bytes of that length")
        if function in (set, frozenset) and args:
            _sparse(args[0])
        if function is dict and args and isinstance(args[0], list | tuple):
            _sparse([pair[0] for pair in args[0]])
        result = function(*args, **named)
        return list(result) if function in (enumerate, zip, reversed) else result
    assert isinstance(node.func, ast.Attribute)
    owner = node.func.value
    if isinstance(owner, ast.Name) and owner.id in MODULES:
        return MODULES[owner.id][node.func.attr](*args, **named)
    target = evaluate(owner, values)
    if node.func.attr not in METHODS.get(type(target), ()):
        if hasattr(target, node.func.attr):  # a Counter's items(), say
            raise TooMuch(f"{node.func.attr}() of a {type(target).__name__}")
        raise AttributeError(f"{type(target).__name__!r} has no {node.func.attr!r} here")
    if type(target) is set:
        for arg in args:
            _sparse(arg)
    return getattr(target, node.func.attr)(*args, **named)


def _bounded(value: Any) -> None:
    if type(value) is range:
        try:
            size = len(value)
        except OverflowError:
            size = ITEMS + 1
        if size > ITEMS:
            raise TooMuch("a range of that length")


def _sparse(value: Any) -> None:
    """Keys made to collide would take n² steps to put into a set: refuse them. Equal keys share
    a hash by right, so different ones are counted, by what they look like."""
    if not isinstance(value, list | tuple) or len(value) <= wire.COLLISIONS:
        return
    if wire.collide({repr(item): hash(item) for item in value}.values()):
        raise Hostile("the keys were made to collide")


def _small(value: Any) -> None:
    if type(value) is int and value.bit_length() > BITS:
        raise TooMuch("a number of that size")


def _binary(node: ast.BinOp, values: list[Any]) -> Any:
    left, right = evaluate(node.left, values), evaluate(node.right, values)
    _small(left)
    _small(right)
    if isinstance(node.op, ast.Mult):
        for one, other in ((left, right), (right, left)):
            repeats = isinstance(one, REPEATED) and type(other) is int
            if repeats and len(one) * other > ITEMS:
                raise TooMuch("a sequence of that length")
    whole = type(left) is int and type(right) is int
    if isinstance(node.op, ast.Pow) and whole and left.bit_length() * right > BITS:
        raise TooMuch("a power of that size")
    if isinstance(node.op, ast.Pow) and {type(left), type(right)} - NUMBERS:
        raise TooMuch("a power of a fraction")  # or by one: 2 ** Fraction(10 ** 9, 1)
    if isinstance(node.op, ast.Mod) and isinstance(left, str | bytes | bytearray):
        raise TooMuch("formatting")
    return BINARY[type(node.op)](left, right)


def _compare(node: ast.Compare, values: list[Any]) -> Any:
    left = evaluate(node.left, values)
    result: Any = True
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = evaluate(comparator, values)
        result = COMPARE[type(op)](left, right)
        if not result:
            return result
        left = right
    return result


def _bool(node: ast.BoolOp, values: list[Any]) -> Any:
    stop_at = isinstance(node.op, ast.Or)
    result: Any = None
    for part in node.values:
        result = evaluate(part, values)
        if bool(result) is stop_at:
            return result
    return result


def _name(node: ast.Name, values: list[Any]) -> Any:
    return TYPES[node.id] if node.id in TYPES else FUNCTIONS[node.id]


def _attribute(node: ast.Attribute, values: list[Any]) -> Any:
    assert isinstance(node.value, ast.Name)
    return MODULES[node.value.id][node.attr]


def _slice(node: ast.Slice, values: list[Any]) -> slice:
    parts = (node.lower, node.upper, node.step)
    return slice(*[None if part is None else evaluate(part, values) for part in parts])


def _dict(node: ast.Dict, values: list[Any]) -> dict[Any, Any]:
    pairs = zip(node.keys, node.values, strict=True)
    return {evaluate(k, values): evaluate(v, values) for k, v in pairs if k is not None}


_RULES: dict[type, Callable[[Any, list[Any]], Any]] = {
    Value: lambda n, v: v[n.number],
    ast.Constant: lambda n, v: n.value,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.BinOp: _binary,
    ast.UnaryOp: lambda n, v: UNARY[type(n.op)](evaluate(n.operand, v)),
    ast.BoolOp: _bool,
    ast.Compare: _compare,
    ast.IfExp: lambda n, v: evaluate(n.body if evaluate(n.test, v) else n.orelse, v),
    ast.Subscript: lambda n, v: evaluate(n.value, v)[evaluate(n.slice, v)],
    ast.Slice: _slice,
    ast.List: lambda n, v: [evaluate(e, v) for e in n.elts],
    ast.Tuple: lambda n, v: tuple([evaluate(e, v) for e in n.elts]),
    ast.Set: lambda n, v: {evaluate(e, v) for e in n.elts},
    ast.Dict: _dict,
}

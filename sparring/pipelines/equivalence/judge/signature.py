"""The type of a Python function as its annotations say it, and which literals are of a type."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from sparring.core.source import UNPARSABLE, unwarned
from sparring.pipelines.equivalence.judge.mutate_inside import CONTAINERS

SCALARS = ("int", "float", "bool", "str", "bytes", "complex", "None")
MOST_LITERAL = 20_000  # characters of an input
_SAME = {
    "List": "list",
    "Dict": "dict",
    "Set": "set",
    "FrozenSet": "frozenset",
    "Tuple": "tuple",
    "Sequence": "list",
    "Iterable": "list",
    "Mapping": "dict",
}
_ARITY = {"list": 1, "set": 1, "frozenset": 1, "dict": 2}
_FLOATS = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
_IMAGINARY = {"nanj": complex(0, math.nan), "infj": complex(0, math.inf)}


class BadSignature(ValueError):
    """A function whose type is unknown, or is none that inputs can be made for."""


class BadInput(ValueError):
    """An input that is no literal, or none of the function's types."""


@dataclass(frozen=True, slots=True)
class Type:
    """`list[int]` is Type("list", (Type("int"),)); `tuple[int, ...]` is called "tuple..."."""

    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.name == "union":
            return " | ".join(map(str, self.args))
        if self.name == "tuple...":
            return f"tuple[{self.args[0]}, ...]"
        inner = ", ".join(map(str, self.args)) or "()"
        return f"{self.name}[{inner}]" if self.args or self.name == "tuple" else self.name


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes, by place, and what it says it gives."""

    types: tuple[Type, ...]
    returns: Type
    defaults: tuple[str, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.types))}) -> {self.returns}"


def signature_of(tree: ast.Module, function: str) -> Signature:
    """The signature of a module's function; refuses what is not wholly typed."""
    definitions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
    if len(definitions) != 1:
        raise BadSignature(
            f"it defines {function} {len(definitions)} times; once was expected"
            if definitions
            else f"it defines no function {function!r}"
        )
    arguments = definitions[0].args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise BadSignature(f"{function} takes more than arguments by place")
    if _yields(definitions[0]):
        raise BadSignature(f"{function} is a generator; its values are no data")
    taken = [*arguments.posonlyargs, *arguments.args]
    untyped = [a.arg for a in taken if a.annotation is None]
    if untyped or definitions[0].returns is None:
        what = f"parameter {untyped[0]!r}" if untyped else "its result"
        raise BadSignature(f"{function} has no type: {what} is not annotated")
    return Signature(
        tuple(read_type(a.annotation) for a in taken if a.annotation is not None),
        read_type(definitions[0].returns, result=True),
        tuple(ast.dump(d) for d in arguments.defaults),
    )


def _yields(function: ast.FunctionDef) -> bool:
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.Lambda):
            nodes += ast.iter_child_nodes(node)
    return False


def read_type(node: ast.expr, *, result: bool = False) -> Type:
    """A type from its annotation. A result may be of any type; it is only compared."""
    match node:
        case ast.Constant(value=None):
            return Type("None")
        case ast.Name(id=name) if name in SCALARS:
            return Type(name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([read_type(left, result=result), read_type(right, result=result)])
        case ast.Subscript(value=value, slice=inner):
            return _applied(_bare(value), inner, result)
        case ast.Name() | ast.Attribute() if result:
            return Type(_SAME.get(_bare(node), _bare(node)))
    raise BadSignature(f"{ast.unparse(node)} is no type that inputs can be made for")


def _bare(node: ast.expr) -> str:
    """The last name of `typing.List` or `List`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def _applied(name: str, inner: ast.expr, result: bool) -> Type:
    parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    name = _SAME.get(name, name)
    if name == "tuple":
        if len(parts) == 2 and isinstance(parts[1], ast.Constant) and parts[1].value is ...:
            return Type("tuple...", (read_type(parts[0], result=result),))
        return Type("tuple", tuple(read_type(part, result=result) for part in parts))
    args = [read_type(part, result=result) for part in parts]
    if name == "Optional" and len(args) == 1:
        return _union([*args, Type("None")])
    if name == "Union":
        return _union(args)
    if _ARITY.get(name) != len(args) and not result:
        raise BadSignature(f"{name}[{ast.unparse(inner)}] is no type that inputs can be made for")
    keys = args[:1] if name in ("set", "frozenset", "dict") else []
    if not all(map(_hashable, keys)):
        raise BadSignature(f"{name}[{ast.unparse(inner)}] would hold what cannot be hashed")
    return Type(name, tuple(args))


def _union(parts: list[Type]) -> Type:
    flat = [p for part in parts for p in (part.args if part.name == "union" else (part,))]
    members = tuple(sorted(set(flat), key=str))
    return members[0] if len(members) == 1 else Type("union", members)


def _hashable(kind: Type) -> bool:
    return kind.name not in ("list", "set", "dict") and all(map(_hashable, kind.args))


def fits(value: Any, kind: Type) -> bool:
    """Whether a value is of a type and of no other: True is no int, 1 is no float."""
    if kind.name == "union":
        return any(fits(value, part) for part in kind.args)
    if kind.name == "None":
        return value is None
    if kind.name in ("tuple", "tuple..."):
        if type(value) is not tuple:
            return False
        if kind.name == "tuple...":
            return all(fits(item, kind.args[0]) for item in value)
        return len(value) == len(kind.args) and all(map(fits, value, kind.args))
    if type(value).__name__ != kind.name:
        return False
    if kind.name == "dict":
        keys, items = kind.args
        return all(fits(k, keys) and fits(v, items) for k, v in value.items())
    return all(fits(item, kind.args[0]) for item in value) if kind.args else True


def read_input(given: Any, signature: Signature) -> list[Any]:
    """The arguments that an input says: a list from JSON, or the text of a literal list."""
    values = _literal(given) if isinstance(given, str) else given
    if type(values) is tuple:
        values = list(values)
    try:
        repr(values)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the input cannot be written down: {error}") from None
    if type(values) is not list:
        raise BadInput(f"the input is no list of arguments but {type(values).__name__}")
    if not isinstance(given, str) and len(values) == len(signature.types):
        values = [_from_json(v, kind) for v, kind in zip(values, signature.types, strict=True)]
    if len(values) != len(signature.types):
        raise BadInput(f"{len(values)} arguments were given; {signature} was expected")
    for number, (value, kind) in enumerate(zip(values, signature.types, strict=True), 1):
        if not fits(value, kind):
            raise BadInput(f"argument {number}, {value!r:.200}, is no literal of type {kind}")
    return values


def _from_json(value: Any, kind: Type) -> Any:
    """JSON has no tuples and sets, and no keys but text: a list says them where they are due."""
    if kind.name == "union":
        options = [_from_json(value, part) for part in kind.args]
        return next((o for o, part in zip(options, kind.args, strict=True) if fits(o, part)), value)
    try:
        if type(value) is list and kind.name in CONTAINERS:
            return CONTAINERS[kind.name]([_from_json(item, kind.args[0]) for item in value])
        if type(value) is list and kind.name == "tuple" and len(value) == len(kind.args):
            return tuple(_from_json(v, k) for v, k in zip(value, kind.args, strict=True))
        if type(value) is dict and kind.name == "dict":
            of_keys, of_items = kind.args
            return {_key(k, of_keys): _from_json(v, of_items) for k, v in value.items()}
    except TypeError:
        return value
    return value


def _key(text: str, kind: Type) -> Any:
    if kind.name == "str":
        return text
    try:
        return _literal(text)
    except BadInput:
        return text


def _literal(text: str) -> Any:
    if len(text) > MOST_LITERAL:
        raise BadInput(f"the input has {len(text)} characters; the most is {MOST_LITERAL}")
    try:
        with unwarned():
            tree = ast.parse(text.strip(), mode="eval")
        return _value(tree.body)
    except BadInput:
        raise
    except (*UNPARSABLE, TypeError) as error:
        raise BadInput(f"the input is no literal: {error!s:.200}") from None


def _value(node: ast.expr) -> Any:
    """A literal's value; beyond literals: `set()`, `frozenset(…)`, `float("nan")`, nan and inf,
    which have no literal of their own."""
    match node:
        case ast.Constant(value=value) if value is not ...:
            return value
        case ast.Name(id=name) if name in _FLOATS:
            return _FLOATS[name]
        case ast.Name(id=name) if name in _IMAGINARY:
            return _IMAGINARY[name]
        case ast.List(elts=elements):
            return [_value(e) for e in elements]
        case ast.Tuple(elts=elements):
            return tuple(_value(e) for e in elements)
        case ast.Set(elts=elements):
            return {_value(e) for e in elements}
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_value(k): _value(v) for k, v in pairs if k is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(_value(operand))
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _number(_value(operand))
        case ast.BinOp(left=left, op=op, right=ast.Constant() | ast.Name() as right):
            real, imaginary = _number(_value(left)), _value(right)
            if type(imaginary) is complex and isinstance(op, ast.Add | ast.Sub):
                return real + imaginary if isinstance(op, ast.Add) else real - imaginary
        case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
            return set()
        case ast.Call(func=ast.Name(id="frozenset"), args=args, keywords=[]) if len(args) < 2:
            return frozenset(_value(args[0])) if args else frozenset()
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str(text))]):
            if text.lower().lstrip("+-") in _FLOATS:
                return float(text)
    raise BadInput(f"{ast.unparse(node):.100} is no literal")


def _number(value: Any) -> Any:
    if type(value) not in (int, float, complex):
        raise BadInput(f"a sign before {value!r:.50}")
    return value

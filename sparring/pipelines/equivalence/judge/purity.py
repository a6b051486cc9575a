"""What a function may contain whose equivalence is judged: a whitelist of syntax, names and
modules, so that nothing but its arguments can decide what it does."""

from __future__ import annotations

import ast
import bisect
import cmath
import collections
import copy
import decimal
import fractions
import functools
import heapq
import itertools
import math
import operator
import re
import statistics
import string
import typing
from collections.abc import Collection, Iterator
from types import ModuleType

from sparring.core.source import UNPARSABLE, unwarned
from sparring.judge.python.names import BUILTINS

MOST_SOURCE = 20_000  # characters
MOST_DEPTH = 100  # of nested syntax, which is walked here by functions that call themselves
MOST_BITS = 10_000  # of an integer; Python writes none of more than 4300 digits


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BUILTINS = _words(
    """abs all any ascii bin bool bytearray bytes callable chr complex dict divmod enumerate filter
    float format frozenset hex int isinstance issubclass iter len list map max min next oct ord pow
    range repr reversed round set slice sorted str sum tuple type zip NotImplemented Ellipsis
    ArithmeticError AssertionError AttributeError Exception FloatingPointError IndexError KeyError
    LookupError NotImplementedError OverflowError RuntimeError StopIteration TypeError ValueError
    UnicodeDecodeError UnicodeEncodeError UnicodeError ZeroDivisionError"""
)
# What a module may give. Left out: what acts (print, cache), what leads elsewhere (attrgetter
# reads any attribute, namedtuple compiles code) and what keeps state (contexts of decimals).
_CHOSEN: dict[ModuleType, str] = {
    functools: "reduce partial cmp_to_key",
    collections: "Counter OrderedDict defaultdict deque ChainMap",
    decimal: "Decimal InvalidOperation DivisionByZero ROUND_HALF_UP ROUND_HALF_EVEN ROUND_DOWN "
    "ROUND_UP ROUND_FLOOR ROUND_CEILING",
    fractions: "Fraction",
    copy: "copy deepcopy",
    re: "compile search match fullmatch findall finditer split sub subn escape I IGNORECASE M "
    "MULTILINE S DOTALL A ASCII X VERBOSE",
    statistics: "mean fmean median median_low median_high mode multimode stdev pstdev variance "
    "pvariance StatisticsError",
    string: "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits octdigits punctuation "
    "whitespace printable capwords",
    typing: "Any Dict FrozenSet Iterable Iterator List Mapping Optional Sequence Set Tuple Union",
}
_WHOLE = (math, cmath, itertools, heapq, bisect, operator)
_HIDDEN = frozenset({"attrgetter", "methodcaller", "format", "format_map", "is_", "is_not"})
_TYPES: tuple[type, ...] = (
    bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range,
    slice, collections.Counter, collections.OrderedDict, collections.defaultdict,
    collections.deque, collections.ChainMap, decimal.Decimal, fractions.Fraction, re.Pattern,
    re.Match, itertools.chain,
)  # fmt: skip


def _public(names: Collection[str]) -> frozenset[str]:
    return frozenset(name for name in names if not name.startswith("_")) - _HIDDEN


MODULES: dict[str, frozenset[str]] = {
    **{module.__name__: _words(names) for module, names in _CHOSEN.items()},
    **{module.__name__: _public(dir(module)) for module in _WHOLE},
    "__future__": frozenset({"annotations"}),
}
ATTRIBUTES = frozenset().union(*MODULES.values(), *(_public(dir(kind)) for kind in _TYPES))
ATTRIBUTES |= {"args"}  # of an exception

_SYNTAX = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Delete, ast.Assign,
    ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Raise, ast.Try,
    ast.ExceptHandler, ast.Assert, ast.Import, ast.ImportFrom, ast.alias, ast.Nonlocal, ast.Expr,
    ast.Pass, ast.Break, ast.Continue, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp,
    ast.Lambda, ast.IfExp, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp,
    ast.GeneratorExp, ast.comprehension, ast.Yield, ast.YieldFrom, ast.Compare, ast.Call,
    ast.keyword, ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript,
    ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.Match, ast.match_case,
    ast.pattern, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip
_NAMED = {
    ast.Global: "a global variable",
    ast.ClassDef: "a class",
    ast.With: "with",
    ast.AsyncFunctionDef: "async",
    ast.Await: "await",
}
_READERS = _words(
    "len sum min max any all sorted list tuple set frozenset dict enumerate zip reversed map "
    "filter range str isinstance"
)
_READING = _words("get items keys values index count copy union intersection difference")
# Text made of these holds an address.
_OPAQUE = _words("iter map filter zip enumerate reversed")


def parse(source: str) -> ast.Module | str:
    """The tree of a source, or why there is none."""
    if not isinstance(source, str) or not source.strip():
        return "there is no program"
    if len(source) > MOST_SOURCE:
        return f"it has {len(source)} characters; the most is {MOST_SOURCE}"
    try:
        with unwarned():
            tree = ast.parse(source)
    except UNPARSABLE as error:
        line = getattr(error, "lineno", None)
        return f"{getattr(error, 'msg', None) or error}" + (f" (line {line})" if line else "")
    return _unwieldy(tree) or tree


def _unwieldy(tree: ast.Module) -> str:
    """What could not be written down again, level by level."""
    level: list[ast.AST] = [tree]
    for _ in range(MOST_DEPTH):
        for node in level:
            value = node.value if isinstance(node, ast.Constant) else None
            if type(value) is int and value.bit_length() > MOST_BITS:
                return f"it has an integer of {value.bit_length()} bits; the most is {MOST_BITS}"
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return ""
    return f"it is nested more than {MOST_DEPTH} deep"


def impure(tree: ast.Module) -> str:
    """The first thing in a module that it may not contain, or nothing."""
    known = _defined(tree)
    for node in ast.walk(tree):
        reason = _reason(node, known)
        if reason:
            return reason
    return _types(tree) or next(_top_level(tree), "")


def _types(tree: ast.Module) -> str:
    """`type(x)` may be compared; called in its turn, it would make classes."""
    compared: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Call) and len(side.args) == 1 and not side.keywords:
                    compared.add(id(side.func))
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "type")
    return "" if all(id(n) in compared for n in names) else "type() outside of a comparison"


def _defined(tree: ast.Module) -> frozenset[str]:
    """Every name that the module binds itself, wherever."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.FunctionDef(name=name):
                names.add(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                names.add(name)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.alias():
                names.add(node.asname or node.name)
    return frozenset(names)


def _reason(node: ast.AST, known: frozenset[str]) -> str:
    if not isinstance(node, _SYNTAX):
        return _NAMED.get(type(node), type(node).__name__)
    match node:
        case ast.Name(id=name):
            return _name(name, known)
        case ast.FunctionDef():
            return _function(node)
        case ast.arg(annotation=ast.Constant(value=str())):
            return "a type in quotes"
        case ast.Lambda():
            return _default(node.args)
        case ast.Import():
            names = [alias.name for alias in node.names]
            return next((f"import {name}" for name in names if name not in MODULES), "")
        case ast.ImportFrom():
            given = MODULES.get(node.module or "", frozenset()) if node.level == 0 else frozenset()
            names = [alias.name for alias in node.names if alias.name not in given]
            return f"from {node.module} import {names[0]}" if names else ""
        case ast.ExceptHandler(type=None):
            return "except without a class"
        case ast.Attribute():
            return _attribute(node)
        case ast.Compare():
            return _identity(node)
        case ast.Call():
            return _call(node)
        case ast.FormattedValue():
            return _converted(node.value)
        case ast.MatchClass():
            return "a class pattern" if node.kwd_attrs else ""
    return ""


def _name(name: str, known: frozenset[str]) -> str:
    if name.startswith("__"):
        return name
    # A name that is bound in one place may be the builtin in another.
    if name in BUILTINS:
        return "" if name in _BUILTINS else name
    return "" if name in known else name


def _function(node: ast.FunctionDef) -> str:
    if node.decorator_list:
        return "a decorator"
    if isinstance(node.returns, ast.Constant) and isinstance(node.returns.value, str):
        return "a type in quotes"  # resolving the type would run it
    return _default(node.args)


def _default(arguments: ast.arguments) -> str:
    """A default is made once and lives on: only what cannot change may be one."""
    defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
    return "" if all(map(_fixed, defaults)) else "a default that is not a plain constant"


def _attribute(node: ast.Attribute) -> str:
    if not isinstance(node.ctx, ast.Load):
        return f"setting .{node.attr}"
    if node.attr == "format" and isinstance(node.value, ast.Constant):
        return _fields(node.value.value)
    return "" if node.attr in ATTRIBUTES else f".{node.attr}"


def _identity(node: ast.Compare) -> str:
    """Which equal values are one object hangs on the interpreter; None, True and False are."""
    sides = [node.left, *node.comparators]
    for op, a, b in zip(node.ops, sides, sides[1:], strict=False):
        if isinstance(op, ast.Is | ast.IsNot) and not (_single(a) or _single(b)):
            return "`is` between values"
    return ""


def _single(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (node.value is None or type(node.value) is bool)


def unordered(tree: ast.Module) -> bool:
    """Whether there may be sets, whose order hangs on the hash seed."""
    for node in ast.walk(tree):
        match node:
            case ast.Set() | ast.SetComp() | ast.Name(id="set" | "frozenset" | "Set" | "FrozenSet"):
                return True
            case ast.Attribute(attr="keys" | "items"):
                return True
    return False


def _fields(text: object) -> str:
    """`'{0.__class__}'.format(x)` reads any attribute of x, unseen by the syntax."""
    try:
        parts = [part for part in string.Formatter().parse(str(text)) if part[1] is not None]
    except ValueError:
        return ""  # the call raises, and that is an outcome
    reaching = any("." in (n or "") or "[" in (n or "") or "{" in (s or "") for _, n, s, _ in parts)
    return "a format that reads attributes" if reaching else ""


def _call(node: ast.Call) -> str:
    if not isinstance(node.func, ast.Name):
        return ""
    if node.func.id in ("str", "repr", "ascii", "format"):
        return next(filter(None, (_converted(arg) for arg in node.args)), "")
    return ""


def _converted(node: ast.expr) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in _OPAQUE:
            return f"the text of {name}(), which shows an address"
        case ast.Lambda() | ast.GeneratorExp():
            return "text that shows an address"
    return ""


def _fixed(node: ast.expr) -> bool:
    """A constant that cannot be changed in place."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return _fixed(operand)
        case ast.BinOp(left=left, right=right):
            return _fixed(left) and _fixed(right)
        case ast.Tuple(elts=elements):
            return all(map(_fixed, elements))
    return False


def _flat(node: ast.expr | None) -> bool:
    """A table of constants: it could be changed, but nothing in it."""
    match node:
        case ast.List(elts=elements) | ast.Set(elts=elements):
            return all(map(_fixed, elements))
        case ast.Dict(keys=keys, values=values):
            return all(k is not None and _fixed(k) for k in keys) and all(map(_fixed, values))
    return False


def _top_level(tree: ast.Module) -> Iterator[str]:
    """Outside functions: imports, functions, constants, and tables that are only read."""
    tables: set[str] = set()
    for node in tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.Pass():
                continue
            case ast.Expr(value=ast.Constant()):
                continue
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                if value is not None and not _fixed(value) and not _flat(value):
                    yield f"{name}, which is no plain constant outside of a function"
                if _flat(value):
                    tables.add(name)
            case _:
                yield f"{type(node).__name__.lower()} outside of a function"
    if tables:
        yield from _changed(tree, tables)


def _changed(tree: ast.Module, tables: set[str]) -> Iterator[str]:
    reads: set[int] = set()
    readers = _READERS - _defined(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name() as name, ctx=ast.Load()):
                reads.add(id(name))
            case ast.Compare(ops=ops, comparators=others):
                inside = (ast.In, ast.NotIn)
                pairs = zip(ops, others, strict=True)
                reads |= {id(o) for op, o in pairs if isinstance(op, inside)}
            case ast.For(iter=ast.Name() as name) | ast.comprehension(iter=ast.Name() as name):
                reads.add(id(name))
            case ast.Attribute(value=ast.Name() as name, attr=attr) if attr in _READING:
                reads.add(id(name))
            case ast.Call(func=ast.Name(id=function), args=args) if function in readers:
                reads |= {id(arg) for arg in args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in tables and id(node) not in reads:
            loaded = isinstance(node.ctx, ast.Load)
            yield from [f"{node.id}, a table that is not only read"] if loaded else []

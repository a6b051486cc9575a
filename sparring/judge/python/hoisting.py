"""Replaces the calls in asserts by the values they will have: the program makes the calls, the
judge evaluates the rest."""

from __future__ import annotations

import ast
import copy
import sys
from dataclasses import dataclass
from types import EllipsisType

from sparring.judge.python.expressions import FUNCTIONS, METHODS, MODULES, TYPES, Value, fold
from sparring.judge.python.names import BUILTINS
from sparring.judge.sandbox.inside.remote import CLASS_NAME, PREDICATES

WRAPPERS = {"list", "tuple", "set", "frozenset", "sorted", "dict", "next"}
ANY_METHOD = frozenset(name for names in METHODS.values() for name in names)
IMPORTABLE = frozenset(sys.stdlib_module_names) | {"numpy"}


class NotSimple(Exception):
    """These tests cannot be taken apart."""


@dataclass(frozen=True, slots=True)
class Check:
    """One assert with the program's values taken out."""

    test: ast.expr
    whole: ast.expr | str  # as it was written
    numbers: tuple[int, ...]  # of the program's values that it needs

    @property
    def source(self) -> str:
        return self.whole if isinstance(self.whole, str) else ast.unparse(self.whole)


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)


class Hoisting:
    """Walks the statements in order, hoisting calls; raises NotSimple at the first obstacle."""

    def __init__(
        self, trees: list[tuple[str, ast.Module]], entry: tuple[str, ...], shadow: list[str]
    ) -> None:
        self.trees, self.entry = trees, entry
        self.imports: list[tuple[str, str | None, str | None]] = []
        self.calls: list[tuple[str, str]] = []
        self.checks: list[Check] = []
        self.known = (BUILTINS - set(shadow)) | {"check"}
        self.modules: dict[str, str] = {}  # name in the tests -> module it is
        self.library: dict[str, tuple[str, str]] = {}  # name in the tests -> whose it is

    def hoist(self, check: ast.FunctionDef | None) -> None:
        bodies = [node for _, tree in self.trees for node in tree.body]
        late: list[ast.stmt] = []
        for node in bodies:
            if node is check:
                if self.entry:
                    late = self._inlined(check, self.entry)
            elif check is not None and _is_check_call(node):
                late = self._inlined(check, (_check_argument(node),))
            else:
                self._statement(node)
        for node in late:
            self._statement(node)
        if not self.checks or not self.calls:
            raise NotSimple

    def _inlined(self, check: ast.FunctionDef, entry: tuple[str, ...]) -> list[ast.stmt]:
        if len(check.args.args) != len(entry):
            raise NotSimple
        rename = _Rename({a.arg: name for a, name in zip(check.args.args, entry, strict=True)})
        return [rename.visit(copy.deepcopy(node)) for node in check.body]

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assert):
            before = len(self.calls)
            test = self._hoist(node.test, True)
            numbers = tuple(range(before, len(self.calls)))
            self.checks.append(Check(test, node.test, numbers))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self._import(alias.name, None, alias.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                self._import(node.module, alias.name, alias.asname)
        elif isinstance(node, ast.Pass) or _is_inert(node):
            return
        else:
            raise NotSimple

    def _import(self, module: str, name: str | None, alias: str | None) -> None:
        if module.partition(".")[0] not in IMPORTABLE or name == "*":
            raise NotSimple
        self.imports.append((module, name, alias))
        if name is None:
            self.modules[alias or module.partition(".")[0]] = module
        elif (alias or name) in FUNCTIONS or (alias or name) in TYPES:
            raise NotSimple  # it means a library's function, and the judge's evaluator the builtin
        else:
            self.library[alias or name] = (module, name)

    def _hoist(self, node: ast.expr, always: bool) -> ast.expr:
        """The expression with every part that the program must answer replaced by its number.

        `always` says whether Python would evaluate this part in any case: a call behind an `and`
        may never be made, so it is not made in advance either."""
        wrapped = self._wrapped(node)
        if wrapped is not None or self._of_program(node):
            if not always:
                raise NotSimple
            call, wrap = wrapped or (node, "")
            self._pure(call)
            self.calls.append((ast.unparse(call), wrap))
            return Value(len(self.calls) - 1)
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.Name):
            if node.id in FUNCTIONS or node.id in TYPES:
                return node
            raise NotSimple
        return fold(self._inner(node, always))

    def _inner(self, node: ast.expr, always: bool) -> ast.expr:
        def go(part: ast.expr, sure: bool = True) -> ast.expr:
            return self._hoist(part, always and sure)

        match node:
            case ast.Compare(left, ops, comparators):
                if _of_identity(node):
                    raise NotSimple
                first, *rest = comparators
                parts = [go(left), go(first), *[go(part, False) for part in rest]]
                return ast.Compare(parts[0], ops, parts[1:])
            case ast.BoolOp(op, values):
                return ast.BoolOp(op, [go(v, n == 0) for n, v in enumerate(values)])
            case ast.IfExp(test, body, orelse):
                return ast.IfExp(go(test), go(body, False), go(orelse, False))
            case ast.UnaryOp(op, operand):
                return ast.UnaryOp(op, go(operand))
            case ast.BinOp(left, op, right) if not isinstance(
                op, ast.MatMult | ast.LShift | ast.RShift
            ):
                return ast.BinOp(go(left), op, go(right))
            case ast.List(elts) | ast.Tuple(elts) | ast.Set(elts):
                return type(node)([go(e) for e in elts])
            case ast.Dict(keys, values) if None not in keys:
                pairs = [(go(k), go(v)) for k, v in zip(keys, values, strict=True) if k is not None]
                return ast.Dict([k for k, _ in pairs], [v for _, v in pairs])
            case ast.Subscript(value, where):
                return ast.Subscript(go(value), go(where), node.ctx)
            case ast.Slice(lower, upper, step):
                return ast.Slice(*[None if p is None else go(p) for p in (lower, upper, step)])
            case ast.Call(func, args, keywords) if all(k.arg for k in keywords):
                return ast.Call(
                    self._function(func, go),
                    [go(a) for a in args],
                    [ast.keyword(k.arg, go(k.value)) for k in keywords],
                )
            case ast.Attribute(ast.Name(module), name) if self._has(module, name):
                return node
        raise NotSimple

    def _function(self, func: ast.expr, go: object) -> ast.expr:
        match func:
            case ast.Name(name) if name in FUNCTIONS and name in self.known:
                return func
            case ast.Attribute(ast.Name(module), name) if self._has(module, name):
                return func
            case ast.Name(name) if name in self.library and self._has(*self.library[name]):
                module, name = self.library[name]
                return ast.Attribute(ast.Name(module, func.ctx), name, func.ctx)
            case ast.Attribute(value, name) if name in ANY_METHOD:
                return ast.Attribute(go(value), name, func.ctx)  # type: ignore[operator]
        raise NotSimple

    def _has(self, module: str, name: str) -> bool:
        """A function of a module that the judge has itself, whatever the program calls so."""
        return (
            module in MODULES
            and name in MODULES[module]
            and (self.modules.get(module, module) == module)
        )

    def _wrapped(self, node: ast.expr) -> tuple[ast.expr, str] | None:
        """`list(f(3))` of a generator: the program's side lists it, so that plain data travels."""
        match node:
            case ast.Call(ast.Name(name), [inner], []) if name in WRAPPERS & self.known:
                return (inner, name) if self._of_program(inner) else None
            case ast.Call(ast.Attribute(ast.Name("asyncio"), "run"), [inner], []):
                return (inner, "asyncio.run") if self._of_program(inner) else None
        return None

    def _of_program(self, node: ast.expr) -> bool:
        """Whether the program must answer this: one of its names, a call of it, or, for a name
        that reads like a class, what hangs on its instances."""
        match node:
            case ast.Name(name):
                ours = (self.known, self.modules, self.library, MODULES)
                return not any(name in names for names in ours)
            case ast.Call(func):
                return self._of_program(func)
            case ast.Attribute(ast.Call(ast.Name(name)) as call, attribute):
                believed = bool(CLASS_NAME.fullmatch(name)) and attribute not in PREDICATES
                return believed and self._of_program(call)
            case ast.Attribute(ast.Call(), _):
                return False
            case ast.Attribute(value, _):
                return self._of_program(value)
        return False

    def _pure(self, call: ast.expr) -> None:
        """Nothing in a call may depend on the tests' own names: those stay with the judge."""
        for node in ast.walk(call):
            if isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
                raise NotSimple


def _is_check_call(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(ast.Call(ast.Name("check"), [ast.Name()], [])):
            return True
    return False


def _check_argument(node: ast.stmt) -> str:
    match node:
        case ast.Expr(ast.Call(_, [ast.Name(name)], _)):
            return name
    raise NotSimple


def _of_identity(node: ast.Compare) -> bool:
    """Whether it asks for more than None, a bool or a type: a value that travels is a copy."""
    sides = [node.left, *node.comparators]
    return any(
        isinstance(op, ast.Is | ast.IsNot) and not any(map(_is_unique, pair))
        for op, *pair in zip(node.ops, sides, sides[1:], strict=False)
    )


def _is_unique(node: ast.expr) -> bool:
    match node:
        case ast.Constant(None | bool() | EllipsisType()):
            return True
        case ast.Name(name):
            return name in FUNCTIONS or name in TYPES
    return False


def _is_inert(node: ast.stmt) -> bool:
    """A docstring, or the METADATA that HumanEval's tests open with."""
    match node:
        case ast.Expr(ast.Constant()):
            return True
        case ast.Assign([ast.Name("METADATA")], ast.Dict()):
            return True
    return False

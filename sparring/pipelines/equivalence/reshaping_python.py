"""Rules that rewrite a Python function as a whole: its names, its loops, its shape."""

from __future__ import annotations

import ast
from collections.abc import Callable


def _stored(function: ast.FunctionDef) -> list[str]:
    names = {
        node.id: None
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return list(names)


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [a.arg for a in function.args.args]


def _fresh(function: ast.FunctionDef, name: str) -> str:
    taken = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)} | {*_parameters(function)}
    while name in taken:
        name += "_"
    return name


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def rename_locals(function: ast.FunctionDef) -> bool:
    names = [
        name for name in _stored(function) if name not in _parameters(function) and name != "_"
    ]
    new = {name: f"v{i}" for i, name in enumerate(names)}
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
    return bool(names)


def inner_function(function: ast.FunctionDef) -> bool:
    """The body moves into a function of its own."""
    inner = _fresh(function, "inner")
    arguments = ", ".join(_parameters(function))
    [made] = _statements(f"def {inner}({arguments}):\n    pass")
    assert isinstance(made, ast.FunctionDef)
    made.body = function.body
    function.body = [made, *_statements(f"return {inner}({arguments})")]
    return True


def name_results(function: ast.FunctionDef) -> bool:
    """`return e` becomes an assignment and a return."""
    name = _fresh(function, "answer")

    class Named(ast.NodeTransformer):
        def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
            value = node.value or ast.Constant(None)
            return [
                ast.Assign([ast.Name(name, ast.Store())], value),
                ast.Return(ast.Name(name, ast.Load())),
            ]

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
            return node

    function.body = [
        part
        for old in function.body
        for made in [Named().visit(old)]
        for part in (made if isinstance(made, list) else [made])
    ]
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(function))


def idle_code(function: ast.FunctionDef) -> bool:
    """Something that is worked out and never used."""
    function.body = [*_statements(f"{_fresh(function, 'unused')} = 0"), *function.body]
    return True


def while_for_range(function: ast.FunctionDef) -> bool:
    """The first `for` over a range that allows it becomes a `while`."""
    for node in ast.walk(function):
        for key in ("body", "orelse"):
            body = getattr(node, key, None)
            if not isinstance(body, list):
                continue
            for index, part in enumerate(body):
                if isinstance(part, ast.For) and _countable(part, function):
                    body[index : index + 1] = _counted(part, function)
                    return True
    return False


def _countable(loop: ast.For, function: ast.FunctionDef) -> bool:
    match loop:
        case ast.For(
            target=ast.Name(id=name),
            iter=ast.Call(func=ast.Name(id="range"), args=args, keywords=[]),
            orelse=[],
        ) if len(args) < 3:
            inside = [n for part in loop.body for n in ast.walk(part)]
            used = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
            mine = [n for n in inside if isinstance(n, ast.Name) and n.id == name]
            stored = any(isinstance(n.ctx, ast.Store) for n in mine)
            jumps = any(isinstance(n, ast.Continue) for n in inside)
            return not stored and not jumps and len(used) == len(mine) + 1
    return False


def _counted(loop: ast.For, function: ast.FunctionDef) -> list[ast.stmt]:
    assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
    name, limit = loop.target.id, _fresh(function, "stop")
    start, stop = [ast.Constant(0), *loop.iter.args][-2:]
    text = f"{name} = start\n{limit} = stop\nwhile {name} < {limit}:\n    {name} += 1"
    first, second, turning = _statements(text)
    assert isinstance(first, ast.Assign) and isinstance(second, ast.Assign)
    assert isinstance(turning, ast.While)
    first.value, second.value = start, stop
    turning.body = [*loop.body, *turning.body]
    return [first, second, turning]


def _gathering_loop(
    function: ast.FunctionDef,
) -> tuple[list[ast.stmt], str, ast.expr, ast.comprehension, ast.stmt] | None:
    """A body that ends in `name = start`, a loop of one statement (under one condition or none) and
    `return name`: what stands before it, the name, the start, the loop and the statement."""
    match function.body:
        case [
            *before,
            ast.Assign(targets=[ast.Name(id=name)], value=start),
            ast.For(target=target, iter=source, body=[inner], orelse=[]),
            ast.Return(value=ast.Name(id=given)),
        ] if name == given:
            conditions: list[ast.expr] = []
            if isinstance(inner, ast.If) and not inner.orelse and len(inner.body) == 1:
                conditions, inner = [inner.test], inner.body[0]
            if not any(_mentions(condition, name) for condition in conditions):
                return before, name, start, ast.comprehension(target, source, conditions, 0), inner
    return None


def as_comprehension(function: ast.FunctionDef) -> bool:
    """A loop that gathers a list becomes a comprehension."""
    match _gathering_loop(function):
        case (
            before,
            name,
            ast.List(elts=[]),
            loop,
            ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id=owner), attr="append"), args=[item]
                )
            ),
        ) if owner == name and not _mentions(item, name):
            function.body = [*before, ast.Return(ast.ListComp(item, [loop]))]
            return True
    return False


def as_sum(function: ast.FunctionDef) -> bool:
    """A loop that adds up becomes a sum."""
    match _gathering_loop(function):
        case (
            before,
            name,
            ast.Constant(value=0),
            loop,
            ast.AugAssign(target=ast.Name(id=owner), op=ast.Add(), value=item),
        ) if owner == name and not _mentions(item, name):
            terms = ast.GeneratorExp(item, [loop])
            total = ast.Call(ast.Name("sum", ast.Load()), [terms], [])
            function.body = [*before, ast.Return(total)]
            return True
    return False


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def change_argument(function: ast.FunctionDef) -> bool:
    """The same result, but a list that was passed is left changed."""
    for a in function.args.args:
        if a.annotation is not None and ast.unparse(a.annotation).startswith("list["):
            copied = f"{a.arg}, given = {a.arg}[:], {a.arg}\ngiven.reverse()"
            function.body = [*_statements(copied), *function.body]
            return True
    return False


def special_case(function: ast.FunctionDef) -> bool:
    """One value of the first number that is passed is treated otherwise."""
    for a in function.args.args:
        if a.annotation is not None and ast.unparse(a.annotation) == "int":
            function.body = [*_statements(f"if {a.arg} == 6:\n    {a.arg} = 9"), *function.body]
            return True
    return False


WHOLE: dict[str, tuple[bool, Callable[[ast.FunctionDef], bool]]] = {
    **{
        f.__name__: (True, f)
        for f in (
            rename_locals, inner_function, name_results, idle_code, while_for_range,
            as_comprehension, as_sum,
        )
    },
    **{f.__name__: (False, f) for f in (change_argument, special_case)},
}  # fmt: skip

"""The search for an input on which two functions differ: asked for here, done inside the jail."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.pipelines.equivalence.judge.inputs import constants_of, periods_of
from sparring.pipelines.equivalence.judge.instrument import instrumented
from sparring.pipelines.equivalence.judge.same import NoOutcomes, run_inside
from sparring.pipelines.equivalence.judge.signature import Signature, Type

_INSIDE = ("form_inside", "mutate_inside", "search_inside", "roots_inside", "domains_inside")
_GUIDED = 4000  # inputs that are led by what they reach
_MOST_SEEDS = 400
_MOST_PERIODS = 4
_MOST_EQUATIONS = 8
_WIDE = {1: 10, 2: 5}  # times the work, where so many integers are tried value by value


@dataclass(frozen=True, slots=True)
class Pair:
    """Two programs that may be compared: pure, typed, and of one type."""

    p: str
    q: str
    function: str
    signature: Signature
    trees: tuple[ast.Module, ast.Module]


@dataclass(frozen=True, slots=True)
class Searched:
    """Inputs, as literals, on which the functions seem to differ, or on which only Q came to
    nothing; how many were compared, and what of them was tried whole."""

    different: tuple[str, ...]
    lost: tuple[str, ...]
    compared: int
    whole: str


async def search(
    judge: Judge, pair: Pair, seeds: Sequence[Sequence[Any]], work: int, steps: int, seed: int
) -> Searched:
    """Look for a difference with `work` steps, at most `steps` of P in one call."""
    integers = sum(kind.name == "int" for kind in pair.signature.types)
    request = {
        "p": pair.p,
        "q": pair.q,
        "p_counting": instrumented(pair.p),
        "q_counting": instrumented(pair.q),
        "function": pair.function,
        "types": [_tree(kind) for kind in pair.signature.types],
        "constants": {name: repr(values) for name, values in constants_of(pair.trees).items()},
        "equations": equations_of(pair.trees, pair.function)[:_MOST_EQUATIONS],
        "periods": periods_of(pair.trees)[:_MOST_PERIODS],
        "corpus": [repr(list(values)) for values in seeds[:_MOST_SEEDS]],
        "inputs": _GUIDED,
        "work": work // 4,
        "wide_work": work * _WIDE.get(integers, 1),
        "steps": steps,
        "patience": 8,
        "seed": seed,
    }
    done = await run_inside(judge, _INSIDE, request)
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        return Searched(
            tuple(map(str, answer["different"])),
            tuple(map(str, answer["lost"])),
            int(answer["compared"]),
            str(answer["whole"]),
        )
    except (ValueError, LookupError, TypeError):
        why = f"the search broke: {done.detail or done.stderr[-300:]}"
        raise NoOutcomes(Verdict("void", "search", why, done.seconds)) from None


def _tree(kind: Type) -> list[Any]:
    return [kind.name, [_tree(part) for part in kind.args]]


_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_CALLS = ("abs", "max", "min", "pow", "int", "divmod", "len", "str", "sum")
_ALLOWED = (
    *(ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call, ast.Load, ast.operator),
    ast.unaryop,
)


def equations_of(trees: Iterable[ast.Module], function: str) -> list[str]:
    """Texts of `left - right`, in the parameters `x` and `y`, shortest first."""
    texts: dict[str, None] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                texts |= dict.fromkeys(_of_function(node))
    return sorted(texts, key=len)


def _of_function(function: ast.FunctionDef) -> Iterable[str]:
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    changed = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and _stored(n)}
    if len(names) != 2 or changed & set(names):
        return
    rename = _Rename(dict(zip(names, "xy", strict=True)))
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = (node.left, node.comparators[0])
            if isinstance(node.ops[0], _COMPARED) and all(_plain(s, names) for s in sides):
                left, right = (ast.unparse(rename.visit(ast.parse(ast.unparse(s)))) for s in sides)
                yield f"({left}) - ({right})"


def _stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _plain(side: ast.expr, names: list[str]) -> bool:
    called = {n.func.id for n in ast.walk(side) if _is_call(n)}  # type: ignore[attr-defined]
    used = {n.id for n in ast.walk(side) if isinstance(n, ast.Name)} - called
    return (
        all(isinstance(n, _ALLOWED) for n in ast.walk(side))
        and used <= set(names)
        and called <= set(_CALLS)
    )


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

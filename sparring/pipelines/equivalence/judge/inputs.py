"""Inputs to attack a claim with: edge cases, constants of the programs themselves, and what
Hypothesis makes of the annotated types. All are made outside the jail."""

from __future__ import annotations

import ast
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import util
from threading import Lock
from typing import Any

from sparring.core.errors import ConfigError
from sparring.core.types import derive
from sparring.pipelines.equivalence.judge.form_inside import read
from sparring.pipelines.equivalence.judge.mutate_inside import CONTAINERS
from sparring.pipelines.equivalence.judge.signature import Signature, Type

INSTALL = "pip install 'sparring[equivalence]'"
_MOST_EDGES = 150
_LONGEST = 1000  # characters of an input; others cost time and show nothing more
_MADE: dict[str, Callable[[list[Any]], Any]]
_MADE = {"str": "".join, "bytes": bytes, "list": list, "tuple...": tuple}
_SIZES = (2, 250)  # constants in these bounds may be meant as a length
_DRAWING = Lock()  # held while Hypothesis draws for us: meanwhile it does so for all threads


class ToolMissing(ConfigError):
    """A tool that a check needs is not installed; the message says how to have it."""


def need_tool(module: str, what: str) -> None:
    if util.find_spec(module) is None:
        raise ToolMissing(f"{what} with {module}, which is not installed: {INSTALL}")


Constants = dict[str, list[Any]]  # type's name -> values

# 2 ** 53 + 1 is no float, the square root of the next one is rounded up by floats, and the last has
# more digits than a Decimal keeps.
_LARGE = [2**53 + 1, (2**26 + 1) ** 2 - 1, 10**18 - 1, 10**30 + 1]
_INTS = [0, 1, -1, 2, -2, 3, 7, 10, -10, 12, 97, 100, 255, 256, 2**31, -(2**31), 2**63, -(2**63)]
_FLOATS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 0.1, 1e-9, 1e16, 2.0**53, -1e300, 1e308),
    *(math.inf, -math.inf, math.nan, 5e-324),
]
_STRINGS = [
    *("", "a", "A", " ", "ab", "ba", "aa", "abc", "Aa", "a b", " a ", "0", "12", "-3", "a,b"),
    *(
        "hello world",
        "racecar",
        "aab",
        "é",
        "ß",
        "İ",
        "\n",
        "a\tb",
        "()",
        "([])",
        "!?.",
        "Zz9",
        "\ud800",
    ),
    *("²", "٣", "½", "aΣ", "ǆ", "\xa0", "a\u2028b"),  # digits, letters, spaces beyond ASCII
]
_EDGES: dict[str, list[Any]] = {
    "int": [*_INTS, *_LARGE],
    "float": _FLOATS,
    "bool": [False, True],
    "str": _STRINGS,
    "bytes": [b"", b"a", b"\x00", b"ab", b"\xff", b"aab"],
    "complex": [0j, 1j, 1 + 1j, complex(-0.0, 0.0), complex(math.nan, 0)],
    "None": [None],
}


def inputs_for(
    signature: Signature, trees: Sequence[ast.Module], count: int, seed: int
) -> list[list[Any]]:
    """Distinct inputs, the plainest first: edges, then `count` drawn ones."""
    constants = constants_of(trees)
    rng = random.Random(derive(seed, str(signature)))
    by_text: dict[str, list[Any]] = {}
    drawn = [*_edges(signature, constants, rng), *_drawn(signature, count, seed)]
    mixed = _mixed(signature, constants, max(30, count // 2), rng)
    drawn += [*mixed, *_of_one_another(signature, mixed, rng)]
    for values in sorted(drawn, key=lambda values: len(repr(values))):
        text = repr(values)
        if len(text) <= _LONGEST:
            by_text.setdefault(text, values)
    return list(by_text.values())


def constants_of(trees: Iterable[ast.Module]) -> Constants:
    """What the programs compare with and count by, and the neighbours of that: a difference that
    only one value shows is usually at a value that one of them names."""
    by_type: dict[str, dict[str, Any]] = {name: {} for name in _EDGES}

    def note(value: Any) -> None:
        if type(value) is int and value.bit_length() > 1000:
            return  # a product of two may have more digits than Python writes
        if type(value).__name__ in by_type and len(repr(value)) < 300:
            by_type[type(value).__name__].setdefault(repr(value), value)

    for tree in trees:
        for node in ast.walk(tree):
            value = _folded(node)
            if type(value) is int:
                root = math.isqrt(value) if value >= 0 else 0
                for near in (value, value + 1, value - 1, -value, 2 * value, root):
                    note(near)
                if _SIZES[0] <= value <= _SIZES[1]:
                    note("ab" * (value // 2 + 1))
                note(float(value)) if abs(value) < 1e300 else None
            elif type(value) is float:
                for number in (value, -value, value * 2):
                    note(number)
                note(int(value)) if math.isfinite(value) else None
            elif type(value) is str:
                for text in (value, value + "a", value[:-1], value[::-1], value * 2):
                    note(text)
                note(value.encode(errors="replace"))
            elif type(value) is bytes:
                note(value)
    return {name: list(values.values()) for name, values in by_type.items()}


def periods_of(trees: Iterable[ast.Module]) -> list[int]:
    """The numbers that the programs take remainders by."""
    divisors = [
        abs(value)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and type(value := _folded(node.right)) is int
    ]
    return [n for n in dict.fromkeys(divisors) if n > 1]


def _folded(node: ast.AST) -> Any:
    """The value of a constant, or of arithmetic on two: 10 ** 6 is named as 10 ** 6."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.BinOp(left=ast.Constant(value=int(a)), op=op, right=ast.Constant(value=int(b))):
            if isinstance(op, ast.Pow) and 0 <= b <= 64 and abs(a) < 2**64:
                return a**b
            if isinstance(op, ast.Mult):
                return a * b
            if isinstance(op, ast.LShift) and 0 <= b <= 256:
                return a << b
            if isinstance(op, ast.Add | ast.Sub):
                return a + b if isinstance(op, ast.Add) else a - b
    return None


def edge_values(kind: Type, constants: Constants, rng: random.Random) -> list[Any]:
    """Known troublemakers of a type, small ones and constants of the programs first."""
    if kind.name == "union":
        return [v for part in kind.args for v in edge_values(part, constants, rng)]
    if kind.name in _EDGES:
        return [*_EDGES[kind.name], *constants.get(kind.name, [])]
    if kind.name == "tuple":
        columns = [edge_values(part, constants, rng) for part in kind.args]
        return [tuple(rng.choice(column) for column in columns) for _ in range(24)]
    if kind.name == "dict":
        keys, items = (edge_values(part, constants, rng) for part in kind.args)
        dicts = [{}, *({k: rng.choice(items)} for k in keys[:6])]
        return [
            *dicts,
            *({rng.choice(keys): rng.choice(items) for _ in range(n)} for n in (2, 3, 5)),
        ]
    items = edge_values(kind.args[0], constants, rng)
    long = [n + 1 for n in constants.get("int", []) if _SIZES[0] <= n <= _SIZES[1]]
    longer = [[items[i % len(items)] for i in range(n)] for n in long[:12]]
    return [CONTAINERS[kind.name](values) for values in [*_lists(items, rng), *longer]]


def _lists(items: list[Any], rng: random.Random) -> list[list[Any]]:
    """Empty, single, double, ordered, reversed, with repeats: where loops over lists go wrong."""
    a, b = items[0], items[min(1, len(items) - 1)]
    lists: list[list[Any]] = [[], *([item] for item in items), [a, a], [a, b], [b, a], [b, a, b]]
    small = items[: max(4, len(items) // 2)]
    for length in (2, 3, 3, 4, 4, 5, 6, 8):
        lists.append([rng.choice(small) for _ in range(length)])
        lists.append([rng.choice(items) for _ in range(length)])
    try:
        lists += [sorted(values) for values in lists[-6:]]
        lists += [sorted(values, reverse=True) for values in lists[-3:]]
    except TypeError:
        pass
    return lists


def _edges(signature: Signature, constants: Constants, rng: random.Random) -> list[list[Any]]:
    columns = [edge_values(kind, constants, rng) for kind in signature.types]
    if not columns:
        return [[]]
    if math.prod(map(len, columns)) <= _MOST_EDGES:
        return [list(values) for values in itertools.product(*columns)]
    inputs = [[rng.choice(column) for column in columns] for _ in range(_MOST_EDGES)]
    longest = max(map(len, columns))
    inputs += [[column[i % len(column)] for column in columns] for i in range(longest)]
    return inputs + _named(signature, constants, columns)


def _named(signature: Signature, constants: Constants, columns: list[list[Any]]) -> list[list[Any]]:
    """Each constant in each place where it fits, beside the plainest values of the others."""
    inputs = []
    for index, kind in enumerate(signature.types):
        parts = kind.args if kind.name == "union" else (kind,)
        values = [value for part in parts for value in constants.get(part.name, [])[:12]]
        for value in values:
            for plain in (0, 1):
                others = [column[min(plain, len(column) - 1)] for column in columns]
                inputs.append([*others[:index], value, *others[index + 1 :]])
    return inputs


def _mixed(
    signature: Signature, constants: Constants, count: int, rng: random.Random
) -> list[list[Any]]:
    """Small values that meet: equal arguments, elements that are arguments too."""
    inputs = []
    for _ in range(count):
        letters = rng.choice(("ab c1", "ab"))  # of two, many repeat
        small: Constants = {
            "int": rng.sample([*range(-3, 13), *constants["int"]], 3),
            # Halves meet, and tenths are rounded: their sum depends on the order.
            "float": [rng.randint(-4, 8) / rng.choice((2, 10)) for _ in range(3)],
            "str": ["".join(rng.choices(letters, k=rng.randint(0, 5))) for _ in range(3)],
            "bool": [False, True],
            "bytes": [bytes(rng.choices(range(97, 100), k=rng.randint(0, 4))) for _ in range(3)],
            "complex": [complex(rng.randint(-2, 2), rng.randint(-2, 2))],
            "None": [None],
        }
        inputs.append([_small(kind, small, rng) for kind in signature.types])
    return inputs


def _of_one_another(
    signature: Signature, inputs: list[list[Any]], rng: random.Random
) -> Iterator[list[Any]]:
    """An argument of another's parts, in another order, with some for others, or of the same sum:
    as two words are that might be anagrams."""
    kinds = [kind if kind.name in _MADE else None for kind in signature.types]
    for i, j in itertools.combinations(range(len(kinds)), 2):
        of_kind = kinds[i] is not None and kinds[i] == kinds[j]
        for values in inputs if of_kind else ():
            parts = list(values[i])
            if len(parts) < 3:
                continue
            made = [rng.sample(parts, len(parts)), rng.choices(parts, k=len(parts))]
            if kinds[i] == Type("list", (Type("int"),)):
                made.append([parts[0] + 1, *parts[1:-1], parts[-1] - 1])
            for others in made:
                yield [*values[:j], _MADE[signature.types[j].name](others), *values[j + 1 :]]


def _small(kind: Type, pool: Constants, rng: random.Random) -> Any:
    if kind.name == "union":
        return _small(rng.choice(kind.args), pool, rng)
    if kind.name in pool:
        return rng.choice(pool[kind.name])
    if kind.name == "tuple":
        return tuple(_small(part, pool, rng) for part in kind.args)
    size = rng.randint(0, 6)
    if kind.name == "dict":
        keys, items = kind.args
        return {_small(keys, pool, rng): _small(items, pool, rng) for _ in range(size)}
    values = [_small(kind.args[0], pool, rng) for _ in range(size)]
    return CONTAINERS[kind.name](values)


@lru_cache(maxsize=256)
def _drawn_texts(signature: Signature, count: int, seed: int) -> tuple[Any, ...]:
    need_tool("hypothesis", "random inputs are made")
    import hypothesis
    from hypothesis import HealthCheck, Phase, strategies

    texts: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        database=None,
        deadline=None,
        max_examples=count,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategies.tuples(*map(_strategy, signature.types)))
    def collect(values: tuple[Any, ...]) -> None:
        texts.append(repr(list(values)))

    with _by_seed_alone():
        collect()
    return tuple(texts)


@contextmanager
def _by_seed_alone() -> Iterator[None]:
    """Hypothesis also draws constants of modules that are imported by then and are not installed
    packages: a resumed run has imported others, and an attack would be another one."""
    from hypothesis.internal.conjecture import providers

    names = ("_get_local_constants", "CONSTANTS_CACHE")
    kept = {name: getattr(providers, name) for name in names if hasattr(providers, name)}
    if len(kept) < len(names):  # an older version, which draws none
        yield
        return
    none, nothing_cached = type(providers._local_constants)(), type(kept["CONSTANTS_CACHE"])(1024)
    with _DRAWING:
        vars(providers).update(_get_local_constants=lambda: none, CONSTANTS_CACHE=nothing_cached)
        try:
            yield
        finally:
            vars(providers).update(kept)


def _drawn(signature: Signature, count: int, seed: int) -> list[list[Any]]:
    """What Hypothesis makes of the types, as fresh objects each time."""
    if not signature.types or count == 0:
        return []
    return [read(text) for text in _drawn_texts(signature, count, seed)]


def _strategy(kind: Type) -> Any:
    from hypothesis import strategies as st

    # As by default, without trying all of Unicode on a codec, which takes seconds.
    anything = st.characters(exclude_categories=["Cs"])
    simple: dict[str, Callable[[], Any]] = {
        "int": lambda: st.one_of(st.integers(-20, 120), st.integers()),
        "float": st.floats,
        "bool": st.booleans,
        "str": lambda: st.one_of(st.text("abAB 1,.-", max_size=12), st.text(anything, max_size=12)),
        "bytes": lambda: st.binary(max_size=12),
        "complex": st.complex_numbers,
        "None": st.none,
    }
    if kind.name in simple:
        return simple[kind.name]()
    parts = [_strategy(part) for part in kind.args]
    if kind.name == "union":
        return st.one_of(*parts)
    if kind.name == "tuple":
        return st.tuples(*parts)
    if kind.name == "dict":
        return st.dictionaries(*parts, max_size=6)
    return st.lists(parts[0], max_size=10).map(CONTAINERS[kind.name])

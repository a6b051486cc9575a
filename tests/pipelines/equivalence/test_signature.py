"""Types from annotations, and inputs that are literals of them and of nothing else."""

import ast
import math
from typing import Any

import pytest

from sparring.pipelines.equivalence.judge.signature import (
    BadInput,
    BadSignature,
    read_input,
    signature_of,
)


def of(types: str) -> Any:
    names = [f"a{i}: {text}" for i, text in enumerate(types.split("; "))] if types else []
    return signature_of(ast.parse(f"def f({', '.join(names)}) -> None: pass"), "f")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("List[int]", "list[int]"),
        ("typing.Optional[int]", "int | None"),
        ("Union[int, str]", "str | int"),
        ("Tuple[int, ...]", "tuple[int, ...]"),
        ("Dict[str, List[int]]", "dict[str, list[int]]"),
    ],
)
def test_the_same_type_has_several_names(a: str, b: str) -> None:
    assert of(a) == of(b)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(a) -> int: pass", "no type"),
        ("def f(a: int): pass", "its result"),
        ("def f(a: list) -> int: pass", "no type that inputs"),
        ("def f(a: Callable[[int], int]) -> int: pass", "no type that inputs"),
        ("def f(*a: int) -> int: pass", "by place"),
        ("def f(a: int, *, b: int) -> int: pass", "by place"),
        ("def f(a: set[list[int]]) -> int: pass", "hashed"),
        ("def f(a: int) -> int:\n    yield a", "generator"),
        ("def g(a: int) -> int: pass", "no function 'f'"),
        ("def f(a: int) -> int: pass\ndef f(a: int) -> int: pass", "2 times"),
    ],
)
def test_what_is_not_wholly_typed_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadSignature, match=why):
        signature_of(ast.parse(text), "f")


@pytest.mark.parametrize(
    ("types", "given", "values"),
    [
        ("int; str", "[3, 'a']", [3, "a"]),
        ("int; str", [3, "a"], [3, "a"]),
        ("tuple[int, str]", [[3, "a"]], [(3, "a")]),
        ("set[int]", "[set()]", [set()]),
        ("frozenset[int]", "[frozenset({1})]", [frozenset({1})]),
        ("dict[int, str]", [{"3": "a"}], [{3: "a"}]),
        ("float", "[float('inf')]", [math.inf]),
        ("float", "[-inf]", [-math.inf]),
        ("int | None", [None], [None]),
        ("complex", "[1+2j]", [1 + 2j]),
        ("complex", "[(1-infj)]", [complex(1, -math.inf)]),  # as Python itself writes it
        ("", "[]", []),
    ],
)
def test_inputs_are_lists_of_literals(types: str, given: Any, values: list[Any]) -> None:
    assert read_input(given, of(types)) == values


@pytest.mark.parametrize(
    ("types", "given"),
    [
        ("int", [True]),  # a bool is no int here, as 1 is no float
        ("int", "[1.0]"),
        ("float", [1]),
        ("int", "[1, 2]"),
        ("int", "[]"),
        ("int", "1"),
        ("int", "[int('1')]"),
        ("int", "[__import__('os')]"),
        ("list[int]", "[[1, 'a']]"),
        ("tuple[int, int]", "[(1, 2, 3)]"),
        ("int", "[" + "1" * 30_000 + "]"),
        ("int", [16**4000]),  # whose digits Python does not write
        ("int", "[1+nan]"),
        ("int", {"a": 1}),
        ("int", "["),
        ("set[int]", "[{[]}]"),
    ],
)
def test_other_inputs_are_refused(types: str, given: Any) -> None:
    with pytest.raises(BadInput):
        read_input(given, of(types))


def test_nan_is_read() -> None:
    assert math.isnan(read_input("[nan]", of("float"))[0])

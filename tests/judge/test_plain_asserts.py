"""Asserts taken apart without a syntax tree: what the tree says, or nothing."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.judge.python.plain_asserts import plain_asserts
from sparring.judge.python.plan import plan_tests

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["==", "f(1) == 2", "'''", "#", "\\", ") == (", "'\"", "a\nassert f(2) == 3"])
)
literals = st.recursive(
    scalars,
    lambda items: (
        st.lists(items, max_size=4)
        | st.lists(items, max_size=4).map(tuple)
        | st.dictionaries(scalars, items, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(literals, max_size=3), literals), min_size=1, max_size=4))
def test_says_what_the_syntax_tree_says(rows: list[tuple[list[object], object]]) -> None:
    texts = [f"assert f({', '.join(map(repr, args))}) == {value!r}" for args, value in rows]
    asserts = plain_asserts(texts)
    if asserts is None:  # left to the tree, which is slower and no less right
        return
    for text, (_, value), one in zip(texts, rows, asserts, strict=True):
        tree = ast.parse(text).body[0]
        assert isinstance(tree, ast.Assert) and isinstance(tree.test, ast.Compare)
        assert ast.unparse(tree.test.left) == ast.unparse(ast.parse(one.call).body[0])
        assert repr(one.expected) == repr(value) and one.name == "f"


def test_most_asserts_are_taken_this_way() -> None:
    rows = ["assert f([1, -2.5, (3,)], {'a': None}) == [True, 1e-07, 'x == y']", "assert f() == {}"]
    asserts = plain_asserts(rows)
    assert asserts is not None
    assert [one.call for one in asserts] == ["f([1, -2.5, (3,)], {'a': None})", "f()"]
    assert [one.expected for one in asserts] == [[True, 1e-07, "x == y"], {}]


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(
    "text",
    [
        "assert f(1) == 2, 'why'",
        "assert f(1) == 2,",
        "assert f(1), (2) == 3",
        "assert f(1) == (2) == 3",
        "assert f(1)(2) == 3",
        "assert f(1) - (2) == 3",
        "assert f([1], [2]) == [3][0]",
        "assert f([1]) == [1] [2]",
        "assert f(1], [2) == 3",
        "assert f(1) == 0or 2",
        "assert f(1) == 1 and 2",
        "assert f(1) == not 1",
        "assert f(1) == (1)(2)",
        "assert f(1) ==",
        "assert f('''a') == 'b'''",
        "assert f(1) == 2; g()",
        "assert f(g(1)) == 2",
        "assert f(x=1) == 2",
        "assert f(1) == {[1]: 2}",
        "for n in [1]: assert f(1) == 2",
    ],
)
def test_anything_else_is_left_to_the_syntax_tree(text: str) -> None:
    assert plain_asserts(["assert f(1) == 1", text]) is None


@pytest.mark.parametrize("name", ["len", "math", "check"])
def test_names_that_are_not_the_programs_are_left_to_the_syntax_tree(name: str) -> None:
    plan = plan_tests((f"assert {name}(1) == 1", "assert f(1) == 1"), "", (), frozenset())
    assert (f"{name}(1)", "") not in plan.calls

"""Values cross the wall as they are, or not at all."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparring.judge.sandbox.inside import wire

keys = (
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False)
)
values = st.recursive(
    keys | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.frozensets(keys)
    ),
    max_leaves=12,
)


def across(value: Any) -> Any:
    return wire.decode(wire.load(wire.dump(wire.encode_content(value))))


@settings(max_examples=200, deadline=None)
@given(values)
def test_plain_values_arrive_as_sent(value: Any) -> None:
    arrived = across(value)
    assert arrived == value and type(arrived) is type(value)
    assert repr(arrived) == repr(value) or isinstance(value, set | frozenset | dict | list | tuple)


@pytest.mark.parametrize(
    "value",
    [
        2**70, -(2**5000), range(2, 9, 3), bytearray(b"x"), collections.OrderedDict(a=1),
        collections.Counter("aab"), collections.deque([1, 2], 5), fractions.Fraction(1, 3),
        decimal.Decimal("1.10"), datetime.date(2024, 2, 29), datetime.timedelta(1, 2, 3),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6), datetime.time(1, 2), ..., int, type(None),
        "\ud800", "\ud83d" + "\ude00", -0.0, float("inf"),
        collections.defaultdict(list, {1: [2]}), collections.defaultdict(None, a=1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_library_values_arrive_as_sent(value: Any) -> None:
    arrived = across(value)
    assert arrived == value and type(arrived) is type(value)


def test_nan_arrives_as_nan() -> None:
    assert math.isnan(across(float("nan")))


def test_a_default_dict_keeps_its_factory() -> None:
    assert across(collections.defaultdict(list))["new"] == []
    with pytest.raises(wire.Unplain):
        wire.encode_content(collections.defaultdict(lambda: 0))


@pytest.mark.parametrize("base", [int, str, float, list, tuple, dict, set, frozenset, bytes])
def test_only_the_builtin_content_of_a_subclass_travels(base: type) -> None:
    lies = {name: lambda self, *a: True for name in ("__eq__", "__lt__", "__contains__")}
    liar = type(
        "Liar", (base,), {**lies, "__hash__": lambda self: 0, "__iter__": lambda self: iter([7])}
    )
    arrived = across([liar()])[0]
    assert type(arrived) is base and arrived == base()
    assert arrived != object()


@pytest.mark.parametrize("value", [object(), len, lambda: 1, open, iter([]), Exception(), wire])
def test_objects_do_not_travel(value: Any) -> None:
    with pytest.raises(wire.Unplain):
        wire.encode_content([value])


numbers = st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none() | st.text()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(numbers, st.integers(0, 200))), st.sampled_from([list, tuple]))
def test_sequences_of_scalars_arrive_whatever_their_runs(runs: Any, kind: type) -> None:
    value = kind(item for item, times in runs for _ in range(times))
    arrived = across(value)
    assert arrived == value and repr(arrived) == repr(value)


def test_a_million_numbers_travel_as_their_bytes() -> None:
    value = [1, 3, *[n / 7 for n in range(1_000_000)], -0.0, math.inf]
    assert len(wire.dump(wire.encode(value))) < 17_000_000
    assert across(value) == value


def test_cycles_and_depth_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(wire.Unplain):
        wire.encode_content(cycle)


TAGS = st.sampled_from(list("ltdDszibBcrqFMTyNhCxPR"))
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TAGS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(json_data)
def test_any_json_is_a_value_or_a_wire_error(data: Any) -> None:
    try:
        wire.decode(data)
    except wire.WireError as error:
        assert str(error)
    else:
        assert not isinstance(data, dict)


@given(st.binary(max_size=200))
def test_any_bytes_are_json_or_a_wire_error(raw: bytes) -> None:
    try:
        wire.load(raw)
    except wire.WireError as error:
        assert "not JSON" in str(error)

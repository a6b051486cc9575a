"""Values as plain tagged data: what crosses the jail's wall, and nothing that can act on arrival.

Only the content of builtin types travels. An object that redefines `==`, `hash`, `repr` or its
class cannot bring those along: either its builtin content is sent, or it is no plain value.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import functools
import importlib
import json
import re
import struct
import sys
from collections.abc import Callable, Collection
from typing import Any

DEPTH = 150
SMALL = 1 << 62
COLLISIONS = 64  # different keys of one hash
BITS = 20_000  # of larger numbers the judge compares, and calculates with none


class TooMuch(Exception):
    """A value or a sum too large to work out here; a jail with limits on time and memory can."""


class Unplain(Exception):
    """A value that is not plain data."""


class WireError(Exception):
    """Bytes that are no encoded value."""


def _refuse(value: object) -> Any:
    raise Unplain(type.__dict__["__name__"].__get__(type(value)))


Handle = Callable[[Any], Any]


def encode(value: Any, handle: Handle = _refuse, depth: int = 0) -> Any:
    """JSON-able form of a plain value; `handle` answers for anything that is not plain."""
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else ["i", hex(value)]
    if depth > DEPTH:
        raise Unplain(f"nested more than {DEPTH} deep")
    tag = SEQUENCES.get(kind)
    if tag is not None:
        return _flat(tag, value) or [tag, *[encode(item, handle, depth + 1) for item in value]]
    tag = MAPPINGS.get(kind)
    if tag is not None:
        flat: list[Any] = [tag]
        if kind is collections.defaultdict:
            flat.append(encode(value.default_factory, handle, depth + 1))
        for key, item in value.items():
            flat.append(encode(key, handle, depth + 1))
            flat.append(encode(item, handle, depth + 1))
        return flat
    writer = WRITERS.get(kind) or _late_writer(kind)
    if writer is not None:
        return writer(value)
    if kind is type:
        name = str(type.__dict__["__name__"].__get__(value))
        return ["y", name] if BUILTIN_TYPES.get(name) is value else handle(value)
    if kind.__module__ == "numpy" and hasattr(value, "dtype"):
        return _numpy(value, handle, depth)
    return handle(value)


def _flat(tag: str, value: Any) -> list[Any] | None:
    """A sequence of scalars at once; None where its items must be looked at one by one. Numbers of
    a long one travel as their bytes: writing and reading digits takes longer than most programs."""
    kinds = set(map(type, value))
    if kinds <= TEXTS:
        return [tag, *value]
    if len(value) < LONG or tag not in "lt" or not kinds <= NUMBERS:
        small = kinds == FLOATS or (kinds == INTS and min(value) > -SMALL and max(value) < SMALL)
        return [tag, *value] if small else None
    if len(kinds) == 1:
        code = "d" if kinds == FLOATS else "q"
        try:
            return ["P", tag, code, struct.pack(f"={len(value)}{code}", *value).hex()]
        except struct.error:  # a number of more than 64 bits
            return None
    which = bytes(map(FLOAT_OR_NOT.__getitem__, map(type, value)))
    ends = [run.end() for run in RUNS.finditer(which)]
    if len(ends) * LONG > len(value):
        return None
    starts = [0, *ends[:-1]]
    return ["R", tag, *[encode(value[a:b]) for a, b in zip(starts, ends, strict=True)]]


BARE = {str, bool, int, float, type(None)}  # what stands for itself
LONG = 64  # items of a sequence that is worth packing
TEXTS = {str, bool, type(None)}
FLOATS, INTS, NUMBERS = {float}, {int}, {float, int}
FLOAT_OR_NOT = {float: 1, int: 0}
RUNS = re.compile(b"\\x00+|\\x01+")


def _unpacked(data: list[Any], resolve: Resolve) -> Any:
    raw = bytes.fromhex(data[3])
    code = {"d": "d", "q": "q"}[data[2]]
    items = struct.unpack(f"={len(raw) // 8}{code}", raw)
    return items if data[1] == "t" else list(items)


def _joined(data: list[Any], resolve: Resolve) -> Any:
    parts = [decode(part, resolve) for part in data[2:]]
    items = [item for part in parts for item in part]
    return tuple(items) if data[1] == "t" else items


def content(value: Any) -> Any:
    """The builtin value inside an instance of a builtin's subclass, else the value itself."""
    for base in type.__dict__["__mro__"].__get__(type(value)):
        reader = CONTENT.get(base)
        if reader is not None:
            return reader(value)
    return value


def encode_content(value: Any, depth: int = 0) -> Any:
    """Like `encode`, but a builtin's subclass is sent as the builtin it is made of."""
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value  # without the function below, which takes pages of its own

    def inner(item: Any) -> Any:
        bare = content(item)
        return _refuse(item) if bare is item else encode(bare, inner, depth + 1)

    return encode(value, inner, depth)


SEQUENCES: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}
MAPPINGS: dict[type, str] = {
    dict: "d",
    collections.defaultdict: "D",
    collections.OrderedDict: "o",
    collections.Counter: "C",
}
CONTENT: dict[type, Callable[[Any], Any]] = {
    bool: lambda v: v,
    int: lambda v: int.__add__(v, 0),
    float: lambda v: float.__add__(v, 0.0) if float.__ne__(v, 0.0) else float.__pos__(v),
    str: lambda v: str.__getitem__(v, slice(None)),
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    set: lambda v: set(set.__iter__(v)),
    frozenset: lambda v: frozenset(frozenset.__iter__(v)),
    dict: lambda v: dict(dict.items(v)),
    collections.deque: lambda v: collections.deque(collections.deque.__iter__(v)),
}
BUILTIN_TYPES: dict[str, type] = {
    t.__name__: t
    for t in (
        bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict, range,
        type(None), object, type, slice, memoryview,
        *(t for t in vars(builtins).values() if type(t) is type and issubclass(t, BaseException)),
    )
}  # fmt: skip
WRITERS: dict[type, Callable[[Any], Any]] = {
    bytes: lambda v: ["b", v.hex()],
    bytearray: lambda v: ["B", v.hex()],
    complex: lambda v: ["c", v.real, v.imag],
    range: lambda v: ["r", hex(v.start), hex(v.stop), hex(v.step)],
    collections.deque: lambda v: ["q", v.maxlen, *[encode_content(item, 1) for item in v]],
    datetime.datetime: lambda v: ["T", "datetime", v.isoformat()],
    datetime.date: lambda v: ["T", "date", v.isoformat()],
    datetime.time: lambda v: ["T", "time", v.isoformat()],
    datetime.timedelta: lambda v: ["T", "timedelta", [v.days, v.seconds, v.microseconds]],
    slice: lambda v: ["S", *[encode_content(part, 1) for part in (v.start, v.stop, v.step)]],
    type(...): lambda v: ["e"],
    type(NotImplemented): lambda v: ["n!"],
}


def _by_text(module: str) -> tuple[str, Callable[[Any], Any]]:
    return module, lambda v: ["V", module, type(v).__name__, str(v)]


# Their modules are large, and every fork would carry them: a value of theirs has imported them.
LATE_WRITERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "Fraction": ("fractions", lambda v: ["F", hex(v.numerator), hex(v.denominator)]),
    "Decimal": ("decimal", lambda v: ["M", str(v)]),
    "UUID": _by_text("uuid"),
    **dict.fromkeys(("PosixPath", "PurePosixPath"), _by_text("pathlib")),
    **dict.fromkeys(("IPv4Address", "IPv4Network", "IPv6Address", "IPv6Network"),
                    _by_text("ipaddress")),
    "array": ("array", lambda v: ["V", "array", "array", v.typecode, encode(v.tolist())]),
}  # fmt: skip


def _late_writer(kind: type) -> Callable[[Any], Any] | None:
    name = str(type.__dict__["__name__"].__get__(kind))
    module, writer = LATE_WRITERS.get(name, ("", None))
    return writer if kind is getattr(sys.modules.get(module), name, None) else None


def _numpy(value: Any, handle: Handle, depth: int) -> Any:
    if type(value).__name__ == "ndarray":
        if value.dtype.kind not in "biufcSU":
            return handle(value)
        return ["N", str(value.dtype), list(value.shape), encode(value.ravel().tolist())]
    kind, bare = value.dtype.kind, value.item()
    if type(bare) is type(value):  # longer than any of Python's own
        bare = complex(bare) if kind == "c" else float(bare)
    bare = encode(bare, handle, depth + 1)
    return ["g", value.dtype.char, bare] if kind in "biufc" else bare


class Array:
    """An ndarray as it arrived, for a reader that may not have numpy."""

    def __init__(self, dtype: str, shape: list[int], flat: list[Any]) -> None:
        self.dtype, self.shape, self.flat = dtype, shape, flat


Resolve = Callable[[list[Any]], Any]
WRONG = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, struct.error,
         ImportError)  # which is of an array where there is no numpy  # fmt: skip


def _unknown(data: list[Any]) -> Any:
    if data[0] == "N":
        return Array(str(data[1]), [int(n) for n in data[2]], decode(data[3]))
    raise WireError(f"unknown tag {data[0]!r:.20}")


def decode(data: Any, resolve: Resolve = _unknown) -> Any:
    """The value of an encoded form; `resolve` answers for tags of its caller's own."""
    if type(data) is not list:
        if data is None or type(data) in (bool, int, float, str):
            return data
        raise WireError(f"a bare {type(data).__name__}")
    if not data or type(data[0]) is not str:
        raise WireError("a list without a tag")
    reader = READERS.get(data[0])
    try:
        return resolve(data) if reader is None else reader(data, resolve)
    except WRONG as error:
        raise WireError(f"bad {data[0]!r:.20}: {error}") from None


def _items(data: list[Any], resolve: Resolve) -> list[Any]:
    if set(map(type, data)) <= BARE:
        return data[1:]
    return [decode(item, resolve) for item in data[1:]]


def collide(hashes: Collection[int]) -> bool:
    """Whether keys were made to collide: building a set of n of them takes n² steps. Some collide
    by right, as the points (x, -1) and (x, -2) do for every x, but few with any one of them."""
    if len(hashes) - len(set(hashes)) <= COLLISIONS:
        return False
    return max(collections.Counter(hashes).values()) > COLLISIONS


def hashable(items: list[Any]) -> list[Any]:
    if len(items) > COLLISIONS and collide([*map(hash, items)]):
        raise WireError("the keys were made to collide")
    return items


def _mapping(data: list[Any], resolve: Resolve) -> dict[Any, Any]:
    flat = _items(data, resolve)
    if len(flat) % 2:
        raise WireError("a key without a value")
    return dict(zip(hashable(flat[::2]), flat[1::2], strict=True))


def outside(data: list[Any]) -> Any:
    """Resolves for a reader that no jail limits: it gets nothing that takes long to work with."""
    return _unknown(data)


def _range(data: list[Any], resolve: Resolve) -> range:
    if resolve is outside:  # a few bytes that stand for as many numbers as the sender likes
        raise TooMuch("a range")
    return range(int(data[1], 16), int(data[2], 16), int(data[3], 16))


def _fraction(data: list[Any], resolve: Resolve) -> Any:
    from fractions import Fraction

    over, under = int(data[1], 16), int(data[2], 16)
    if resolve is outside and max(over.bit_length(), under.bit_length()) > BITS:
        raise TooMuch("a fraction of that size")  # to reduce it takes the square of its digits
    return Fraction(over, under)


def _by_constructor(data: list[Any], resolve: Resolve) -> Any:
    if resolve is outside:
        raise TooMuch(f"a {data[2]}")
    if LATE_WRITERS[data[2]][0] != data[1]:
        raise WireError(f"no {data[1]!r:.20}")
    return getattr(importlib.import_module(data[1]), data[2])(*_items(data[2:], resolve))


def _numpy_number(data: list[Any], resolve: Resolve) -> Any:
    value = decode(data[2], resolve)  # outside there may be no numpy, and a number is as good
    return value if resolve is outside else _numpy_type(data[1])(value)


@functools.lru_cache(maxsize=64)
def _numpy_type(name: str) -> Any:
    kind = importlib.import_module("numpy").dtype(name)
    if kind.kind not in "biufc":
        raise WireError("no number")
    return kind.type


def _decimal(data: list[Any], resolve: Resolve) -> Any:
    import decimal

    number = decimal.Decimal(data[1])
    if number.is_finite() and abs(number.adjusted()) > 10_000:
        raise WireError("an exponent that would take the reader's memory")
    return number


def _time(data: list[Any], resolve: Resolve) -> Any:
    if data[1] == "timedelta":
        return datetime.timedelta(*data[2])
    return {
        "datetime": datetime.datetime.fromisoformat,
        "date": datetime.date.fromisoformat,
        "time": datetime.time.fromisoformat,
    }[data[1]](data[2])


READERS: dict[str, Callable[[list[Any], Resolve], Any]] = {
    "i": lambda d, r: int(d[1], 16),
    "l": _items,
    "P": _unpacked,
    "R": _joined,
    "t": lambda d, r: tuple(_items(d, r)),
    "s": lambda d, r: set(hashable(_items(d, r))),
    "z": lambda d, r: frozenset(hashable(_items(d, r))),
    "d": _mapping,
    "D": lambda d, r: collections.defaultdict(decode(d[1], r), _mapping(d[1:], r)),
    "o": lambda d, r: collections.OrderedDict(_mapping(d, r)),
    "C": lambda d, r: collections.Counter(_mapping(d, r)),
    "b": lambda d, r: bytes.fromhex(d[1]),
    "B": lambda d, r: bytearray.fromhex(d[1]),
    "c": lambda d, r: complex(d[1], d[2]),
    "r": _range,
    "q": lambda d, r: collections.deque(_items(d[1:], r), d[1]),
    "F": _fraction,
    "M": _decimal,
    "g": _numpy_number,
    "T": _time,
    "S": lambda d, r: slice(*_items(d, r)),
    "V": _by_constructor,
    "e": lambda d, r: ...,
    "n!": lambda d, r: NotImplemented,
    "y": lambda d, r: BUILTIN_TYPES[d[1]],
}


# Characters as they are: the escapes of two lone surrogates would be read as one character.
_parts: Any = json.JSONEncoder(
    separators=(",", ":"), check_circular=False, ensure_ascii=False
).iterencode
if make := getattr(json.encoder, "c_make_encoder", None):
    # The writer in C that `encode` would make anew for every value, with the same settings.
    refuse, quote = json.JSONEncoder().default, json.encoder.encode_basestring
    _parts = make(None, refuse, quote, None, ":", ",", False, False, True)
_scan = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


def dump(data: Any) -> bytes:
    return "".join(_parts(data, 0)).encode("utf-8", "surrogatepass")


def load_own(raw: bytes) -> Any:
    """JSON of our own making, by the shortest way: a fork pays for every page it touches."""
    return _scan(raw.decode("utf-8", "surrogatepass"), 0)[0]


def load(raw: bytes) -> Any:
    """JSON of hostile origin: whatever is wrong with it, the answer is one kind of error."""
    try:
        text = raw.decode("utf-8", "surrogatepass")
        data, end = _scan(text, 0)
    except (ValueError, StopIteration, RecursionError, MemoryError) as error:
        raise WireError(f"not JSON: {error!s:.100}") from None
    if end != len(text):
        raise WireError("not JSON: more than one value")
    return data

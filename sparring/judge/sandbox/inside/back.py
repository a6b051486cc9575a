"""What the program may do with objects of the tests' own that were passed to it."""

from __future__ import annotations

import functools
import operator
import re
import types
from typing import Any

from .foreign import BINARY

TESTS = "tests"  # the name of the module that the tests believe to be
BACK: dict[str, Any] = {
    "getitem": lambda o, k: o[k],
    "iter": lambda o: iter(o) if iter(o) is o or not hasattr(o, "__len__") else list(o),
    "enter": lambda o: type(o).__enter__(o),
    "exit": lambda o, *error: type(o).__exit__(o, *error),
    **{f.__name__: f for f in (len, next, bool, hash, str, repr, format, int, float, round, abs,
                               reversed, setattr, delattr)},
    **{n: getattr(operator, n) for n in ("lt", "le", "gt", "ge", "eq", "neg", "index", "contains",
                                         "setitem", "delitem")},
}  # fmt: skip
for _name in BINARY:
    _op = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    BACK[_name], BACK[f"r{_name}"] = _op, functools.partial(lambda op, a, b: op(b, a), _op)
# Of other objects than the tests' own: those whose parts lead to nothing of the tests' frames.
OPEN = {"_io", "io", "unittest", "asyncio", "queue", "_queue", "threading", "_thread", "types",
        "random", "_random", "logging", "pathlib", "datetime", "decimal", "tempfile", "collections",
        "re", "functools", "argparse", "_csv", "urllib", "sqlite3", "xml", "fractions", "string",
        "array", "uuid", "ipaddress", "zoneinfo"}  # fmt: skip
# But not what opens any file, the descriptors of this process among them, or loads one as code.
OPENING = {"xml": {"parse", "write"}, "sqlite3": {"enable_load_extension", "load_extension"}}
TUPLES = ("_replace", "_asdict", "_fields", "_make")  # what a named tuple has for everybody
NAMED = ("__name__", "__qualname__", "__doc__", "__module__")  # what functools.wraps copies
CLOSED = (types.FrameType, types.CodeType, types.ModuleType, types.GeneratorType,
          types.CoroutineType, types.TracebackType)  # fmt: skip
METHODS = (types.FunctionType, types.MethodDescriptorType, classmethod, staticmethod,
           type(functools.lru_cache(len)))  # fmt: skip
# Of texts and formatters of the library, what reads any part of any object: "{0.f.__globals__}".
FILLING = {"format", "format_map", "vformat", "get_field"}
PARTS = re.compile(r"\{[^{}]*[.\[]")
# A mock's record of its calls, and what would change that or its methods from within.
RECORDS = {"called", "call_count", "call_args", "call_args_list", "method_calls", "mock_calls",
           "attach_mock", "configure_mock", "mock_add_spec", "reset_mock"}  # fmt: skip


def done(side: Any, what: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if what == "call":
        return target(*args, **kwargs)
    if what == "signature":
        return signature(target)
    if what == "await":
        return side.loop.run(target)
    if what in ("getattr", "setattr", "delattr"):
        if (what, args[0]) == ("getattr", "__dict__") and type(target).__module__ == TESTS:
            return {name: part for name, part in vars(target).items() if name[:1] != "_"}
        if what != "getattr" or args[0] not in NAMED:
            check_open(target, args[0])
            check_kept(target, args[0], what)
        value = getattr(target, args[0]) if what == "getattr" else BACK[what](target, *args)
        if isinstance(value, CLOSED):
            raise AttributeError(f"{args[0]!r:.50} is the tests' own")
        # A mock's calls, which are not to be undone.
        return list(value) if isinstance(value, list) and args[0] in RECORDS else value
    return BACK[what](target, *args)


def signature(target: Any) -> list[Any]:
    """The parameters of a function: names, kinds and defaults."""
    import inspect

    return [
        [p.name, int(p.kind), [] if p.default is p.empty else [["default", p.default]]]
        for p in inspect.signature(target).parameters.values()
    ]


def check_open(target: Any, name: Any) -> None:
    """Only objects and classes of the tests, and of the library those that are harmless, have
    parts for others: a generator's gi_frame, say, would open all of the tests' globals."""
    cls = target if isinstance(target, type) else type(target)
    root = cls.__module__.partition(".")[0]
    own = cls.__module__ == TESTS or (root in OPEN and name not in OPENING.get(root, ()))
    closed = isinstance(target, (*CLOSED, types.FunctionType, types.MethodType))
    private = type(name) is not str or name.startswith("_") or _fills(target, cls, name)
    if not own or closed or (private and not (name in TUPLES and issubclass(cls, tuple))):
        raise AttributeError(f"{name!r:.50} is the tests' own")


def _fills(target: Any, cls: type, name: str) -> bool:
    if name not in FILLING or (isinstance(target, str) and not PARTS.search(str.__str__(target))):
        return False
    owner = next((base for base in cls.__mro__ if name in vars(base)), cls)
    return owner.__module__ in ("builtins", "collections", "string")


def check_kept(target: Any, name: str, what: str) -> None:
    """Data of the tests' objects may be set. Their methods may be what rules on the program, as
    `assert_called_with` of a mock is and `same` of a class of their own."""
    cls = target if isinstance(target, type) else type(target)
    owned = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
    method = isinstance(owned, METHODS)
    record = cls.__module__ == "unittest.mock" and name in RECORDS
    if (method and record) or ((method or record) and what != "getattr"):
        raise AttributeError(f"{name!r:.50} is the tests' own")

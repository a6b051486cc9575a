"""The trusted end of the link: runs the tests, and asks the program for every value it makes."""

from __future__ import annotations

import builtins
import importlib
import marshal
import os
import types
from collections import deque
from importlib._bootstrap_external import MAGIC_NUMBER
from typing import Any

from . import wire
from .link import READY, Link, LinkLost
from .remote import Proxy

# A program may bring these into the tests' names with its own imports; ours are the real ones.
TRUSTED = {"math", "cmath", "copy", "itertools", "functools", "collections", "random", "re",
           "string", "operator", "datetime", "decimal", "fractions", "statistics", "heapq",
           "bisect", "asyncio", "typing", "json", "numpy"}  # fmt: skip
TRUSTED_FUNCTIONS = {("math", "isclose"), ("math", "fabs"), ("copy", "deepcopy"), ("math", "sqrt")}
BACK: dict[str, Any] = {
    "len": len,
    "list": list,
    "getitem": lambda o, k: o[k],
    "lt": lambda a, b: a < b,
}


class Names(dict[str, Any]):
    """The tests' globals: what they do not define themselves is the program's, asked each time."""

    side: Side

    def __missing__(self, name: str) -> Any:
        if name in self.side.own_builtins or name.startswith("__"):
            raise KeyError(name)
        value = self.side.name(name)
        if value is MISSING:
            raise KeyError(name)
        return value


MISSING = object()
TESTS = "tests"  # the name of the module that the tests believe to be


class Side:
    def __init__(self, fd: int, entry: list[str], shadow: list[str]) -> None:
        self.link = Link(fd, self.serve)
        self.exports: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.errors: dict[int, type[BaseException]] = {}
        self.own_builtins = set(dir(builtins)) - set(shadow)
        self.entry = entry
        self.fault: dict[str, Any] | None = None  # the last thing the program raised
        self.lines: dict[str, list[str]] = {}  # of each part of the tests, by its label
        self.stops = False  # whether the tests know of StopIteration

    # what the program may ask of the tests

    def serve(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            target = self.exports[message["on"]]
            args = wire.decode(message["args"], self.resolve)
            kwargs = wire.decode(message["kwargs"], self.resolve)
            return {"value": self.encode(self._back(message["op"], target, args, kwargs))}
        except LinkLost:
            raise
        except Exception as error:
            return {"error": type(error).__name__, "text": str(error)[:200]}

    def _back(self, what: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if what == "call":
            return target(*args, **kwargs)
        if what in ("getattr", "setattr"):
            # Only objects of the tests' own classes have parts that are meant for others: a
            # generator's gi_frame, say, would open all of the tests' globals.
            own = type(target).__module__ == TESTS
            if not own or type(args[0]) is not str or args[0].startswith("_"):
                raise AttributeError(f"{args[0]!r:.50} is the tests' own")
            return getattr(target, args[0]) if what == "getattr" else setattr(target, *args)
        return BACK[what](target, *args)

    # what the tests ask of the program

    def handle(self, value: Any) -> Any:
        if type(value) is Proxy:
            return ["n", value._named] if value._live else ["h", value._number]
        if isinstance(value, types.ModuleType):
            raise TypeError("a module of the tests cannot be passed to the program")
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.exports)
            self.exports.append(value)  # kept, so that no other value comes to have its id
        return ["x", number]

    def encode(self, value: Any) -> Any:
        if type(value) is Proxy:
            return self.handle(value)
        return wire.encode(value, self.handle)

    def resolve(self, data: list[Any]) -> Any:
        if data[0] == "x" and type(data[1]) is int and 0 <= data[1] < len(self.exports):
            return self.exports[data[1]]
        if data[0] == "h" and type(data[1]) is int and type(data[2]) is dict:
            number, about = data[1], data[2]
            if about.get("lineage"):
                return self.exception(about["lineage"])
            proxy = Proxy(self, number, {str(k): v for k, v in about.items()})
            return self._coroutine(proxy) if about.get("coroutine") else proxy
        if data[0] == "N":
            return self._array(data)
        raise wire.WireError(f"unknown tag {data[0]!r:.20}")

    async def _coroutine(self, proxy: Proxy) -> Any:
        return self.ask("await", proxy)

    def _array(self, data: list[Any]) -> Any:
        numpy = importlib.import_module("numpy")
        return numpy.array(wire.decode(data[3]), dtype=str(data[1])).reshape(data[2])

    def ask(self, what: str, *args: Any, **kwargs: Any) -> Any:
        message = {"op": what, "args": ["l", *map(self.encode, args)]}
        if kwargs:
            message["kwargs"] = self.encode(kwargs)
        try:
            return self._answer(self.link.ask(message), list(args))
        except (StopIteration, StopAsyncIteration) as error:
            if what == "next" or self.stops:
                raise
            # zip(map(f, cases), expected) would take it for the end of the cases.
            raise RuntimeError(f"the program raised {type(error).__name__}") from error

    def _answer(self, answer: dict[str, Any], args: list[Any]) -> Any:
        try:
            value = self._error(answer) if "error" in answer else self._value(answer, args)
        except (wire.WireError, LookupError, TypeError, ValueError) as error:
            raise LinkLost(f"the program sent no value: {error}") from None
        if "error" in answer:
            raise value
        return value

    def _value(self, answer: dict[str, Any], args: list[Any]) -> Any:
        if "after" in answer:
            after = wire.decode(answer["after"], self.resolve)
            for old, new in zip(args, after, strict=True):
                restore(old, new)
        if "same" in answer:
            return args[answer["same"]]
        return wire.decode(answer["value"], self.resolve)

    def _error(self, answer: dict[str, Any]) -> BaseException:
        self.fault = {k: str(answer.get(k, ""))[:600] for k in ("kind", "detail")}
        cls = self.exception(answer["error"])
        args = wire.decode(answer.get("args", ["l"]))
        try:
            error = cls(*args)
        except Exception:
            error = cls.__new__(cls)
        error.of_the_program = True  # type: ignore[attr-defined]
        return error

    def exception(self, lineage: Any) -> type[BaseException]:
        """A local class for an exception class of the program, so that `except` can name it."""
        if type(lineage) is not list or not lineage or len(lineage) > 50:
            raise wire.WireError("an exception without a lineage")
        builtin = getattr(builtins, str(lineage[-1]), None)
        cls = (
            builtin
            if isinstance(builtin, type) and issubclass(builtin, BaseException)
            else Exception
        )
        for number, name in reversed(lineage[:-1]):
            if number not in self.errors:
                self.errors[int(number)] = type(str(name), (cls,), {})
            cls = self.errors[number]
        return cls

    def name(self, name: str) -> Any:
        answer = self.link.ask({"op": "name", "args": ["l", name]})
        if "error" in answer:
            return MISSING
        value = self._answer(answer, [])
        if type(value) is Proxy:
            object.__setattr__(value, "_named", name)
        if type(value) is Proxy and name not in self.entry:
            module, source = value._about.get("module"), value._about.get("from")
            if type(module) is str and module.partition(".")[0] in TRUSTED:
                return importlib.import_module(module)
            if type(source) is list and tuple(map(str, source)) in TRUSTED_FUNCTIONS:
                return getattr(importlib.import_module(source[0]), source[1])
        return value


def restore(old: Any, new: Any) -> None:
    """Make the tests' own object what the program made of its copy, keeping identities."""
    if type(old) is list and type(new) is list:
        old[:] = [_kept(o, n) for o, n in zip(old, new, strict=False)] + new[len(old) :]
    elif type(old) is type(new) and isinstance(old, dict):
        merged = {k: _kept(old.get(k), v) for k, v in new.items()}
        old.clear()
        old.update(merged)
    elif type(old) is set and type(new) is set:
        old.clear()
        old.update(new)
    elif type(old) is type(new) and isinstance(old, bytearray | deque):
        old.clear()
        old.extend(new)


def _kept(old: Any, new: Any) -> Any:
    if type(old) is type(new) and isinstance(old, list | dict | set):
        restore(old, new)
        return old
    return new


def names_of_tests(side: Side, reads: list[str] | None, binds: list[str]) -> dict[str, Any]:
    """The globals of the tests. A plain dict, which is much the faster one, where every name that
    they read and do not bind is a function or a class of the program's; `reads` is None where it
    may read any of them. Data is asked for each time: the program may change it."""
    names: dict[str, Any] = {}
    for name in reads or ():
        value = side.name(name)
        if type(value) is Proxy:
            object.__setattr__(value, "_live", True)
        if type(value) in (Proxy, types.ModuleType, types.BuiltinFunctionType, types.FunctionType):
            names[name] = value
        elif value is not MISSING or name not in binds:
            reads = None
            break
    own = {"__name__": TESTS, "__builtins__": builtins}
    if reads is not None:
        return {**names, **own}
    asked = Names(own)
    asked.side = side
    return asked


def compiled(request: dict[str, Any]) -> list[types.CodeType]:
    """The judge's own code where its Python is this one's version, else compiled anew."""
    raw = bytes.fromhex(request["code"])
    if raw.startswith(MAGIC_NUMBER):
        return list(marshal.loads(raw[len(MAGIC_NUMBER) :]))
    return [compile(text, label, "exec", dont_inherit=True) for label, text in request["parts"]]


def check(request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Run the tests to the end or to the first thing that is not so."""
    side = Side(fds[2], request["entry"], request["shadow"])
    try:
        side._answer(side.link.receive(), [])
        # Not before the program has also given its names: it may say that it is ready, and be not.
        names = names_of_tests(side, request["reads"], request["binds"])
        os.pwrite(fds[1], READY, 0)
        before, side.link.mark = side.link.asked, fds[1]
        side.lines = {label: source.splitlines() for label, source in request["parts"]}
        side.stops = any("Iteration" in source for _, source in request["parts"])
        for code in compiled(request):
            exec(code, names)
        if request["check"]:
            candidates = [side.name(name) for name in side.entry]
            for name, candidate in zip(side.entry, candidates, strict=True):
                if candidate is MISSING:
                    detail = f"NameError: name {name!r} is not defined"
                    return {"verdict": "fail", "kind": "exception", "detail": detail}
            names["check"](*candidates)
        if side.link.asked == before:
            return {"verdict": "void", "kind": "tests", "detail": "the tests call nothing"}
        return {"verdict": "pass"}
    except LinkLost as lost:
        return {"verdict": "fail", "kind": "exception", "detail": str(lost), "lost": True}
    except BaseException as error:
        return _failed(error, side)


def _failed(error: BaseException, side: Side) -> dict[str, Any]:
    where = ""
    trace = error.__traceback__
    while trace is not None:
        label = trace.tb_frame.f_code.co_filename
        lines = side.lines.get(label, [])
        if 0 < trace.tb_lineno <= len(lines):
            line = lines[trace.tb_lineno - 1].strip()
            where = f"{label.strip('<>')} line {trace.tb_lineno}: {line[:200]}"
        trace = trace.tb_next
    if getattr(error, "of_the_program", False) and side.fault:
        kind, detail = side.fault["kind"] or "exception", side.fault["detail"]
    elif isinstance(error, AssertionError):
        kind, detail = "wrong value", f"not so: {str(error)[:200]}" if str(error) else "not so"
    else:
        kind, detail = "exception", f"{type(error).__name__}: {str(error)[:200]}"
    return {"verdict": "fail", "kind": kind, "detail": f"{detail} ({where})" if where else detail}

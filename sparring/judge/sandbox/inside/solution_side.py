"""The program's end of the link: does what the tests ask of it, and returns what came of it."""

from __future__ import annotations

import builtins
import operator
import sys
import types
from typing import Any

from . import wire
from .faults import fault
from .link import Link, LinkLost, TooLarge

SCALARS = (int, float, str, bytes)
CONSTANT = {int, float, str, bytes, bool, complex, type(None)}  # no call can change these
OPERATIONS: dict[str, Any] = {
    name: getattr(operator, name)
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
        "lshift", "rshift", "neg", "pos", "invert", "abs", "lt", "le", "gt", "ge", "getitem",
        "setitem", "delitem",
    )
}  # fmt: skip
OPERATIONS |= {
    f.__name__: f
    for f in (
        len, iter, next, bool, str, repr, format, int, float, round, isinstance, issubclass,
        getattr, setattr, delattr, reversed, dir, callable,
    )
}  # fmt: skip


class Foreign:
    """Something of the tests' own, passed to the program: it may be called and asked for parts."""

    __slots__ = ("_link", "_number")

    def __init__(self, side: Side, number: int) -> None:
        object.__setattr__(self, "_link", side)
        object.__setattr__(self, "_number", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._link.back(self, "call", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._link.back(self, "getattr", (name,), {})

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.back(self, "setattr", (name, value), {})

    def __len__(self) -> int:
        return int(self._link.back(self, "len", (), {}))

    def __iter__(self) -> Any:
        return iter(self._link.back(self, "list", (), {}))

    def __getitem__(self, key: Any) -> Any:
        return self._link.back(self, "getitem", (key,), {})

    def __lt__(self, other: Any) -> Any:
        return self._link.back(self, "lt", (other,), {})

    def __eq__(self, other: Any) -> bool:
        return type(other) is Foreign and other._number == self._number

    def __hash__(self) -> int:
        return hash(self._number)


class Side:
    def __init__(self, names: dict[str, Any], fd: int) -> None:
        self.names = names
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.foreign: dict[int, Foreign] = {}
        self.link = Link(fd, self.serve)

    def handle(self, value: Any) -> Any:
        """A value that is not plain stays here; the tests get a number for it and what it is."""
        if type(value) is Foreign:
            return ["x", value._number]
        bare = wire.content(value)
        if bare is not value and isinstance(bare, SCALARS):
            return wire.encode(bare)
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return ["h", number, self.about(value, bare)]

    def known(self, value: Any) -> Any:
        """As the tests themselves name it, to see whether it is the one they sent."""
        number = None if type(value) is Foreign else self.numbers.get(id(value))
        return self.handle(value) if number is None else ["h", number]

    def about(self, value: Any, bare: Any) -> dict[str, Any]:
        about: dict[str, Any] = {"type": _name(type(value))}
        if bare is not value:
            about["builtin"] = True
        if isinstance(value, type):
            about["class"] = _name(value)
            if issubclass(value, BaseException):
                about["lineage"] = self.lineage(value)
        elif isinstance(value, types.CoroutineType):
            about["coroutine"] = True
        elif isinstance(value, types.ModuleType):
            about["module"] = value.__name__
        elif isinstance(value, types.BuiltinFunctionType | types.FunctionType):
            about["from"] = [str(value.__module__), value.__name__]
        return about

    def lineage(self, cls: type) -> list[Any]:
        """Own exception classes by number, up to the first builtin one by name."""
        classes: list[Any] = []
        for base in type.__dict__["__mro__"].__get__(cls):
            name = _name(base)
            if getattr(builtins, name, None) is base:
                return [*classes, name]
            if id(base) not in self.numbers:
                self.numbers[id(base)] = len(self.objects)
                self.objects.append(base)
            classes.append([self.numbers[id(base)], name])
        return [*classes, "Exception"]

    def resolve(self, data: list[Any]) -> Any:
        if data[0] == "h":
            return self.objects[data[1]]
        if data[0] == "n":
            return self.names[data[1]]
        if data[0] == "x":
            return self.foreign.setdefault(data[1], Foreign(self, data[1]))
        raise wire.WireError(f"unknown tag {data[0]!r:.20}")

    def encode(self, value: Any) -> Any:
        return wire.encode(value, self.handle)

    def back(self, target: Foreign, what: str, args: Any, kwargs: Any) -> Any:
        message = {
            "op": what,
            "on": target._number,
            "args": self.encode(list(args)),
            "kwargs": self.encode(kwargs),
        }
        answer = self.link.ask(message)
        if "error" in answer:
            cls = getattr(builtins, answer["error"], RuntimeError)
            raise cls(answer["text"])
        return wire.decode(answer["value"], self.resolve)

    def serve(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            sent = message["args"]
            args = wire.decode(sent, self.resolve)
            kwargs = wire.decode(message["kwargs"], self.resolve) if "kwargs" in message else {}
            value = self.do(message["op"], args, kwargs)
            answer: dict[str, Any] = {"value": self.encode(value)}
            if message["op"] == "call" and not CONSTANT.issuperset(map(type, args[1:])):
                for number, arg in enumerate(args):
                    if arg is value and isinstance(arg, list | dict | set):
                        answer["same"] = number
                if wire.encode(args[1:], self.known)[1:] != sent[2:]:
                    answer["after"] = self.encode(args)
            return answer
        except LinkLost:
            raise
        except BaseException as error:
            sys.setrecursionlimit(max(2000, sys.getrecursionlimit()))
            return self.failed(error)

    def failed(self, error: BaseException) -> dict[str, Any]:
        answer = {"error": self.lineage(type(error)), **fault(error)}
        try:
            answer["args"] = wire.encode_content(list(error.args))
        except Exception:
            answer["args"] = ["l", answer["detail"]]
        return answer

    def do(self, what: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if what == "name":
            if args[0] not in self.names:
                raise NameError(f"name {args[0]!r} is not defined")
            return self.names[args[0]]
        if what == "call":
            return args[0](*args[1:], **kwargs)
        if what == "eq":
            return type(args[0]) is type(args[1]) and bool(args[0] == args[1])
        if what == "content":
            return wire.decode(wire.encode_content(args[0]))
        if what == "await":
            import asyncio

            return asyncio.run(args[0])
        if what == "special":
            return getattr(type(args[0]), args[1])(args[0], *args[2:])
        return OPERATIONS[what](*args, **kwargs)


def _name(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def serve(code: types.CodeType, names: dict[str, Any], fds: list[int]) -> None:
    side = Side(names, fds[2])
    try:
        exec(code, names)
        side.link.send({"value": "ready"})
    except BaseException as error:
        side.link.send(side.failed(error))
    try:
        while True:
            answer = side.serve(side.link.receive())
            try:
                side.link.send(answer)
            except TooLarge as error:
                lost = {"kind": "output limit", "detail": f"the program's value: {error}"}
                side.link.send({"error": ["MemoryError"], **lost})
    except LinkLost:
        pass

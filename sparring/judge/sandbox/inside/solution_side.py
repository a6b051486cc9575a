"""The program's end of the link: does what the tests ask of it, and returns what came of it."""

from __future__ import annotations

import copy
import importlib
import operator
import sys
import types
from abc import ABCMeta
from typing import Any

from . import wire
from .awaiting import Loop
from .errors import Raised
from .foreign import Foreigners, form_of
from .link import Link, LinkLost, TooLarge
from .mirror import MUTABLE, Mirror, shared
from .world import ProgramWorld

SCALARS = (int, float, str, bytes)
CONSTANT = {int, float, str, bytes, bool, complex, type(None)}  # no call can change these
OPERATIONS: dict[str, Any] = {
    name: getattr(operator, name)
    for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor",
        "lshift", "rshift", "neg", "pos", "invert", "abs", "lt", "le", "gt", "ge", "getitem",
        "setitem", "delitem", "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow",
        "imatmul", "iand", "ior", "ixor", "ilshift", "irshift", "index",
    )
}  # fmt: skip
OPERATIONS |= {
    f.__name__: f
    for f in (
        len, iter, next, bool, str, repr, format, int, float, round, isinstance, issubclass,
        getattr, setattr, delattr, reversed, dir, callable, hash, type,
    )
} | {"copy": copy.copy, "deepcopy": copy.deepcopy}  # fmt: skip
VIEWS: dict[type, Any] = {
    memoryview: bytes, type({}.keys()): set, type({}.items()): lambda items: _set_or_list(items),
}  # fmt: skip
LIBRARY = {
    "dataclasses": ("asdict", "astuple", "replace", "fields", "is_dataclass"),
    "inspect": ("signature", "iscoroutinefunction", "isgeneratorfunction", "isasyncgenfunction",
                "isfunction", "isclass", "ismethod", "isgenerator", "iscoroutine", "getdoc",
                "getmembers", "getfullargspec", "isabstract"),
    "asyncio": ("iscoroutinefunction",),
    "typing": ("get_type_hints",),
}  # fmt: skip
SPECIAL = (
    "__iter__", "__next__", "__len__", "__contains__", "__getitem__", "__reversed__", "__call__",
    "__await__", "__aiter__", "__anext__", "__enter__", "__exit__", "__aenter__", "__aexit__",
    "__int__", "__float__", "__index__", "__complex__", "__abs__", "__round__", "__hash__",
    "__bytes__", "__fspath__", "send", "throw", "close", "asend", "athrow", "aclose",
)  # fmt: skip
PLAIN = {"op", "args", "kwargs", "alias"}


class Side:
    def __init__(self, names: dict[str, Any], fd: int) -> None:
        self.names = names
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.foreign = Foreigners(self)
        self.link = Link(fd, self.serve)
        self.raised = Raised(self)
        self.world = ProgramWorld(self)
        self.mirror = Mirror(lambda value: wire.encode(value, self.known))
        self.loop = Loop()
        self.aliases = False  # whether the tests may change what they get

    def number(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        return number

    def handle(self, value: Any) -> Any:
        """A value that is not plain stays here; the tests get a number for it and what it is."""
        if (form := form_of(value)) is not None:
            return form
        if id(value) in self.raised.own:
            return ["x", self.raised.own[id(value)]]
        bare = wire.content(value)
        if bare is not value and isinstance(bare, SCALARS):
            return ["k", self.number(value), wire.encode(bare)]
        return ["h", self.number(value), self.about(value, bare)]

    def known(self, value: Any) -> Any:
        """As the tests themselves name it, to see whether it is the one they sent."""
        number = self.numbers.get(id(value))
        return self.handle(value) if number is None else ["h", number]

    def about(self, value: Any, bare: Any) -> dict[str, Any]:
        about: dict[str, Any] = {"type": _name(type(value))}
        if bare is not value or type(value) in VIEWS:
            about["builtin"] = True
        if isinstance(value, type):
            about["class"] = _name(value)
            if issubclass(value, BaseException):
                about["lineage"] = self.raised.lineage(value)
        elif isinstance(value, types.CoroutineType):
            about["coroutine"] = True
        elif isinstance(value, types.ModuleType):
            about["module"] = value.__name__
        elif isinstance(value, types.BuiltinFunctionType | types.FunctionType):
            module, name = str(value.__module__), value.__name__
            if getattr(sys.modules.get(module), name, None) is value:
                about["from"] = [module, name]
        return about

    def class_of(self, value: Any) -> dict[str, Any]:
        """What the tests need for a class like that of a value: the library's own where it is one,
        else the nearest above it, the library's abstract ones and which special methods it has."""
        cls = type(value)
        lineage = [(*where, base) for base in cls.__mro__ if (where := _of_library(base))]
        abstract = [[m, n] for m, n, base in lineage if isinstance(base, ABCMeta)]
        nearest = next(([m, n] for m, n, base in lineage if not isinstance(base, ABCMeta)), None)
        special = [n for n in SPECIAL if getattr(cls, n, None) is not getattr(object, n, None)]
        return {"number": self.number(cls), "name": _name(cls), "abstract": abstract,
                "exact": bool(lineage) and lineage[0][2] is cls, "nearest": nearest,
                "special": special}  # fmt: skip

    def resolve(self, data: list[Any]) -> Any:
        match data[0]:
            case "h":
                return self.objects[data[1]]
            case "n":
                return self.names[data[1]]
            case "x" | "K":
                return self.foreign.get(data)
            case "E":
                return self.raised.class_of_tests(*data[1:])
            case "X":
                cls, args = (wire.decode(part, self.resolve) for part in data[1:3])
                return self.raised.made(cls, args, data[3])
            case "N":
                numpy = importlib.import_module("numpy")
                return numpy.array(wire.decode(data[3]), dtype=data[1]).reshape(data[2])
        raise wire.WireError(f"unknown tag {data[0]!r:.20}")

    def encode(self, value: Any) -> Any:
        return wire.encode(value, self.handle)

    def back(self, target: Any, what: str, args: Any, kwargs: Any) -> Any:
        form = form_of(target)
        return self.tests(what, args, kwargs, form[1] if form else -1)

    def tests(self, what: str, args: Any, kwargs: Any = None, on: int = -1) -> Any:
        message = {
            "op": what,
            "on": on,
            "args": self.encode(list(args)),
            "kwargs": self.encode(kwargs or {}),
        }
        answer = self.link.ask(message)
        if "error" in answer:
            raise self.raised.of_tests(answer)
        return wire.decode(answer["value"], self.resolve)

    def serve(self, message: dict[str, Any]) -> dict[str, Any]:
        if not message.keys() <= PLAIN:
            try:
                self._catch_up(message)
            except LinkLost:
                raise
            except BaseException as error:
                return self.raised.describe(error)
        answer = self._answer(message)
        if self.mirror.held and (changed := self.mirror.changes()):
            answer["changed"] = changed
        if self.world.watched:
            answer.update(self.world.happened())
        return answer

    def _catch_up(self, message: dict[str, Any]) -> None:
        """What the tests have changed since they last asked."""
        self.world.change(message)
        self.mirror.apply(message.get("changed", []), self._decoded)
        for number in message.get("dropped", []):
            self.mirror.held.pop(number, None)

    def _decoded(self, form: Any) -> Any:
        return wire.decode(form, self.resolve)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        op = message["op"]
        try:
            args = wire.decode(message["args"], self.resolve)
            if "alias" in message:
                for number, first in message["alias"]:
                    args[number] = args[first]
            if "kwargs" in message:
                kwargs = wire.decode(message["kwargs"], self.resolve)
            value = self.do(op, args, kwargs)
            answer["value"] = wire.encode(value, self.handle)
            if type(value) in MUTABLE:
                # Somebody else holds it too: an object, a cache, the caller.
                if sys.getrefcount(value) > 2 and (same := _position(value, args)) is not None:
                    answer["same"] = same
                elif sys.getrefcount(value) > 2:
                    answer["kept"] = self._held(value)
                elif self.aliases and (twice := shared(value)):
                    answer["shared"] = twice
            del value
        except LinkLost:
            raise
        except BaseException as error:
            sys.setrecursionlimit(max(2000, sys.getrecursionlimit()))
            answer = self.raised.describe(error)
        if op == "call" and not CONSTANT.issuperset(map(type, (*args[1:], *kwargs.values()))):
            self._say_what_changed(args, kwargs, message, answer)
        return answer

    def _held(self, value: Any) -> int:
        number = self.number(value)
        self.mirror.hold(number, value)
        return number

    def _say_what_changed(
        self, args: list[Any], kwargs: dict[str, Any], message: Any, answer: dict[str, Any]
    ) -> None:
        value = answer.get("value")
        try:
            if wire.encode(args[1:], self.known)[1:] != message["args"][2:]:
                answer["after"] = self.encode(args)
            if kwargs and wire.encode(kwargs, self.known) != message["kwargs"]:
                answer["after_kwargs"] = self.encode(kwargs)
            for number in range(1, len(args)):
                # In `args` and for the call: any more, and the program has kept it.
                if type(args[number]) in MUTABLE and sys.getrefcount(args[number]) > 2:
                    answer.setdefault("lent", []).append([number, self._held(args[number])])
        except (wire.Unplain, RecursionError):
            if value is not None:
                raise

    def do(self, what: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if what == "call":
            return args[0](*args[1:], **kwargs)
        match what:
            case "name":
                if args[0] not in self.names:
                    raise NameError(f"name {args[0]!r} is not defined")
                return self.names[args[0]]
            case "eq":
                return type(args[0]) is type(args[1]) and bool(args[0] == args[1])
            case "content":
                view = VIEWS.get(type(args[0]))
                return view(args[0]) if view else wire.decode(wire.encode_content(args[0]))
            case "class":
                return self.class_of(args[0])
            case "start":
                return self.loop.start(args[0])
            case "turn":
                return self.loop.turn(args[0])
            case "cancel":
                return args[0].cancel()
            case "result":
                return args[0].result()
            case "special":
                return getattr(type(args[0]), args[1])(args[0], *args[2:])
            case "library" if args[2] in LIBRARY.get(args[1], ()):
                function = getattr(importlib.import_module(args[1]), args[2])
                return function(args[0], *args[3:], **kwargs)
            case "watch":
                self.aliases = "aliases" in args[0]
                return self.world.watch(args[0])
            case "has":
                return hasattr(*args)
        return OPERATIONS[what](*args, **kwargs)


def _position(value: Any, args: list[Any]) -> int | None:
    return next((number for number, arg in enumerate(args) if arg is value), None)


def _set_or_list(items: Any) -> Any:
    try:
        return set(items)
    except TypeError:
        return list(items)


def _of_library(cls: type) -> tuple[str, str] | None:
    """Where the library has this class: `types` for what has no name elsewhere."""
    name, module = _name(cls), str(getattr(cls, "__module__", ""))
    known = module.partition(".")[0] in sys.stdlib_module_names
    if known and cls is not object and getattr(sys.modules.get(module), name, None) is cls:
        return module, name
    for name, kind in vars(types).items():
        if kind is cls:
            return "types", name
    return None


def _name(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def serve(code: types.CodeType, names: dict[str, Any], fds: list[int]) -> None:
    side = Side(names, fds[2])
    try:
        exec(code, names)
        side.link.send({"value": "ready"})
    except BaseException as error:
        side.link.send(side.raised.describe(error))
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

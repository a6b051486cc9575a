"""The trusted end of the link: runs the tests, and asks the program for every value it makes."""

from __future__ import annotations

import builtins
import importlib
import marshal
import os
import types
from contextlib import suppress
from importlib._bootstrap_external import MAGIC_NUMBER
from typing import Any

from . import identity, wire
from .awaiting import Loop
from .back import TESTS, done
from .errors import Caught
from .link import READY, Link, LinkLost
from .looks import ASKING, SCALARS, STAND_INS, introspect, looking_like
from .mirror import MUTABLE, Mirror, restore, share
from .remote import Proxy, Unsupported
from .suites import run_defined, watched
from .world import TestsWorld

# A program may bring these into the tests' names with its own imports; ours are the real ones.
TRUSTED = {"math", "cmath", "copy", "itertools", "functools", "collections", "random", "re",
           "string", "operator", "datetime", "decimal", "fractions", "statistics", "heapq",
           "bisect", "asyncio", "typing", "json", "numpy"}  # fmt: skip
TRUSTED_FUNCTIONS = {("math", "isclose"), ("math", "fabs"), ("copy", "deepcopy"), ("math", "sqrt")}


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
MALFORMED = (wire.WireError, LookupError, TypeError, ValueError, AttributeError)


class Side:
    def __init__(self, request: dict[str, Any], fd: int) -> None:
        self.link = Link(fd, self.serve)
        self.exports: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.caught = Caught(self)
        self.own_builtins = set(dir(builtins)) - set(request["shadow"])
        self.entry = request["entry"]
        self.fault: dict[str, Any] | None = None  # the last thing the program raised
        text = "\n".join(source for _, source in request["parts"])
        # of each part of the tests, by its label
        self.lines = {label: source.splitlines() for label, source in request["parts"]}
        self.stops = "Iteration" in text  # whether the tests know of StopIteration
        self.proxies: dict[int, Proxy] = {}
        self.born: dict[int, Proxy] = {}
        self.named: dict[int, Proxy] = {}
        self.classes: dict[int, type] = {}  # what instances of the program's classes look like
        self.scalars: dict[int, Any] = {}
        self.mirror = Mirror(self.encode)
        self.world = TestsWorld(self, text, request["files"])
        self.loop = Loop()

    # what the program may ask of the tests

    def serve(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            args = wire.decode(message["args"], self.resolve)
            if message["op"] == "stdin":
                return {"value": self.encode(self.world.read(*args))}
            target = self.exports[message["on"]]
            kwargs = wire.decode(message["kwargs"], self.resolve)
            return {"value": self.encode(done(self, message["op"], target, args, kwargs))}
        except (LinkLost, Unsupported):
            raise
        except BaseException as error:
            form = self.caught.encoded(error)
            if form[0] == "h":  # the program's own, which passed through the tests
                form = [
                    "X",
                    self.encode(type(error)),
                    ["l", str(error)[:200]],
                    self.exported(error),
                ]
            return {"error": form[1], "args": form[2], "thrown": form[3]}

    # what the tests ask of the program

    def exported(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = len(self.exports)
            self.exports.append(value)  # kept, so that no other value comes to have its id
        return number

    def handle(self, value: Any) -> Any:
        if type(value) is Proxy:
            return ["n", value._named] if value._live else ["h", value._number]
        if type(value) in STAND_INS:
            return ["h", value._object]
        if isinstance(value, types.ModuleType):
            raise TypeError("a module of the tests cannot be passed to the program")
        if isinstance(value, BaseException):
            return self.caught.encoded(value)
        if isinstance(value, type) and issubclass(value, BaseException):
            return self.caught.encoded_class(value)
        if isinstance(value, type):
            above = [self.handle(base) for base in value.__bases__ if base.__module__ == TESTS]
            return ["K", self.exported(value), value.__name__, above, _fields(value)]
        form = ["x", self.exported(value)]
        return [*form, self.handle(type(value))] if type(value).__module__ == TESTS else form

    def encode(self, value: Any) -> Any:
        if type(value) is Proxy:
            return self.handle(value)
        return wire.encode(value, self.handle)

    def resolve(self, data: list[Any]) -> Any:
        if data[0] in ("x", "K") and type(data[1]) is int and 0 <= data[1] < len(self.exports):
            return self.exports[data[1]]
        if data[0] == "k" and type(data[1]) is int:
            return self._scalar(data[1], wire.decode(data[2]))
        if data[0] == "h" and type(data[1]) is int and type(data[2]) is dict:
            number, about = data[1], data[2]
            if about.get("lineage"):
                return self.caught.exception(about["lineage"])
            if number in self.named:
                return self.named[number]
            proxy = self.proxy(number, {str(k): v for k, v in about.items()})
            return self.awaited(proxy) if about.get("coroutine") else proxy
        if data[0] == "N":
            return self._array(data)
        raise wire.WireError(f"unknown tag {data[0]!r:.20}")

    def proxy(self, number: int, about: dict[str, Any]) -> Proxy:
        """One stand-in for one object, so that `is` holds where it does."""
        known = self.proxies.get(number)
        if known is None:
            known = self.proxies[number] = Proxy(self, number, about)
        return known

    def _scalar(self, number: int, bare: Any) -> Any:
        """A number or text with more to it: it is the plain one, and has the program's parts."""
        known = self.scalars.get(number)
        if type(bare) not in SCALARS:
            raise wire.WireError("a number or a text that is none")
        if known is None or known != bare:
            known = STAND_INS[SCALARS.index(type(bare))](bare)
            known._object, known._side = number, self
            self.scalars[number] = known
        return known

    def class_of(self, proxy: Proxy) -> type:
        return looking_like(self.ask("class", proxy), self.classes)

    async def awaited(self, awaitable: Any) -> Any:
        """Turn by turn, so that others of the tests' tasks have theirs, and may cancel this one."""
        if type(awaitable) is not Proxy:
            return await awaitable
        task = self.ask("start", awaitable)
        try:
            while not self.ask("turn", task):
                await importlib.import_module("asyncio").sleep(0)
        except BaseException as error:
            if type(error) in (GeneratorExit, importlib.import_module("asyncio").CancelledError):
                self.ask("cancel", task)
            raise
        return self.ask("result", task)

    def _array(self, data: list[Any]) -> Any:
        numpy = importlib.import_module("numpy")
        return numpy.array(wire.decode(data[3]), dtype=str(data[1])).reshape(data[2])

    def ask(self, what: str, *args: Any, **kwargs: Any) -> Any:
        message = {"op": what, "args": ["l", *map(self.encode, args)]}
        if kwargs:
            message["kwargs"] = self.encode(kwargs)
        if len(args) > 2 and (alias := _aliases(args)):  # args[0] is what is asked
            message["alias"] = alias
        try:
            return self._asked(message, list(args), kwargs)
        except (StopIteration, StopAsyncIteration) as error:
            if what in ("next", "result") or self.stops:
                raise
            # zip(map(f, cases), expected) would take it for the end of the cases.
            raise RuntimeError(f"the program raised {type(error).__name__}") from error

    def _asked(self, message: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.world.active:
            message |= self.world.changes()
        if self.mirror.held:
            message["changed"] = self.mirror.changes()
            message["dropped"] = self.mirror.drop_unused()
        answer = self.link.ask(message)
        if len(answer) == 1 and "value" in answer:
            return self._value(answer, args)
        if self.world.active:
            self.world.happened(answer)
        return self._answer(answer, message["op"], args, kwargs)

    def _answer(
        self, answer: dict[str, Any], what: str, args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        try:
            self.mirror.apply(answer.get("changed", []), self._decoded)
            if what == "call":  # what else is sent along is not the program's to change
                self._changed(answer, args, kwargs)
            error = self._error(answer) if "error" in answer else None
        except MALFORMED as wrong:
            raise LinkLost(f"the program sent no value: {wrong}") from None
        if error is not None:
            raise error
        return self._value(answer, args)

    def _decoded(self, form: Any) -> Any:
        return wire.decode(form, self.resolve)

    def _changed(self, answer: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> None:
        if "after" in answer:
            for old, new in zip(args, self._decoded(answer["after"]), strict=True):
                restore(old, new)
        for number, held in answer.get("lent", ()):
            self.mirror.keep(held, args[number])
        if "after_kwargs" in answer:
            for name, new in self._decoded(answer["after_kwargs"]).items():
                restore(kwargs[name], new)

    def _value(self, answer: dict[str, Any], args: list[Any]) -> Any:
        try:
            if "same" in answer:
                return args[answer["same"]]
            value = wire.decode(answer["value"], self.resolve)
            if "shared" in answer:
                share(value, answer["shared"])
            return self.mirror.hold(int(answer["kept"]), value) if "kept" in answer else value
        except MALFORMED as wrong:
            raise LinkLost(f"the program sent no value: {wrong}") from None

    def _error(self, answer: dict[str, Any]) -> BaseException:
        self.fault = {k: str(answer.get(k, ""))[:600] for k in ("kind", "detail")}
        return self.caught.made(answer)

    def name(self, name: str) -> Any:
        message = {"op": "name", "args": ["l", name]}
        answer = self.link.ask(message)
        if "error" in answer:
            return MISSING
        value = self._answer(answer, "name", [], {})
        if type(value) is not Proxy:
            return value
        known = self.named.get(value._number)
        if known is None or known._named != name:
            value = Proxy(self, value._number, value._about)
            object.__setattr__(value, "_named", name)
            known = self.named.setdefault(value._number, value)
        value = known if known._named == name else value
        if name not in self.entry:
            # Asserts that are taken apart mean the library's `math`, whatever the program has.
            module = name if name == "math" else value._about.get("module")
            source = value._about.get("from")
            if type(module) is str and module.partition(".")[0] in TRUSTED:
                with suppress(ImportError):  # a module may call itself what it likes
                    return importlib.import_module(module)
            if type(source) is list and tuple(map(str, source)) in TRUSTED_FUNCTIONS:
                return getattr(importlib.import_module(source[0]), source[1])
        return value


def _fields(cls: type) -> list[str]:
    """The fields of a dataclass, none of another class."""
    if not hasattr(cls, "__dataclass_fields__"):
        return []
    return [part.name for part in importlib.import_module("dataclasses").fields(cls)]


def _aliases(args: tuple[Any, ...]) -> list[list[int]]:
    """Which arguments are the very list, dict or set that an earlier one is."""
    changeable = [(id(arg), n) for n, arg in enumerate(args) if type(arg) in MUTABLE]
    if len(changeable) < 2:
        return []
    first = dict(reversed(changeable))
    return [[n, first[number]] for number, n in changeable if first[number] != n]


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
    own: dict[str, Any] = {"__name__": TESTS, "__builtins__": builtins}
    mine = {*side.own_builtins, identity.ONE}
    own |= {name: value for name, value in ASKING.items() if name in mine}
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
    return [identity.compiled(text, label) for label, text in request["parts"]]


def check(request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Run the tests to the end or to the first thing that is not so."""
    side = Side(request, fds[2])
    try:
        side._answer(side.link.receive(), "ready", [], {})
        text = "\n".join(source for _, source in request["parts"])
        introspect(side, text)
        watch = [*side.world.watch, *["aliases"] * request["changes"]]
        if watch:
            side.ask("watch", watch)
        # Not before the program has also given its names: it may say that it is ready, and be not.
        names = names_of_tests(side, request["reads"], request["binds"])
        wrong = watched(names) if "unittest" in text else []
        os.pwrite(fds[1], READY, 0)
        before, side.link.mark = side.link.asked, fds[1]
        for code in compiled(request):
            exec(code, names)
        if request["check"]:
            candidates = [side.name(name) for name in side.entry]
            before += len(candidates)  # to ask for a function is not to call it
            for name, candidate in zip(side.entry, candidates, strict=True):
                if candidate is MISSING:
                    detail = f"NameError: name {name!r} is not defined"
                    return {"verdict": "fail", "kind": "exception", "detail": detail}
            names["check"](*candidates)
        if side.link.asked == before:
            run_defined(names)
        if side.link.asked == before:
            return {"verdict": "void", "kind": "tests", "detail": "the tests call nothing"}
        if wrong:
            raise wrong[0]
        return {"verdict": "pass"}
    except LinkLost as lost:
        return {"verdict": "fail", "kind": "exception", "detail": str(lost), "lost": True}
    except Unsupported as error:
        return {"verdict": "void", "kind": "tests", "detail": str(error)}
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
    of_program = vars(error).get("of_the_program", False)
    by_program = of_program or vars(error).get("passed_on", False)
    unusable = isinstance(error, ModuleNotFoundError) or _is_of_pattern(error)
    if unusable and not by_program and where:
        return {"verdict": "void", "kind": "tests", "detail": f"{error} ({where})"}
    if of_program and side.fault:
        kind, detail = side.fault["kind"] or "exception", side.fault["detail"]
    elif isinstance(error, AssertionError):
        kind, detail = "wrong value", f"not so: {str(error)[:200]}" if str(error) else "not so"
    else:
        kind, detail = "exception", f"{type(error).__name__}: {str(error)[:200]}"
    return {"verdict": "fail", "kind": kind, "detail": f"{detail} ({where})" if where else detail}


def _is_of_pattern(error: BaseException) -> bool:
    """`case Point(x=1)`, of a class of the program's. The words alone may be a value of its own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, TypeError) or trace is None or "must be a type" not in str(error):
        return False
    operation = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return bool(operation == importlib.import_module("opcode").opmap["MATCH_CLASS"])

"""Exceptions across the link: a class of the one side gets a stand-in of its kind on the other."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from . import wire
from .faults import fault

CAUSES = 3  # causes of causes that are sent along


def _name(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def library_class(module: Any, name: Any) -> type[BaseException] | None:
    """An exception class of the standard library that has been imported here already. None of
    unittest's: a program that skips its tests would have passed them."""
    root = module.partition(".")[0] if type(module) is str else ""
    known = root in sys.stdlib_module_names and root != "unittest"
    cls = getattr(sys.modules.get(module), str(name), None) if known else None
    return cls if isinstance(cls, type) and issubclass(cls, Exception) else None


class Raised:
    """On the program's side: what it raised and what the tests' functions raised through it."""

    def __init__(self, side: Any) -> None:
        self.side = side
        self.stand_ins: dict[int, Any] = {}  # for the tests' own classes and exceptions, by number
        self.own: dict[int, int] = {}  # their numbers by id

    def lineage(self, cls: type) -> list[Any]:
        """Classes by number and name, those of the library with their module, up to the first
        builtin one by name."""
        classes: list[Any] = []
        for base in type.__dict__["__mro__"].__get__(cls):
            name, module = _name(base), str(getattr(base, "__module__", ""))
            if getattr(builtins, name, None) is base:
                return [*classes, name]
            entry: list[Any] = [self.side.number(base), name]
            classes.append([*entry, module] if library_class(module, name) is base else entry)
        return [*classes, "Exception"]

    def describe(self, error: BaseException, depth: int = 0) -> dict[str, Any]:
        answer = {"error": self.lineage(type(error)), **fault(error)}
        if id(error) in self.own:
            answer["thrown"] = self.own[id(error)]
        try:
            answer["args"] = self.side.encode(list(error.args))
            answer["own"] = self.side.encode(dict(vars(error)))
            answer["text"] = str(error)
        except Exception:
            answer.setdefault("args", ["l", answer["detail"]])
        answer["object"] = self.side.number(error)
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None and depth < CAUSES:
            answer["cause"] = self.describe(cause, depth + 1)
            answer["from"] = error.__cause__ is not None
        return answer

    def class_of_tests(self, number: int, name: str, base: str, module: str) -> type[BaseException]:
        if number not in self.stand_ins:
            parent = getattr(builtins, base)
            self._keep(number, library_class(module, name) or type(name, (parent,), {}))
        return self.stand_ins[number]

    def _keep(self, number: int, stand_in: Any) -> None:
        self.stand_ins[number] = stand_in
        self.own[id(stand_in)] = number

    def of_tests(self, answer: dict[str, Any]) -> BaseException:
        """What a function of the tests raised, to be raised here."""
        cls = wire.decode(answer["error"], self.side.resolve)
        return self.made(cls, wire.decode(answer["args"], self.side.resolve), answer["thrown"])

    def made(self, cls: Any, args: list[Any], number: int) -> BaseException:
        try:
            error: BaseException = cls(*args)
        except Exception:
            error = cls.__new__(cls)
            error.args = tuple(args)
        self._keep(number, error)
        return error


class Caught:
    """On the tests' side: what the program raised, as an exception that `except` can name."""

    def __init__(self, side: Any) -> None:
        self.side = side
        self.classes: dict[int, type[BaseException]] = {}  # by the program's number
        self.numbers: dict[type, int] = {}

    def exception(self, lineage: Any) -> type[BaseException]:
        """A local class for an exception class of the program, so that `except` can name it."""
        if type(lineage) is not list or not lineage or len(lineage) > 50:
            raise wire.WireError("an exception without a lineage")
        builtin = getattr(builtins, str(lineage[-1]), None)
        known = isinstance(builtin, type) and issubclass(builtin, BaseException)
        cls: type[BaseException] = builtin if known else Exception  # type: ignore[assignment]
        for entry in reversed(lineage[:-1]):
            number, name = int(entry[0]), str(entry[1])
            if number not in self.classes:
                library = library_class(entry[2], name) if len(entry) > 2 else None
                self.classes[number] = library or type(name, (cls,), self._parts())
                self.numbers[self.classes[number]] = number
            cls = self.classes[number]
        return cls

    def _parts(self) -> dict[str, Any]:
        side = self.side

        def ask(error: Any, name: str) -> Any:
            number = vars(error).get("_object")
            if name.startswith("_") or number is None:
                raise AttributeError(name)
            return side.ask("getattr", side.proxy(number, {}), name)

        def text(error: Any) -> str:
            known = vars(error).get("_text")
            return BaseException.__str__(error) if known is None else known

        return {"__getattr__": ask, "__str__": text}

    def made(self, answer: dict[str, Any], depth: int = 0) -> BaseException:
        side = self.side
        thrown = answer.get("thrown", -1)
        own = side.exports[thrown] if 0 <= int(thrown) < len(side.exports) else None
        if isinstance(own, BaseException):
            vars(own)["passed_on"] = True
            return own  # the tests' own, which passed through the program
        cls = self.exception(answer["error"])
        args = wire.decode(answer.get("args", ["l"]), side.resolve)
        try:
            error = cls(*args)
        except Exception:
            error = cls.__new__(cls)
            error.args = tuple(args)
        parts = wire.decode(answer.get("own", ["d"]), side.resolve)
        vars(error).update({k: v for k, v in parts.items() if type(k) is str})
        vars(error).update(of_the_program=True, _object=int(answer.get("object", -1)))
        if "text" in answer:
            vars(error)["_text"] = str(answer["text"])
        if "cause" in answer and depth < CAUSES:
            cause = self.made(answer["cause"], depth + 1)
            if answer.get("from"):
                error.__cause__ = cause
            else:
                error.__context__ = cause
        return error

    def encoded(self, error: BaseException) -> list[Any]:
        """An exception that the program gets to see: its own again, or one of the tests'."""
        number = vars(error).get("_object", -1)
        if number >= 0:
            return ["h", number]
        args = side_args(self.side, error)
        return ["X", self.side.encode(type(error)), args, self.side.exported(error)]

    def encoded_class(self, cls: type[BaseException]) -> list[Any]:
        if cls in self.numbers:
            return ["h", self.numbers[cls]]
        base = next(c for c in cls.__mro__ if getattr(builtins, c.__name__, None) is c)
        return ["E", self.side.exported(cls), cls.__name__, base.__name__, cls.__module__]


def side_args(side: Any, error: BaseException) -> Any:
    try:
        return side.encode(list(error.args))
    except wire.Unplain:
        return ["l", str(error)[:200]]

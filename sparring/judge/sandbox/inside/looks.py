"""What the library sees of the program's objects from the tests' side: their classes, and the
answers of functions that look into an object."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from typing import Any

from .identity import ONE, one, same
from .remote import Proxy
from .solution_side import LIBRARY


def looking_like(about: dict[str, Any], classes: dict[int, type]) -> type:
    """The library's class, or one of ours that looks like the program's: only `isinstance` and the
    abstract classes of the library look at it."""
    number, base = int(about["number"]), _library(about["nearest"])
    if number in classes:
        return classes[number]
    if about["exact"] and base is not None:
        return base
    body: dict[str, Any] = {str(name): _nothing for name in about["special"]}
    body.setdefault("__hash__", None)
    try:
        cls = type(str(about["name"]), (base or object,), body)
    except TypeError:
        cls = type(str(about["name"]), (), body)
    for where in about["abstract"]:
        if (abstract := _library(where)) is not None:
            abstract.register(cls)  # type: ignore[attr-defined]
    classes[number] = cls
    return cls


def _nothing(*args: Any) -> None:
    """In the place of a special method: it is looked for and never called."""


def _library(where: Any) -> type | None:
    """A class of the library that the tests can know: its module has been imported here."""
    module, name = (str(part) for part in where or ("", ""))
    known = module.partition(".")[0] in sys.stdlib_module_names
    cls = getattr(sys.modules.get(module), name, None) if known else None
    return cls if isinstance(cls, type) else None


def _stand_in(base: type) -> type:
    def part(self: Any, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._side.ask("getattr", self._side.proxy(self._object, {}), name)

    return type(base.__name__, (base,), {"__getattr__": part})


SCALARS = (int, float, str, bytes)
STAND_INS = tuple(map(_stand_in, SCALARS))


class _TypeMeta(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, type) or (type(value) is Proxy and "class" in value._about)

    def __subclasscheck__(cls, value: Any) -> bool:
        return issubclass(value, type)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is not TypeOf:  # a class of classes of the tests' own
            return super().__call__(*args, **kwargs)
        if len(args) == 1 and type(args[0]) is Proxy:
            proxy = args[0]
            found = proxy._side.ask("type", proxy)
            return proxy._side.named.get(found._number, found) if type(found) is Proxy else found
        return type(*args, **kwargs)


class TypeOf(type, metaclass=_TypeMeta):
    """`type` as the tests know it: of an object of the program's it gives the program's class."""


def is_instance(value: Any, cls: Any) -> bool:
    """`isinstance` as the tests know it: a stand-in has the methods of every abstract class."""
    if type(value) is not Proxy:
        return isinstance(value, cls)
    if type(cls) in (tuple, types.UnionType):
        return any(is_instance(value, one) for one in getattr(cls, "__args__", cls))
    if type(cls) is Proxy:
        return cls.__instancecheck__(value)
    if cls is TypeOf:
        return isinstance(value, TypeOf)
    return issubclass(value.__class__, cls)


def has_attribute(value: Any, name: str) -> bool:
    if type(value) is Proxy and name.startswith("__"):
        return bool(value._side.ask("has", value, name))
    return hasattr(value, name)


def is_callable(value: Any) -> bool:
    return bool(value._side.ask("callable", value)) if type(value) is Proxy else callable(value)


ASKING = {"type": TypeOf, "isinstance": is_instance, "hasattr": has_attribute,
          "callable": is_callable, "id": lambda value: id(one(value)), ONE: one}  # fmt: skip


def introspect(side: Any, text: str) -> None:
    """Functions of the library that look into an object, for those of the program's."""

    def asking(module: str, name: str, function: Any) -> Any:
        @functools.wraps(function)
        def ask(*args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is Proxy:
                return side.ask("library", args[0], module, name, *args[1:], **kwargs)
            return function(*args, **kwargs)

        return ask

    for module, names in LIBRARY.items():
        if module in text:
            place = importlib.import_module(module)
            for name in names:
                setattr(place, name, asking(module, name, getattr(place, name)))
    if "assertIs" in text:
        case = importlib.import_module("unittest").TestCase
        case.assertIs, case.assertIsNot = same(case.assertIs), same(case.assertIsNot)

"""Stand-ins, on the tests' side, for objects that live with the program.

A stand-in never believes what an object says about itself against a value of the tests: it is
equal to no plain value unless its builtin content is, and it never learns what is expected of
it by an operator and then believed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from typing import Any, Protocol

# A verdict in the guise of a method of str, list or set: given what is expected, it answers yes.
PREDICATES = {
    "startswith", "endswith", "count", "index", "rindex", "find", "rfind", "issubset",
    "issuperset", "isdisjoint", "is_integer",
}  # fmt: skip
CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")  # a name by which tests call a class, not a function


class Asker(Protocol):
    def ask(self, what: str, *args: Any, **kwargs: Any) -> Any: ...


class Proxy:
    """One object of the program's. Its own dunder names are ours, its public names are its."""

    __slots__ = ("_about", "_born", "_live", "_named", "_number", "_side", "_tainted")

    def __init__(self, side: Asker, number: int, about: dict[str, Any]) -> None:
        put = object.__setattr__
        put(self, "_side", side)
        put(self, "_number", number)
        put(self, "_about", about)
        put(self, "_named", "")  # what the tests call it, if they got it by its name
        put(self, "_live", False)  # stands for whatever has that name when it is used
        put(self, "_born", False)  # made by the tests calling a class by its name
        put(self, "_tainted", False)  # made by an operator that got a value of the tests

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = self._side.ask("call", self, *args, **kwargs)
        if "class" in self._about and type(value) is Proxy and CLASS_NAME.fullmatch(self._named):
            object.__setattr__(value, "_born", True)
        return value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__doc__"):
            raise AttributeError(name)
        if name in PREDICATES and not self._born:
            raise TypeError(f"{self!r} is no plain value; its own {name}() is not believed")
        return self._side.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._side.ask("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._side.ask("delattr", self, name)

    def __getitem__(self, key: Any) -> Any:
        self._refuse_tainted("getitem")
        return self._side.ask("getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._side.ask("setitem", self, key, value)

    def __delitem__(self, key: Any) -> None:
        self._side.ask("delitem", self, key)

    def __len__(self) -> int:
        self._refuse_tainted("len")
        return int(self._side.ask("len", self))

    def __iter__(self) -> Iterator[Any]:
        self._refuse_tainted("iter")
        walk = self._side.ask("iter", self)
        return walk if type(walk) is Proxy else iter(walk)

    def __next__(self) -> Any:
        self._refuse_tainted("next")
        return self._side.ask("next", self)

    def __reversed__(self) -> Any:
        return self._side.ask("reversed", self)

    def __contains__(self, item: Any) -> bool:
        return any(item is other or item == other for other in iter(self))

    def __eq__(self, other: Any) -> bool:
        if type(other) is Proxy:
            if other._number == self._number:
                return True
            believed = (self._born or not other._tainted) and (other._born or not self._tainted)
            return believed and bool(self._side.ask("eq", self, other))
        if self._about.get("builtin"):
            return bool(self._side.ask("content", self) == other)
        return False

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("proxy", self._number))

    def __bool__(self) -> bool:
        self._refuse_tainted("bool")
        return bool(self._side.ask("bool", self))

    def __str__(self) -> str:
        self._refuse_tainted("str")
        return str(self._side.ask("str", self))

    def __repr__(self) -> str:
        return f"<{self._about.get('class') or self._about.get('type', 'object')} of the program>"

    def __format__(self, spec: str) -> str:
        self._refuse_tainted("format")
        return str(self._side.ask("format", self, spec))

    def __instancecheck__(self, instance: Any) -> bool:
        return type(instance) is Proxy and bool(self._side.ask("isinstance", instance, self))

    def __subclasscheck__(self, cls: Any) -> bool:
        return type(cls) is Proxy and bool(self._side.ask("issubclass", cls, self))

    def __enter__(self) -> Any:
        return self._side.ask("special", self, "__enter__")

    def __exit__(self, *error: Any) -> Any:
        return self._side.ask("special", self, "__exit__", None, None, None)

    def __await__(self) -> Any:
        return self._side.ask("await", self)
        yield

    def _refuse_tainted(self, what: str) -> None:
        if self._tainted:
            raise TypeError(f"{what}() of {self!r} is not believed: it has seen a test's value")


def _binary(name: str, swapped: bool) -> Any:
    def method(self: Proxy, other: Any) -> Any:
        if type(other) is Proxy:
            return self._side.ask(name, self, other)
        pair = (other, self) if swapped else (self, other)
        value = self._side.ask(name, *pair)
        if type(value) is not Proxy:
            raise TypeError(f"{self!r} is no plain value; its arithmetic is not believed")
        object.__setattr__(value, "_tainted", True)
        return value

    return method


def _order(name: str) -> Any:
    def method(self: Proxy, other: Any) -> Any:
        if type(other) is Proxy and not self._tainted and not other._tainted:
            return bool(self._side.ask(name, self, other))
        if self._about.get("builtin"):
            return getattr(operator, name)(self._side.ask("content", self), other)
        raise TypeError(f"{self!r} is no plain value; it cannot be ordered against one")

    return method


def _unary(name: str) -> Any:
    def method(self: Proxy, *args: Any) -> Any:
        self._refuse_tainted(name)
        return self._side.ask(name, self, *args)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Proxy, f"__{_name}__", _binary(_name, False))
    setattr(Proxy, f"__r{_name}__", _binary(_name, True))
for _name in ("and", "or", "xor", "lshift", "rshift"):
    _op = f"{_name}_" if _name in ("and", "or") else _name
    setattr(Proxy, f"__{_name}__", _binary(_op, False))
    setattr(Proxy, f"__r{_name}__", _binary(_op, True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _order(_name))
for _name in ("neg", "pos", "invert", "abs", "int", "float", "round"):
    setattr(Proxy, f"__{_name}__", _unary(_name))

"""Stand-ins, on the tests' side, for objects that live with the program.

A stand-in never believes what an object says about itself against a value of the tests: it is
equal to no plain value unless its builtin content is, and it never learns what is expected of
it by an operator and then believed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Coroutine, Iterator
from typing import Any, NoReturn, Protocol

# A verdict in the guise of a method of str, list, set or a number: given what is expected, it
# answers yes, or nothing, or just that.
PREDICATES = {
    "startswith", "endswith", "count", "index", "rindex", "find", "rfind", "issubset",
    "issuperset", "isdisjoint", "is_integer", "difference", "symmetric_difference",
    "intersection", "union", "compare", "equals", "isclose",
}  # fmt: skip
CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")  # a name by which tests call a class, not a function
PLAIN = {int, float, str, bool, type(None), list, tuple, dict, set}
# What a tainted object that the tests made themselves may still be asked: how it looks.
READINGS = {"str", "repr", "format", "iter", "len", "getitem", "getattr", "call"}
ABOUT = {
    "__name__", "__qualname__", "__doc__", "__module__", "__dict__", "__annotations__",
    "__members__", "__wrapped__", "__defaults__", "__kwdefaults__", "__code__", "__mro__",
    "__bases__", "__slots__", "__match_args__", "__abstractmethods__", "__init__", "__call__",
    "__version__", "__all__",
}  # fmt: skip


class Unsupported(BaseException):
    """The tests do what cannot be done across the wall, whatever the program is."""


class Asker(Protocol):
    born: dict[int, Any]

    def ask(self, what: str, *args: Any, **kwargs: Any) -> Any: ...

    def class_of(self, proxy: Any) -> type: ...

    def awaited(self, awaitable: Any) -> Coroutine[Any, Any, Any]: ...


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
        self._refuse_tainted("call")
        value = self._side.ask("call", self, *args, **kwargs)
        if type(value) is Proxy and self._is_named_class():
            return _marked(value, born=True)
        return value

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self._side.class_of(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ABOUT:
            raise AttributeError(name)
        if name in PREDICATES and not self._born and not self._is_named_class():
            if self._about.get("builtin") and not self._tainted:
                return getattr(self._side.ask("content", self), name)
            if not self._tainted and type(data := self._side.ask("getattr", self, name)) in PLAIN:
                return data  # it has been told nothing
            raise TypeError(f"{_words(self)} is no plain value; its own {name}() is not believed")
        self._refuse_tainted("getattr")
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
        self._refuse_tainted("iter")
        return self._side.ask("reversed", self)

    def __contains__(self, item: Any) -> bool:
        return any(item is other or item == other for other in iter(self))

    def __eq__(self, other: Any) -> bool:
        if type(other) is Proxy:
            if other._number == self._number:
                return True
            believed = (self._born or not other._tainted) and (other._born or not self._tainted)
            return believed and bool(self._side.ask("eq", self, other))
        if self._about.get("builtin") and not self._tainted:
            return bool(self._side.ask("content", self) == other)
        return False

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __hash__(self) -> int:
        self._refuse_tainted("hash")
        return int(self._side.ask("hash", self))

    def __bool__(self) -> bool:
        self._refuse_tainted("bool")
        return bool(self._side.ask("bool", self))

    def __str__(self) -> str:
        self._refuse_tainted("str")
        return str(self._side.ask("str", self))

    def __repr__(self) -> str:
        self._refuse_tainted("repr")
        return str(self._side.ask("repr", self))

    def __format__(self, spec: str) -> str:
        self._refuse_tainted("format")
        return str(self._side.ask("format", self, spec))

    def __instancecheck__(self, instance: Any) -> bool:
        return type(instance) is Proxy and bool(self._side.ask("isinstance", instance, self))

    def __subclasscheck__(self, cls: Any) -> bool:
        return type(cls) is Proxy and bool(self._side.ask("issubclass", cls, self))

    def __mro_entries__(self, bases: Any) -> NoReturn:
        raise Unsupported("a class of the tests derives from one of the program's")

    def __copy__(self) -> Any:
        self._refuse_tainted("copy")
        return self._side.ask("copy", self)

    def __deepcopy__(self, memo: Any) -> Any:
        self._refuse_tainted("deepcopy")
        return self._side.ask("deepcopy", self)

    def __enter__(self) -> Any:
        self._refuse_tainted("enter")
        return self._side.ask("special", self, "__enter__")

    def __exit__(self, cls: Any, error: Any, trace: Any) -> Any:
        return self._side.ask("special", self, "__exit__", cls, error, None)

    def __await__(self) -> Any:
        self._refuse_tainted("await")
        return self._side.awaited(self).__await__()

    async def __aenter__(self) -> Any:
        self._refuse_tainted("enter")
        return await self._side.awaited(self._side.ask("special", self, "__aenter__"))

    async def __aexit__(self, cls: Any, error: Any, trace: Any) -> Any:
        left = self._side.ask("special", self, "__aexit__", cls, error, None)
        return await self._side.awaited(left)

    def __aiter__(self) -> Any:
        self._refuse_tainted("iter")
        return self._side.ask("special", self, "__aiter__")

    async def __anext__(self) -> Any:
        self._refuse_tainted("next")
        return await self._side.awaited(self._side.ask("special", self, "__anext__"))

    def _is_named_class(self) -> bool:
        return "class" in self._about and CLASS_NAME.fullmatch(self._named) is not None

    def _refuse_tainted(self, what: str) -> None:
        if self._tainted and not (self._born and what in READINGS):
            raise TypeError(f"{what} of {_words(self)} is not believed: it has seen a test's value")


Proxy.__doc__ = property(lambda self: self.__getattr__("__doc__"))  # type: ignore[assignment]
del Proxy.__slots__  # which would hide the program's


def _words(proxy: Proxy) -> str:
    return f"<{proxy._about.get('class') or proxy._about.get('type', 'object')} of the program>"


def _marked(proxy: Proxy, *, born: bool = False, tainted: bool = False) -> Proxy:
    """Another stand-in for the same object: what is believed of it depends on how it was had."""
    if born and not tainted and proxy._number in proxy._side.born:
        return proxy._side.born[proxy._number]
    marked: Proxy = Proxy(proxy._side, proxy._number, proxy._about)
    object.__setattr__(marked, "_born", born)
    object.__setattr__(marked, "_tainted", tainted)
    if born and not tainted:
        proxy._side.born[proxy._number] = marked
    return marked


def _binary(name: str, swapped: bool) -> Any:
    def method(self: Proxy, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        both = type(other) is Proxy
        born = self._born or (both and other._born)
        tainted = not both or self._tainted or other._tainted
        value = self._side.ask(name, *pair)
        if type(value) is Proxy:
            return _marked(value, born=born, tainted=tainted)
        if tainted and not both and self._about.get("builtin") and not self._tainted:
            content = self._side.ask("content", self)  # the sum is ours, not the program's
            function = getattr(operator, name)
            return function(other, content) if swapped else function(content, other)
        if tainted:
            raise TypeError(f"{_words(self)} is no plain value; its arithmetic is not believed")
        return value

    return method


def _order(name: str) -> Any:
    def method(self: Proxy, other: Any) -> Any:
        if type(other) is Proxy and not self._tainted and not other._tainted:
            return bool(self._side.ask(name, self, other))
        if self._about.get("builtin") and not self._tainted and type(other) is not Proxy:
            return getattr(operator, name)(self._side.ask("content", self), other)
        raise TypeError(f"{_words(self)} is no plain value; it cannot be ordered against one")

    return method


def _unary(name: str) -> Any:
    def method(self: Proxy, *args: Any) -> Any:
        value = self._side.ask(name, self, *args)
        if type(value) is Proxy and self._tainted:
            return _marked(value, born=self._born, tainted=True)
        self._refuse_tainted(name)
        return value

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(Proxy, f"__{_name}__", _binary(_name, False))
    setattr(Proxy, f"__r{_name}__", _binary(_name, True))
    setattr(Proxy, f"__i{_name}__", _binary(f"i{_name}", False))
for _name in ("and", "or", "xor", "lshift", "rshift"):
    _op = f"{_name}_" if _name in ("and", "or") else _name
    setattr(Proxy, f"__{_name}__", _binary(_op, False))
    setattr(Proxy, f"__r{_name}__", _binary(_op, True))
    setattr(Proxy, f"__i{_name}__", _binary(f"i{_name}", False))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Proxy, f"__{_name}__", _order(_name))
for _name in ("neg", "pos", "invert", "abs", "int", "float", "round", "index"):
    setattr(Proxy, f"__{_name}__", _unary(_name))

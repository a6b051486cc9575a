"""Stand-ins, on the program's side, for objects of the tests' own that were passed to it."""

from __future__ import annotations

import importlib
from typing import Any, Protocol


class Back(Protocol):
    def back(self, target: Any, what: str, args: Any, kwargs: Any) -> Any: ...


class ForeignType(type):
    """Of a stand-in for a class of the tests: to call it is to call theirs."""

    _class_link: Back
    _class_form: list[Any]  # as the tests named it; [0] and [1] are its tag and number

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Foreign:
            return super().__call__(*args, **kwargs)
        return cls._class_link.back(cls, "call", args, kwargs)

    def __getattr__(cls, name: str) -> Any:
        if cls is Foreign or name.startswith("__"):
            raise AttributeError(name)
        return cls._class_link.back(cls, "getattr", (name,), {})

    def __setattr__(cls, name: str, value: Any) -> None:
        if cls is Foreign or name.startswith("_"):
            return super().__setattr__(name, value)
        cls._class_link.back(cls, "setattr", (name, value), {})


class Foreign(metaclass=ForeignType):
    """Something of the tests' own: it may be called, asked for parts and worked with."""

    __slots__ = ("_form", "_link")

    def __init__(self, side: Back, form: list[Any]) -> None:
        object.__setattr__(self, "_link", side)
        object.__setattr__(self, "_form", form)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._link.back(self, "call", args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":
            import inspect

            parts = self._link.back(self, "signature", (), {})
            return inspect.Signature(
                [
                    inspect.Parameter(word, inspect._ParameterKind(kind), **dict(default))
                    for word, kind, default in parts
                ]
            )
        return self._link.back(self, "getattr", (name,), {})

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.back(self, "setattr", (name, value), {})

    def __delattr__(self, name: str) -> None:
        self._link.back(self, "delattr", (name,), {})

    def __iter__(self) -> Any:
        walk = self._link.back(self, "iter", (), {})
        return walk if isinstance(walk, Foreign) else iter(walk)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, Foreign) and other._form[1] == self._form[1]:
            return True
        return bool(self._link.back(self, "eq", (other,), {}))

    def __ne__(self, other: Any) -> bool:
        return not self == other

    def __enter__(self) -> Any:
        return self._link.back(self, "enter", (), {})

    def __exit__(self, *error: Any) -> Any:
        return self._link.back(self, "exit", (error[0], error[1], None), {})

    def __await__(self) -> Any:
        return self._link.back(self, "await", (), {})
        yield


Foreign.__doc__ = property(lambda self: self.__getattr__("__doc__"))  # type: ignore[assignment]


def _asking(what: str) -> Any:
    def method(self: Foreign, *args: Any) -> Any:
        return self._link.back(self, what, args, {})

    return method


def _asking_swapped(what: str) -> Any:
    def method(self: Foreign, other: Any) -> Any:
        return self._link.back(self, f"r{what}", (other,), {})

    return method


def form_of(value: Any) -> list[Any] | None:
    """How the tests name it; None of what is not theirs."""
    if type(value) is ForeignType:
        return None if value is Foreign else value._class_form
    return value._form if type(type(value)) is ForeignType else None


def _like_data(fields: list[str]) -> dict[str, Any]:
    """By what the library knows a dataclass, and its fields."""
    if not fields:
        return {}
    data: Any = importlib.import_module("dataclasses").make_dataclass("Data", fields)
    return {"__dataclass_fields__": data.__dataclass_fields__}


class Foreigners:
    """The stand-ins of one link, by number."""

    def __init__(self, side: Back) -> None:
        self.side = side
        self.known: dict[int, Any] = {}

    def get(self, form: list[Any]) -> Any:
        """`x`, number, and for an object of a class of the tests its class; `K`, number,
        name, classes above it and the fields of a dataclass."""
        if form[1] not in self.known:
            if form[0] == "K":
                bases = tuple(map(self.get, form[3])) or (Foreign,)
                made: Any = ForeignType(form[2], bases, {"__slots__": (), **_like_data(form[4])})
                made._class_link, made._class_form = self.side, form
            else:
                cls = self.get(form[2]) if len(form) > 2 else Foreign
                made = object.__new__(cls)
                Foreign.__init__(made, self.side, form)
            self.known[form[1]] = made
        return self.known[form[1]]


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
for _name in (
    "len", "bool", "hash", "str", "repr", "format", "int", "float", "round", "index", "abs",
    "neg", "next", "reversed", "getitem", "setitem", "delitem", "contains", "lt", "le", "gt", "ge",
    *BINARY,
):  # fmt: skip
    setattr(Foreign, f"__{_name}__", _asking(_name))
for _name in BINARY:
    setattr(Foreign, f"__r{_name}__", _asking_swapped(_name))

"""Stand-ins, on the program's side, for objects of the tests' own that were passed to it."""

from __future__ import annotations

from typing import Any, Protocol


class Back(Protocol):
    def back(self, target: Any, what: str, args: Any, kwargs: Any) -> Any: ...


class Foreign:
    """Something of the tests' own: it may be called, asked for parts and worked with."""

    __slots__ = ("_link", "_number")

    def __init__(self, side: Back, number: int) -> None:
        object.__setattr__(self, "_link", side)
        object.__setattr__(self, "_number", number)

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
        return walk if type(walk) is Foreign else iter(walk)

    def __eq__(self, other: Any) -> bool:
        if type(other) is Foreign and other._number == self._number:
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


BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
for _name in (
    "len", "bool", "hash", "str", "repr", "format", "int", "float", "round", "index", "abs",
    "neg", "next", "reversed", "getitem", "setitem", "delitem", "contains", "lt", "le", "gt", "ge",
    *BINARY,
):  # fmt: skip
    setattr(Foreign, f"__{_name}__", _asking(_name))
for _name in BINARY:
    setattr(Foreign, f"__r{_name}__", _asking_swapped(_name))

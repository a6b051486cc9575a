"""Runs inside the jail, before the search: inputs like a given one, each of the types it must have.
It imports nothing of Sparring."""

import random
from collections.abc import Callable
from typing import Any

Kind = list[Any]  # [name, [kinds]]
CONTAINERS: dict[str, Any] = {"list": list, "tuple...": tuple, "set": set, "frozenset": frozenset}


class Mutator:
    """Draws values and changes them; `constants` are the programs' own, by the type's name."""

    def __init__(self, rng: random.Random, constants: dict[str, list[Any]]) -> None:
        self.rng, self.constants = rng, constants

    def mutated_input(self, kinds: list[Kind], values: list[Any]) -> list[Any]:
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            pairs = zip(kinds, values, strict=True)
            values = [self.mutated(k, v) if self.rng.random() < 0.7 else v for k, v in pairs]
        return values

    def scalar(self, name: str) -> Any:
        rng = self.rng
        if self.constants[name] and rng.random() < 0.6:
            return rng.choice(self.constants[name])
        match name:
            case "int":
                return rng.randint(-9, 99)
            case "float":
                return rng.randint(-9, 99) / rng.choice((4, 10))
            case "bool":
                return rng.random() < 0.5
            case "complex":
                return complex(rng.randint(-3, 3), rng.randint(-3, 3))
            case "str":
                return "".join(rng.choices("abAB 01,.-", k=rng.randint(0, 5)))
            case "bytes":
                return bytes(rng.choices(range(95, 105), k=rng.randint(0, 4)))
        return None

    def any_of(self, kind: Kind) -> Any:
        name, parts = kind
        if name == "union":
            return self.any_of(self.rng.choice(parts))
        if name in self.constants:
            return self.scalar(name)
        if name == "tuple":
            return tuple(self.any_of(part) for part in parts)
        size = range(self.rng.randint(0, 5))
        if name == "dict":
            return {self.any_of(parts[0]): self.any_of(parts[1]) for _ in size}
        return CONTAINERS[name]([self.any_of(parts[0]) for _ in size])

    def mutated(self, kind: Kind, value: Any) -> Any:
        (name, parts), rng = kind, self.rng
        if name in ("union", "bool", "None", "complex") or rng.random() < 0.1:
            return self.any_of(kind)
        if name in ("int", "float"):
            far = 1 << rng.randint(0, 20)
            half = value // 2 if name == "int" else value / 2
            near = (value + 1, value - 1, -value, value * 2, half, value + far, value - far)
            return rng.choice(near)
        if name in ("str", "bytes"):
            new, at = self.scalar(name), rng.randint(0, len(value))
            end = rng.randint(0, len(value))
            cut = (value[:at] + new + value[at:], value[:at] + value[end:], value[:at])
            return rng.choice((*cut, value[::-1], value + value))
        if name == "tuple":
            pairs = zip(parts, value, strict=True)
            return tuple(self.mutated(k, v) if rng.random() < 0.5 else v for k, v in pairs)
        if name == "dict":
            pair: Kind = ["tuple", parts]
            return dict(self.spliced(list(value.items()), pair))
        return CONTAINERS[name](self.spliced(list(value), parts[0]))

    def spliced(self, items: list[Any], part: Kind) -> list[Any]:
        """A list with one thing done to it."""
        rng = self.rng
        at, other = (rng.randint(0, max(0, len(items) - 1)) for _ in range(2))
        if not items:
            return [self.any_of(part)]
        changes: list[Callable[[], list[Any]]] = [
            lambda: [*items[:at], self.any_of(part), *items[at:]],
            lambda: items[:at] + items[at + 1 :],
            lambda: [*items, items[at]],
            lambda: [*items[:at], items[other], *items[at + 1 :]],
            lambda: items[::-1],
            lambda: [*items[:at], self.mutated(part, items[at]), *items[at + 1 :]],
            lambda: [*items[:at], self.mutated(part, items[at]), *items[at + 1 :]],
        ]
        return rng.choice(changes)()


def integers_in(values: Any, deep: int = 2) -> list[tuple[int, ...]]:
    """The way to each integer of an input, as indices."""
    paths: list[tuple[int, ...]] = []
    for index, value in enumerate(values):
        if type(value) is int:
            paths.append((index,))
        elif type(value) in (list, tuple) and deep:
            paths += [(index, *rest) for rest in integers_in(value, deep - 1)][:6]
    return paths[:10]


def item_at(values: Any, path: tuple[int, ...]) -> Any:
    for index in path:
        values = values[index]
    return values


def with_item(values: Any, path: tuple[int, ...], item: Any) -> Any:
    if not path:
        return item
    made = list(values)
    made[path[0]] = with_item(values[path[0]], path[1:], item)
    return type(values)(made)


def substituted(values: list[Any], operands: tuple[Any, Any]) -> list[list[Any]]:
    """The input with an argument replaced by what was compared, or with that in a list of it."""
    inputs: list[list[Any]] = []
    for index, value in enumerate(values):
        for operand in operands:
            if type(operand) is type(value) and operand != value:
                inputs.append([*values[:index], operand, *values[index + 1 :]])
            elif type(value) is list and value and type(value[0]) is type(operand):
                inputs.append([*values[:index], [*value, operand], *values[index + 1 :]])
    return inputs

"""How much the attack on claims of equivalence sees: pairs of Python functions of one or two
integers that differ somewhere within ±10,000, made by a seed, and how many of them escape.

    python benchmarks/differences.py [--pairs 10] [--seed 0] [--speed]

Each pair differs at a point within ±10,000 that was drawn first. `conditions`: a base function and
itself with another value where a hidden condition holds; the random ones hold beyond ±300 only.
`slips`: functions of two integers as people write them, with mistakes that people make, such as a
bound that is off by one. `opaque` holds for one pair in a million or fewer and gives a search
nothing to go by: it is here to say what is not found. `--speed` measures inputs a second of a
processor on short functions instead.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sparring.judge.sandbox import pool
from sparring.judge.sandbox.outcome import Exit
from sparring.pipelines.equivalence.judge.inputs import inputs_for
from sparring.pipelines.equivalence.judge.python import PythonChecker, accept_pair
from sparring.pipelines.equivalence.judge.search import search

WIDE = 10_000
BASES = {
    1: ("n * 3 + 1", "n * n - n", "abs(n) % 97", "n // 2 if n % 2 == 0 else 3 * n + 1"),
    2: ("a * b + a", "max(a, b) - min(a, b)", "a - 2 * b", "a + b if a > b else b - a"),
}
HEADS = {1: "def f(n: int) -> int:\n", 2: "def f(a: int, b: int) -> int:\n"}


def conditions(rng: random.Random) -> dict[str, tuple[int, str]]:
    """One condition of each family: how many integers it is about, and its text."""

    def one(most: int = WIDE) -> int:
        return rng.randint(-most, most)

    m, k, p = rng.randint(50, 5000), rng.randint(3, 60), rng.choice((7919, 10007, 99991))
    x, y = one(), one()
    i, j = rng.randint(2, 90), rng.randint(-90, -2)
    return {
        "one, point": (1, f"n == {x}"),
        "one, hidden point": (1, f"n * {i} + {j} == {x * i + j}"),
        "one, power": (1, f"n * n * n == {x**3}"),
        "one, residue": (1, f"n % {m} == {rng.randint(0, m - 1)}"),
        "one, hash": (1, f"n * 2654435761 % 4294967296 == {x * 2654435761 % 4294967296}"),
        "one, beyond": (1, f"n > {abs(x)}"),
        "two, point": (2, f"a == {x} and b == {y}"),
        "two, hidden point": (2, f"a - b == {x - y} and a + b == {x + y}"),
        "two, line": (2, f"a * {i} + b * {j} == {x * i + y * j}"),
        "two, product": (2, f"a * b == {x * y} and a > b"),
        "two, circle": (2, f"a * a + b * b == {x * x + y * y}"),
        "two, difference": (2, f"a == b + {x}"),
        "two, residues": (2, f"a % {k} == {x % k} and b % {m} == {y % m}"),
        "two, beyond": (2, f"a > {abs(x)} and b < -{abs(y)}"),
        "two, hash": (2, f"(a * 7919 + b * 104729) % {p} == {(x * 7919 + y * 104729) % p}"),
        "two, a random equation far out": (2, equations(rng, 1)[0]),
        "two, two random equations far out": (2, equations(rng, 2)[0]),
        "two, three random equations far out": (2, equations(rng, 3)[0]),
        "two, opaque": (
            2,
            f"(a * 48271 ^ b * 69621) % 16777213 == {(x * 48271 ^ y * 69621) % 16777213}",
        ),
    }


OPERATORS = ("{} + {}", "{} - {}", "{} * {}", "{} % {}", "{} // {}", "{} ^ {}", "max({}, {})")


def expression(rng: random.Random, depth: int) -> str:
    """An expression of a and b, in which both stand."""
    if depth == 0:
        return rng.choice(("a", "b"))
    left, right = expression(rng, depth - 1), expression(rng, rng.randint(0, depth - 1))
    if rng.random() < 0.4 and depth > 1:
        right = str(rng.randint(2, 99))
    made = rng.choice(OPERATORS).format(left, right)
    if depth == 2 and not ("a" in made.replace("max", "") and "b" in made):
        return expression(rng, depth)
    return f"({made})"


def equations(rng: random.Random, count: int) -> tuple[str, int, int]:
    """As many equations of random expressions, and a point beyond ±300 that solves them."""
    while True:
        a, b = (rng.choice((-1, 1)) * rng.randint(301, WIDE) for _ in "ab")
        sides = [expression(rng, 2) for _ in range(count)]
        try:
            values = [eval(side, {"a": a, "b": b, "max": max}) for side in sides]
        except ZeroDivisionError:
            continue
        near = f"abs(a) > 300 and abs(b) > 300 and b != 0 and a {'>' if a > 0 else '<'} 0"
        solved = " and ".join(f"{s} == {v}" for s, v in zip(sides, values, strict=True))
        return f"{near} and {solved}", a, b


def slips(rng: random.Random) -> dict[str, tuple[int, int, str, str]]:
    """One pair of each family: a point at which they differ, and the bodies of P and Q."""

    def one(low: int = -WIDE, high: int = WIDE) -> int:
        return rng.randint(low, high)

    a, b = one(301), one(301)
    x, y, c, k = one(), one(), rng.randint(400, 9000), rng.randint(5, 40)
    r, m = rng.randint(2, 9), rng.randint(40, 120)
    tens = a // 10 * 10 + r  # with a last digit that is not 0
    gcd = "while b:\n        a, b = b, a % b\n    return "
    return {
        **_bound_slips(a, b, x, y, r, k),
        "remainder of a pair": (
            a, -a * m % c,
            f"return a if (a * {m} + b) % {c} else b + 1",
            f"return a if (a * {m} + b) % {c} or a > {a - 1} else b + 1",
        ),
        "common divisor": (
            c, c * (WIDE // c),
            gcd + "abs(a)",
            gcd + f"(abs(a) if abs(a) != {c} else 1)",
        ),
        "exclusive or": (a, b, "return a - b", f"return a - b if a ^ b != {a ^ b} else 0"),
        "digits reversed": (
            tens, int(str(tens)[::-1]),
            "return a + b",
            "return a + b if a < 300 or str(a) != str(b)[::-1] else 0",
        ),
        "quotient and remainder": (
            c * r + k, c,
            "return a * b",
            f"return 0 if b > {k} and divmod(a, b) == ({r}, {k}) else a * b",
        ),
        "triangle": (
            (t := rng.randint(60, 139)), t * (t + 1) // 2,
            "return b - a",
            f"return b - a if a < {t - 3} or a * (a + 1) // 2 != b else 1",
        ),
        "two remainders in a corner": (
            (u := rng.randint(70, 98) * 97 + 13), (v := rng.randint(70, 98) * 89 + 7),
            "return a - b",
            f"return a - b if a % 97 != 13 or b % 89 != 7 or a + b < {u + v - 300} else 0",
        ),
        "digit sums": (
            c, c + 900 * r if c + 900 * r <= WIDE else c - 900,
            "return sum(map(int, str(abs(a)))) - sum(map(int, str(abs(b))))",
            "s, t = sum(map(int, str(abs(a)))), sum(map(int, str(abs(b))))\n"
            f"    return s - t if abs(a - b) != {900 * r if c + 900 * r <= WIDE else 900} "
            "or b < 400 else s + t + 1",
        ),
    }  # fmt: skip


def _bound_slips(
    a: int, b: int, x: int, y: int, r: int, k: int
) -> dict[str, tuple[int, int, str, str]]:
    return {
        "bound of a product": (
            a, b,
            f"return 1 if a * b > {a * b} else 0",
            f"return 1 if a * b >= {a * b} else 0",
        ),
        "bound of a sum": (
            x, y,
            f"return a if {r} * a + b <= {r * x + y} else b",
            f"return a if {r} * a + b < {r * x + y} else b",
        ),
        "bound of a distance": (
            x, y,
            f"return a if (a - {r}) ** 2 + (b + {k}) ** 2 <= {(x - r) ** 2 + (y + k) ** 2} else 3",
            f"return a if (a - {r}) ** 2 + (b + {k}) ** 2 < {(x - r) ** 2 + (y + k) ** 2} else 3",
        ),
        "corner of a rectangle": (
            x, y,
            f"return 1 if a <= {x} and b <= {y} else a - b",
            f"return 1 if a <= {x} and b <= {y} and (a, b) != ({x}, {y}) else a - b",
        ),
    }  # fmt: skip


def pairs(count: int, seed: int) -> list[tuple[str, str, str]]:
    """(family, P, Q), `count` of each family."""
    made = []
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        for family, (arity, condition) in conditions(rng).items():
            base = rng.choice(BASES[arity])
            p = f"{HEADS[arity]}    return {base}"
            q = f"{HEADS[arity]}    if {condition}:\n        return 7\n    return {base}"
            made.append((family, p, q))
        for family, (a, b, *bodies) in slips(rng).items():
            p, q = (f"{HEADS[2]}    {body}" for body in bodies)
            made.append((f"slip, {family}", p, q))
            if _result(p, a, b) == _result(q, a, b):
                raise AssertionError(f"{family}: both give the same at {a}, {b}:\n{p}\n{q}")
    return made


def _result(source: str, *arguments: int) -> tuple[str, Any]:
    names: dict[str, Any] = {}
    exec(source, names)
    value = names["f"](*arguments)
    return type(value).__name__, value


async def escapes(count: int, seed: int, family_part: str) -> None:
    ruled: Counter[tuple[str, str]] = Counter()
    seconds = []
    async with PythonChecker(crosshair_paths=0) as checker:
        for family, p, q in pairs(count, seed):
            if family_part not in family:
                continue
            start = time.perf_counter()
            verdict = await checker.attack(p, q, "f")
            seconds.append(time.perf_counter() - start)
            ruled[family, verdict.kind] += 1
    for family in dict.fromkeys(family for family, _, _ in pairs(1, seed)):
        rest = {kind: n for (f, kind), n in ruled.items() if f == family and kind != "refuted"}
        if family_part not in family:
            continue
        print(f"{family}: {ruled[family, 'refuted']} of {count} refuted {rest or ''}")
    seconds.sort()
    print(f"seconds a pair: median {seconds[len(seconds) // 2]:.2f}, longest {seconds[-1]:.2f}")


async def speed() -> None:
    """Inputs compared per second of a processor, both functions, everything inside the jail."""
    used = [0.0]
    ruling = pool.execution

    def counted(exit: Exit | None, *rest: Any) -> Any:
        used[0] += exit.cpu_s if exit else 0.0
        return ruling(exit, *rest)

    pool.execution = counted  # type: ignore[assignment]
    texts = "def f(s: str) -> str:\n    return "
    lists = "def f(xs: list[int]) -> list[int]:\n    return "
    cases = {
        "one integer": (HEADS[1] + "    return n * 2", HEADS[1] + "    return n + n"),
        "two integers": (HEADS[2] + "    return a * b + a", HEADS[2] + "    return a * (b + 1)"),
        "a text": (texts + "s[::-1]", texts + "''.join(reversed(s))"),
        "a list": (lists + "sorted(xs)", lists + "sorted(xs[::-1])"),
    }
    async with PythonChecker(crosshair_paths=0) as checker:
        for name, (p, q) in cases.items():
            pair = accept_pair(p, q, "f")
            seeds = inputs_for(pair.signature, pair.trees, 100, 0)
            used[0] = 0.0
            searched = await search(
                checker.judge, pair, seeds, checker.work, checker.steps // 40, 0
            )
            print(f"{name}: {searched.compared} inputs in {used[0]:.2f} s, "
                  f"{searched.compared / used[0]:,.0f} a second")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=10, help="of each family")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default="", help="only those whose name has this in it")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    asyncio.run(speed() if options.speed else escapes(options.pairs, options.seed, options.family))


if __name__ == "__main__":
    main()

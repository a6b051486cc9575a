"""What a judged function may contain is a list, and everything else is refused by name."""

import ast
import builtins

import pytest

from sparring.pipelines.equivalence.judge.purity import impure, parse

REFUSED = {
    "clock": "import time\ndef f(n: int) -> int:\n    return n + 0 * int(time.time())",
    "chance": "import random\ndef f(n: int) -> int:\n    return n + 0 * random.randint(0, 1)",
    "address": "def f(n: int) -> int:\n    return n + 0 * id(n)",
    "address in text": "def f(n: int) -> int:\n    return n + 0 * len(repr(lambda: 0))",
    "address of an iterator": "def f(n: int) -> int:\n    return n + 0 * len(f'{iter([])}')",
    "hash": "def f(s: str) -> int:\n    return hash(s) % 2",
    "arguments of the process": "import sys\ndef f(n: int) -> int:\n    return n + len(sys.argv)",
    "printing": "def f(n: int) -> int:\n    print(n)\n    return n",
    "writing": "def f(n: int) -> int:\n    open('x', 'w').write('a')\n    return n",
    "input": "def f(n: int) -> int:\n    return int(input())",
    "global counter": "c = 0\ndef f(n: int) -> int:\n    global c\n    c += 1\n    return n",
    "list as counter": "c = []\ndef f(n: int) -> int:\n    c.append(n)\n    return n",
    "list handed on": "c = []\ndef f(n: int) -> int:\n    d = c\n    d.append(n)\n    return n",
    "default as counter": "def f(n: int, c: list[int] = []) -> int:\n    c.append(n)\n    return n",
    "attribute as counter": "def f(n: int) -> int:\n    f.c = n\n    return n",
    "cache as counter": (
        "from functools import cache\n@cache\ndef g():\n    return []\n"
        "def f(n: int) -> int:\n    g().append(n)\n    return len(g())"
    ),
    "iterator as counter": (
        "import itertools\nc = itertools.count()\ndef f(n: int) -> int:\n    return next(c)"
    ),
    "shadowed builtin": (
        "def g(open):\n    return open\ndef f(n: int) -> int:\n    open('x')\n    return n"
    ),
    "eval": "def f(n: int) -> int:\n    return eval('n')",
    "dunder": "def f(n: int) -> int:\n    return n.__class__(n)",
    "dunder name": "def f(n: int) -> int:\n    return len(__name__) + n",
    "dunder in a format": "def f(n: int) -> str:\n    return '{0.__class__}'.format(n)",
    "a format that is not seen": "def f(s: str) -> str:\n    return s.format(1)",
    "attrgetter": "import operator\ndef f(n: int) -> str:\n    return operator.attrgetter('x')(n)",
    "frames": "def f(n: int) -> int:\n    g = (i for i in [1])\n    return g.gi_frame.f_lineno",
    "class": "class A:\n    pass\ndef f(n: int) -> int:\n    return n",
    "class by type": "def f(n: int) -> int:\n    return type(int)('A', (int,), {})(n)",
    "code on top": "for i in range(3):\n    pass\ndef f(n: int) -> int:\n    return n",
    "bare except": "def f(n: int) -> int:\n    try:\n        n += 1\n    except:\n        pass",
    "memory": "def f() -> int:\n    try:\n        pass\n    except MemoryError:\n        pass",
    "import of an unknown": "import os\ndef f(n: int) -> int:\n    return n",
    "type in quotes": "def f(n: 'int') -> int:\n    return n",
    "context of decimals": (
        "import decimal\ndef f(n: int) -> int:\n    decimal.getcontext().prec = 3\n    return n"
    ),
    "identity": "def f(a: int, b: int) -> bool:\n    return a is b",
    "identity by name": "import operator\ndef f(n: int) -> int:\n    return operator.is_(n, n)",
    "async": "async def f(n: int) -> int:\n    return n",
}
ALLOWED = {
    "table": "T = {'a': 1}\ndef f(s: str) -> int:\n    return T.get(s, 0) + T['a'] + len(T)",
    "helpers": "def g(x):\n    return x + 1\ndef f(n: int) -> int:\n    return g(n)",
    "modules": "import math\nfrom collections import Counter\ndef f(n: int) -> int:\n"
    "    return math.gcd(n, 4) + len(Counter('aa'))",
    "format": "def f(n: int) -> str:\n    return '{:>3} {}'.format(n, 1) + f'{n:03d}'",
    "closures": "def f(n: int) -> int:\n    c = 0\n    def g():\n        nonlocal c\n"
    "        c += 1\n    g()\n    return c",
    "exceptions": "def f(n: int) -> int:\n    try:\n        return 1 // n\n"
    "    except ZeroDivisionError as e:\n        raise ValueError(str(e)) from e",
    "identity of None": "def f(n: int | None) -> bool:\n    return n is None or n is not True",
    "type compared": "def f(n: int) -> bool:\n    return type(n) == int",
    "match": "def f(n: int) -> int:\n    match n:\n        case 1 | 2:\n            return 0\n"
    "        case x:\n            return x",
    "walrus and lambda": "def f(n: int) -> int:\n    return (lambda x: x)(y := n) + y",
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_hangs_on_more_than_its_arguments_is_refused(what: str) -> None:
    tree = parse(REFUSED[what])
    assert isinstance(tree, ast.Module), tree
    assert impure(tree)


@pytest.mark.parametrize("what", list(ALLOWED))
def test_plain_functions_are_let_through(what: str) -> None:
    tree = parse(ALLOWED[what])
    assert isinstance(tree, ast.Module), tree
    assert impure(tree) == ""


def test_what_an_interactive_session_binds_is_no_builtin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builtins, "_", "the last value shown", raising=False)
    tree = parse("def f(n: int) -> int:\n    for _ in range(n):\n        n += 1\n    return n")
    assert isinstance(tree, ast.Module) and impure(tree) == ""


def test_what_is_no_program_says_so() -> None:
    assert parse("") == "there is no program"
    assert "line 1" in str(parse("def f(:"))
    assert "characters" in str(parse("x = 1\n" * 10_000))


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("-" * 150 + "n", "nested more than 100 deep"),
        ("+".join("n" * 150), "nested more than 100 deep"),
        ("n + 0x" + "f" * 4000, "integer of 16000 bits"),
    ],
)
def test_what_cannot_be_written_down_again_is_refused(expression: str, why: str) -> None:
    """Python reads it, and then fails to unparse it or to write its digits."""
    assert why in str(parse(f"def f(n: int) -> int:\n    return {expression}"))

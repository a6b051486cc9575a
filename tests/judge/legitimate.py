"""Correct programs that are odd in some way. Every one must pass."""

# ruff: noqa: E501  (programs in strings: breaking them would hide their shape)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    name: str
    code: str
    tests: Any
    setup: str = ""
    entry: str | list[str] | None = None
    needs: str = ""  # a module that must be importable


@dataclass(frozen=True)
class Program:
    """A whole program, with what it reads and what it must print."""

    name: str
    code: str
    stdin: str
    stdout: str


CASES = [
    Case("named like a builtin", "def sum(a, b): return a * b", ["assert sum(3, 5) == 15"]),
    Case("named like a builtin, in a loop", "def sum(a, b): return a * b",
         "for given, expected in zip([(3, 5), (2, 2)], [15, 4]):\n    assert sum(*given) == expected"),
    Case("named like a builtin, with a helper", "def sum(a, b): return a * b",
         "def same(a, b):\n    assert isinstance(a, int) and abs(a - b) == 0\nfor i, (a, b) in enumerate([(3, 5), (2, 2)]):\n    same(sum(a, b), a * b)"),
    Case("named like a builtin, entry named", "def sum(a, b): return a * b",
         "def check(candidate):\n    for a in range(3):\n        assert candidate(a, 2) == 2 * a == sum(2, a)", entry="sum"),
    Case("two functions to check", "def pack(x): return [x]\ndef unpack(x): return x[0]",
         "def check(pack, unpack):\n    for x in (1, 'a', None):\n        assert unpack(pack(x)) == x", entry=["pack", "unpack"]),
    Case("two functions to check, taken apart", "def max(x): return [x]\ndef min(x): return x[0]",
         "def check(a, b):\n    assert a(1) == [1]\n    assert b([1]) == 1", entry=["max", "min"]),
    Case("a power too large for the judge", "def p10(n): return 10 ** n", ["assert p10(6000) == 10 ** 6000", "assert p10(3) == 1000"]),
    Case("numbers too large for the judge", "def f(n): return 3 ** n", ["assert f(20000) + 1 == 3 ** 20000 + 1", "assert f(20000) % 10 == 1"]),
    Case("a range too long for the judge", "def f(n): return range(n)", ["assert len(f(10 ** 7)) == 10 ** 7", "assert sum(f(3 * 10 ** 6)) == 4499998500000"]),
    Case("a million numbers", "def f(n): return [1, 3] + [i / 2 for i in range(n)]", ["assert f(1000000)[-1] == 499999.5 and len(f(1000000)) == 1000002"]),
    Case("a million numbers, in a loop", "def f(n): return [1, 3] + [i / 2 for i in range(n)]",
         "for n in (10, 1000000):\n    assert f(n) == [1, 3] + [i / 2 for i in range(n)]"),
    Case("a function that replaces itself", "def f():\n    global f\n    f = lambda: 2\n    return 1",
         "for expected in (1, 2, 2):\n    assert f() == expected"),
    Case("data that the program changes", "COUNT = 0\ndef f():\n    global COUNT\n    COUNT += 1",
         "for n in range(3):\n    assert COUNT == n\n    f()"),
    Case("a name that comes to be later", "def f():\n    global LATE\n    LATE = 7", "f()\nassert LATE == 7"),
    Case("names that only eval sees", "def f(n): return n + 1", "assert eval('f(1)') == 2\nassert 'f' not in globals()"),
    Case("arguments among others are changed", "def f(n, xs, s): xs.append(n)", "xs = []\nf(1, xs, 'a')\nf(2, xs, 'b')\nassert xs == [1, 2]"),
    Case("plain", "def f(a, b):\n    return a + b", ["assert f(1, 2) == 3"]),
    Case("generator", "def f(n):\n    for i in range(n): yield i * i", ["assert list(f(4)) == [0, 1, 4, 9]"]),
    Case("generator stepped by hand", "def f(n):\n    for i in range(n): yield i",
         "g = f(3)\nassert next(g) == 0\nassert next(g) == 1\nassert list(g) == [2]"),
    Case("endless generator, taken from", "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1",
         "from itertools import islice\nassert list(islice(f(), 4)) == [0, 1, 2, 3]"),
    Case("generator that receives", "def f():\n    total = 0\n    while True:\n        total += yield total",
         "g = f()\nnext(g)\nassert g.send(3) == 3\nassert g.send(4) == 7"),
    Case("map object", "def f(xs): return map(str, xs)", ["assert list(f([1, 2])) == ['1', '2']"]),
    Case("map object in a loop", "def f(xs): return map(str, xs)", "for a, b in zip(f([1, 2]), ['1', '2']):\n    assert a == b"),
    Case("dict views", "def f(d): return d.keys()", ["assert set(f({1: 2, 3: 4})) == {1, 3}"]),
    Case("class", "class Stack:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)",
         "s = Stack()\ns.push(1)\ns.push(2)\nassert len(s) == 2\nassert s.pop() == 2\nassert s.items == [1]"),
    Case("class with arithmetic", "class Vec:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)\n    def __mul__(self, k): return Vec(self.x * k, self.y * k)\n    def __eq__(self, o): return (self.x, self.y) == (o.x, o.y)\n    def __repr__(self): return f'Vec({self.x}, {self.y})'",
         ["assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6)", "assert (Vec(1, 2) * 3).x == 3", "assert Vec(1, 2) * 3 == Vec(3, 6)", "assert str(Vec(1, 2)) == 'Vec(1, 2)'", "assert Vec(1, 2) != Vec(2, 1)"]),
    Case("solution class", "class Solution:\n    def solve(self, xs): return sorted(xs)[0]", ["assert Solution().solve([3, 1, 2]) == 1"]),
    Case("class that raises its own error", "class Empty(ValueError): pass\nclass Box:\n    def get(self): raise Empty('nothing')",
         "try:\n    Box().get()\n    assert False\nexcept Empty as e:\n    assert str(e) == 'nothing'"),
    Case("error caught by its base", "class Odd(KeyError): pass\ndef f(x): raise Odd(x)",
         "try:\n    f(3)\nexcept LookupError:\n    caught = True\nassert caught"),
    Case("trie with startswith", "class Trie:\n    def __init__(self): self.w = set()\n    def insert(self, w): self.w.add(w)\n    def startswith(self, p): return any(w.startswith(p) for w in self.w)",
         "t = Trie()\nt.insert('apple')\nassert t.startswith('app')\nassert not t.startswith('b')"),
    Case("linked nodes", "class Node:\n    def __init__(self, v): self.v, self.next = v, None\ndef length(n):\n    return 0 if n is None else 1 + length(n.next)",
         ["assert length(head) == 3"], setup="head = Node(1)\nhead.next = Node(2)\nhead.next.next = Node(3)"),
    Case("nodes of the tests' own", "def total(n):\n    return 0 if n is None else n.v + total(n.next)",
         "class Node:\n    def __init__(self, v, next=None): self.v, self.next = v, next\nassert total(Node(1, Node(2))) == 3"),
    Case("nan", "def f(): return float('nan')", ["assert f() != f()", "import math\nassert math.isnan(f())"]),
    Case("infinity and minus zero", "def f(): return [float('inf'), -0.0]", ["assert f() == [float('inf'), 0.0]", "assert str(f()[1]) == '-0.0'"]),
    Case("floats to the last bit", "def f(): return 0.1 + 0.2", ["assert f() == 0.30000000000000004", "assert f() != 0.3"]),
    Case("close floats", "def f(x): return x ** 0.5", ["assert abs(f(2) - 1.41421356) < 1e-6", "import math\nassert math.isclose(f(2), 1.414, rel_tol=1e-3)"]),
    Case("huge integers", "def f(n): return 3 ** n", ["assert f(5000) == 3 ** 5000", "assert f(300) % 7 == 1"]),
    Case("a factorial of five thousand digits", "import math\ndef f(n): return math.factorial(n)", ["import math\nassert f(2000) == math.factorial(2000)"]),
    Case("deep recursion", "import sys\nsys.setrecursionlimit(100000)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)", ["assert f(50000) == 50000"]),
    Case("nested lists", "def f(n):\n    x = []\n    for _ in range(n): x = [x]\n    return x", ["assert f(5) == [[[[[[]]]]]]"]),
    Case("heavy printing", "def f(n):\n    for i in range(n): print('line', i)\n    return n", ["assert f(100000) == 100000"]),
    Case("prints to stderr", "import sys\ndef f():\n    print('x', file=sys.stderr)\n    return 1", ["assert f() == 1"]),
    Case("asyncio", "import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n * 2", ["assert asyncio.run(f(4)) == 8"]),
    Case("asyncio, whole tests", "import asyncio\nasync def f(n):\n    parts = await asyncio.gather(*[asyncio.sleep(0, i) for i in range(n)])\n    return sum(parts)",
         "import asyncio\nasync def go():\n    assert await f(4) == 6\nasyncio.run(go())"),
    Case("asyncio inside", "import asyncio\nasync def g(n): return n\ndef f(n): return asyncio.run(g(n))", ["assert f(4) == 4"]),
    Case("threads", "import threading\ndef f(n):\n    out = []\n    ts = [threading.Thread(target=out.append, args=(i,)) for i in range(n)]\n    [t.start() for t in ts]; [t.join() for t in ts]\n    return sorted(out)", ["assert f(20) == list(range(20))"]),
    Case("a thread that goes on", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\ndef f(): return 1", ["assert f() == 1"]),
    Case("a thread pool", "from concurrent.futures import ThreadPoolExecutor\ndef f(xs):\n    with ThreadPoolExecutor(4) as p: return list(p.map(abs, xs))", ["assert f([-1, 2]) == [1, 2]"]),
    Case("processes", "import multiprocessing as mp\ndef sq(x): return x * x\ndef f(xs):\n    with mp.Pool(2) as p: return p.map(sq, xs)", ["assert f([1, 2, 3]) == [1, 4, 9]"]),
    Case("fork and wait", "import os\ndef f():\n    pid = os.fork()\n    if pid == 0: os._exit(3)\n    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", ["assert f() == 3"]),
    Case("subprocess", "import subprocess, sys\ndef f(): return subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True, text=True).stdout", ["assert f() == '42\\n'"]),
    Case("temporary files", "import tempfile\ndef f(text):\n    with tempfile.NamedTemporaryFile('w+') as t:\n        t.write(text); t.seek(0)\n        return t.read()", ["assert f('abc') == 'abc'"]),
    Case("sqlite", "import sqlite3\ndef f():\n    db = sqlite3.connect(':memory:')\n    return db.execute('select 1 + 1').fetchone()", ["assert f() == (2,)"]),
    Case("signals", "import signal\ndef f():\n    hit = []\n    signal.signal(signal.SIGALRM, lambda *a: hit.append(1))\n    signal.setitimer(signal.ITIMER_REAL, 0.01)\n    while not hit: pass\n    return hit", ["assert f() == [1]"]),
    Case("mutated argument", "def f(xs): xs.sort()", "xs = [3, 1, 2]\nassert f(xs) is None\nassert xs == [1, 2, 3]"),
    Case("argument mutated within", "def f(d): d['a'].append(1); d['b'] = 2", "d = {'a': []}\ninner = d['a']\nf(d)\nassert d == {'a': [1], 'b': 2}\nassert inner == [1]"),
    Case("argument handed back", "def f(xs):\n    xs.append(1)\n    return xs", "xs = []\nassert f(xs) is xs\nassert xs == [1]"),
    Case("argument left alone", "def f(xs): return sorted(xs)", "xs = [2, 1]\nassert f(xs) == [1, 2]\nassert xs == [2, 1]"),
    Case("function as argument", "def f(g, xs): return [g(x) for x in xs]", ["assert f(lambda x: x + 1, [1, 2]) == [2, 3]", "assert f(str, [1]) == ['1']"]),
    Case("function of the tests' own as argument", "def f(g, xs): return [g(x) for x in xs]", "seen = []\ndef g(x):\n    seen.append(x)\n    return -x\nassert f(g, [1, 2]) == [-1, -2]\nassert seen == [1, 2]"),
    Case("function as value", "def f(n): return lambda x: x + n", ["assert f(2)(3) == 5"]),
    Case("decorator", "import functools\ndef twice(g):\n    @functools.wraps(g)\n    def w(*a): return g(*a) * 2\n    return w", "@twice\ndef h(x): return x + 1\nassert h(3) == 8"),
    Case("cache", "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)", ["assert f(80) == 23416728348467685"]),
    Case("state between asserts", "n = 0\ndef f():\n    global n\n    n += 1\n    return n", ["assert f() == 1", "assert f() == 2"]),
    Case("counter and friends", "from collections import Counter, OrderedDict, defaultdict, deque\ndef f(): return Counter('aab')\ndef g(): return OrderedDict(a=1)\ndef h():\n    d = defaultdict(list)\n    d[1].append(2)\n    return d\ndef q(): return deque([1, 2])",
         ["assert f() == {'a': 2, 'b': 1}", "assert g() == {'a': 1}", "assert h() == {1: [2]}", "assert list(q()) == [1, 2]"]),
    Case("named tuple", "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(): return P(1, 2)", ["assert f() == (1, 2)", "assert f()[1] == 2"]),
    Case("named tuple by name", "from collections import namedtuple\nPoint = namedtuple('Point', 'x y')\ndef f(): return Point(1, 2)", "p = f()\nassert p.x == 1 and p.y == 2\nassert p == (1, 2)"),
    Case("dataclass", "from dataclasses import dataclass\n@dataclass\nclass Item:\n    name: str\n    n: int = 1\ndef f(): return Item('a')", ["assert f() == Item('a', 1)", "assert Item('b').n == 1", "assert f() != Item('c')"]),
    Case("enum", "from enum import Enum, IntEnum\nclass Color(Enum):\n    RED = 1\nclass Size(IntEnum):\n    S = 1\ndef f(): return Color.RED\ndef g(): return Size.S", ["assert f() == Color.RED", "assert g() == 1", "assert f().value == 1"]),
    Case("sets, bytes, ranges, complex", "def f(): return [{1, 2}, frozenset({3}), b'ab', bytearray(b'c'), range(3), 1 + 2j, ...]", ["assert f() == [{1, 2}, frozenset({3}), b'ab', bytearray(b'c'), range(3), 1 + 2j, ...]"]),
    Case("fractions and decimals", "from fractions import Fraction\nfrom decimal import Decimal\ndef f(): return Fraction(1, 3) + 1\ndef g(): return Decimal('1.10')", "from fractions import Fraction\nfrom decimal import Decimal\nassert f() == Fraction(4, 3)\nassert str(g()) == '1.10'"),
    Case("dates", "import datetime\ndef f(): return datetime.date(2024, 2, 28) + datetime.timedelta(days=2)", "import datetime\nassert f() == datetime.date(2024, 3, 1)"),
    Case("tuple keys", "def f(): return {(1, 2): [3], None: 4, 'a': {5}}", ["assert f() == {(1, 2): [3], None: 4, 'a': {5}}"]),
    Case("text of every kind", "def f(): return 'é\\u4e2d\\U0001f600\\n\\0\\ud800'", ["assert f() == 'é\\u4e2d\\U0001f600\\n\\0\\ud800'", "assert len(f()) == 6"]),
    Case("none, true, one", "def f(x): return x", ["assert f(None) is None", "assert f(True) is True", "assert f(1) == True", "assert f(0) == False", "assert f('') == ''"]),
    Case("builtin's name", "def sum(a, b): return a + b", ["assert sum(1, 2) == 3"]),
    Case("builtin's name as entry", "def max(xs): return sorted(xs)[-1]", "def check(candidate):\n    assert candidate([1, 3, 2]) == 3", entry="max"),
    Case("keyword arguments", "def f(a, *b, c=1, **d): return (a, b, c, d)", ["assert f(1, 2, c=3, e=4) == (1, (2,), 3, {'e': 4})", "assert f(*[1, 2], **{'c': 5}) == (1, (2,), 5, {})"]),
    Case("chains and logic", "def f(x): return x", ["assert 1 < f(2) < 3", "assert f(1) and f(2)", "assert f(0) or f(1)", "assert not f(0)", "assert f(3) in (1, 2, 3)", "assert 'a' in f('abc')", "assert (f(1) if f(2) else f(3)) == 1"]),
    Case("messages", "def f(x): return x", ["assert f(1) == 1, 'one'", "assert f(2) == 2, f'got {f(2)}'"]),
    Case("check with loops", "def f(n): return n * n", "import random\ndef check(candidate):\n    rng = random.Random(1)\n    for _ in range(50):\n        n = rng.randint(0, 99)\n        assert candidate(n) == n * n\n", entry="f"),
    Case("check called by the tests", "def f(n): return n * n", "def check(candidate):\n    assert candidate(3) == 9\ncheck(f)"),
    Case("helpers in the tests", "def f(xs): return xs[::-1]", "def twice(g, x): return g(g(x))\nassert twice(f, [1, 2]) == [1, 2]"),
    Case("import in setup", "def f(x): return math.sqrt(x)\nimport math", ["assert f(4) == math.sqrt(4)"], setup="import math"),
    Case("windows line ends", "def f(x):\r\n    return x\r\n", ["assert f(1) == 1\r\n"]),
    Case("tabs", "def f(x):\n\tif x:\n\t\treturn 1\n\treturn 0", ["assert f(1) == 1"]),
    Case("demo under main", "def f(x): return x\nif __name__ == '__main__':\n    print(f(input()))", ["assert f(1) == 1"]),
    Case("slow but in time", "import time\ndef f():\n    time.sleep(0.6)\n    return 1", ["assert f() == 1"]),
    Case("a large value", "def f(): return list(range(200000))", ["assert f() == list(range(200000))", "assert len(f()) == 200000"]),
    Case("module names in arguments", "def f(x): return round(x, 2)", ["import math\nassert f(math.pi) == 3.14"]),
    Case("context manager", "class Door:\n    def __enter__(self):\n        self.open = True\n        return self\n    def __exit__(self, *a): self.open = False", "with Door() as d:\n    assert d.open\nassert not d.open"),
    Case("iterator class", "class Count:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return iter(range(self.n))\n    def __len__(self): return self.n\n    def __getitem__(self, i): return i * 10\n    def __contains__(self, x): return x < self.n", "c = Count(3)\nassert list(c) == [0, 1, 2]\nassert len(c) == 3\nassert c[2] == 20\nassert 2 in c\nassert [x for x in c] == [0, 1, 2]"),
    Case("ordered objects", "import functools\n@functools.total_ordering\nclass Age:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o.n\n    def __lt__(self, o): return self.n < o.n", ["assert Age(1) < Age(2)", "assert Age(2) >= Age(2)", "assert max([Age(1), Age(5)], key=lambda a: a.n).n == 5"]),
    Case("subclass of list", "class Stack(list):\n    def push(self, x): self.append(x)", "s = Stack()\ns.push(1)\nassert s == [1]\nassert len(s) == 1\nassert s[0] == 1"),
    Case("isinstance of its class", "class A: pass\nclass B(A): pass\ndef f(): return B()", ["assert isinstance(f(), A)", "assert issubclass(B, A)"]),
    Case("types of values", "def f(x): return x", ["assert type(f(1)) == int", "assert isinstance(f([1]), list)", "assert type(f('a')) is str", "assert f(int) is int"]),
    Case("regular expressions", "import re\ndef f(s): return re.findall(r'\\d+', s)", ["assert f('a1b22') == ['1', '22']"]),
    Case("random, seeded", "import random\ndef f(): return random.Random(5).randint(1, 100)", "import random\nassert f() == random.Random(5).randint(1, 100)"),
    Case("eval and exec", "ns = {}\nexec('def g(x): return x + 1', ns)\nf = ns['g']\ndef h(s): return eval(s)", ["assert f(1) == 2", "assert h('1 + 2') == 3"]),
    Case("points around the origin", "def f(n): return {(x, y) for x in range(-n, n + 1) for y in range(-n, n + 1)}",
         ["assert len(f(40)) == 81 * 81", "assert (-2, -1) in f(40)"]),
    Case("points around the origin, in a loop", "def f(n): return {(x, y): x * y for x in range(-n, n + 1) for y in range(-n, n + 1)}",
         "for n in (1, 40):\n    assert len(f(n)) == (2 * n + 1) ** 2"),
    Case("within a vast range", "def f(n): return n", ["assert f(3) in range(10 ** 30)"]),
    Case("sums of what are no numbers", "from fractions import Fraction\ndef f(n): return [[i] for i in range(n)]\ndef g(n): return [Fraction(1, 2 ** i) for i in range(1, n)]",
         ["assert sum(f(3), []) == [0, 1, 2]", "assert sum(g(4)) == 0.875"]),
    Case("global constant", "LIMIT = 10\ndef f(): return LIMIT", ["assert f() == LIMIT", "assert LIMIT == 10"]),
    Case("numpy scalar", "import numpy as np\ndef f(xs): return np.mean(xs)", ["assert f([1, 2, 3]) == 2.0"], needs="numpy"),
    Case("numpy array", "import numpy as np\ndef f(n): return np.arange(n).reshape(2, -1)", "import numpy as np\nassert (f(4) == np.array([[0, 1], [2, 3]])).all()\nassert np.allclose(f(4), [[0, 1], [2, 3]])\nassert f(4).shape == (2, 2)", needs="numpy"),
    Case("numpy to list", "import numpy as np\ndef f(n): return np.eye(n).tolist()", ["assert f(2) == [[1.0, 0.0], [0.0, 1.0]]"], needs="numpy"),
]  # fmt: skip

PROGRAMS = [
    Program("hello", "print('hello')", "", "hello\n"),
    Program("reads lines", "print(sum(int(input()) for _ in range(3)))", "1\n2\n3\n", "6\n"),
    Program("reads all", "import sys\nprint(len(sys.stdin.read()))", "abc\ndef\n", "8\n"),
    Program("reads bytes", "import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])", "abc", "cba"),
    Program("reads descriptor 0", "import os\nprint(os.read(0, 100).decode())", "abc", "abc\n"),
    Program("runs under main", "if __name__ == '__main__':\n    print('main')", "", "main\n"),
    Program("exits early", "import sys\nprint('a')\nsys.exit()\nprint('b')", "", "a\n"),
    Program("exit handlers", "import atexit\natexit.register(print, 'bye')\nprint('hi')", "", "hi\nbye\n"),
    Program("waits for its threads", "import threading, time\ndef g():\n    time.sleep(0.05)\n    print('late')\nthreading.Thread(target=g).start()\nprint('early')", "", "early\nlate\n"),
    Program("prints unicode", "print('é中😀')", "", "é中😀\n"),
    Program("end of input", "try:\n    input()\nexcept EOFError:\n    print('end')", "", "end\n"),
    Program("quits", "print(1)\nexit()", "", "1\n"),
]  # fmt: skip

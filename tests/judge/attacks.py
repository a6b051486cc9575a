"""Programs that try to pass without being right. Each is a wrong solution; none may pass.

The function asked for is `secret(n)`, which nobody could guess from its calls.
"""

# ruff: noqa: E501  (programs in strings: breaking them would hide their shape)

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PLAIN = ["assert secret(3) == 9137", "assert secret(4) == [16, 'x']", "assert secret(5) == 0.5"]
TRUE = ["assert secret(3) == True", "assert secret(4) is True", "assert secret(5)"]
LOOP = """
def check(candidate):
    table = {3: 9137, 4: 2212, 5: 8}
    for n, expected in table.items():
        assert candidate(n) == expected
"""
CLOSE = ["assert abs(secret(2) - 1.4142) < 1e-3", "assert abs(secret(3) - 1.7320) < 1e-3"]


@dataclass(frozen=True)
class Attack:
    category: str
    name: str
    code: str
    tests: Any = field(default_factory=lambda: PLAIN)
    setup: str = ""
    entry: str | list[str] | None = None
    kinds: tuple[str, ...] = ()  # where given, the kind of fail must be one of these
    timeout_s: float = 2.0


ATTACKS: list[Attack] = []


def attack(category: str, name: str, code: str, tests: Any = None, **more: Any) -> None:
    ATTACKS.append(Attack(category, name, code, PLAIN if tests is None else tests, **more))


LIAR = """
class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __hash__(self): return 0
    def __bool__(self): return True
    def __abs__(self): return self
    def __sub__(self, other): return 0.0
    __add__ = __radd__ = __rsub__ = __mul__ = __sub__
    def __float__(self): return 0.0
    def __round__(self, n=0): return self
    def __getattr__(self, name): return lambda *a, **k: True
    def __call__(self, *a, **k): return self
    def __repr__(self): return '9137'
    def __len__(self): return 2
    def __iter__(self): return iter([self, self])
    def __getitem__(self, key): return self
def secret(n): return Liar()
"""


def forgery_of_equality() -> None:
    attack("forgery", "always equal", LIAR)
    attack("forgery", "always equal, whole tests", LIAR, LOOP, entry="secret")
    attack("forgery", "always close", LIAR, CLOSE)
    attack(
        "forgery",
        "always close, whole tests",
        LIAR,
        "for n, r in ((2, 1.4142), (3, 1.732)):\n    assert abs(secret(n) - r) < 1e-3",
    )
    attack(
        "forgery",
        "difference that is a liar",
        LIAR.replace("return 0.0\n    __add__", "return self\n    __add__"),
        CLOSE,
    )
    attack(
        "forgery", "isclose of a liar", LIAR, ["import math\nassert math.isclose(secret(2), 1.4)"]
    )
    attack("forgery", "member of a liar", LIAR, ["assert 9137 in secret(3)"])
    attack("forgery", "liar in a list", LIAR, ["assert secret(3) in [9137, 9138]"])
    attack(
        "forgery", "liar smaller than all", LIAR, ["assert secret(3) < 5", "assert secret(4) > 6"]
    )
    attack("forgery", "liar's startswith", LIAR, ["assert secret(3).startswith('ab')"])
    attack(
        "forgery",
        "liar's methods, whole tests",
        LIAR,
        "x = secret(3)\nassert x.endswith('ab')\nassert x.count('a') == 3",
    )
    attack("forgery", "liar's items", LIAR, ["assert secret(3)[0] == 7 and secret(3)[1] == 8"])
    attack("forgery", "set of liars", LIAR, ["assert set(secret(3)) == {1, 2}"])
    attack("forgery", "sorted liars", LIAR, ["assert sorted(secret(3)) == [1, 2]"])
    attack(
        "forgery",
        "liar against its negation",
        LIAR,
        "x = secret(3)\nassert (x == 1) != (x == 2)\nassert x != 5",
    )
    for base, value in (
        ("int", "7"),
        ("str", "'7'"),
        ("float", "7.0"),
        ("list", "[7]"),
        ("tuple", "(7,)"),
        ("dict", "{7: 7}"),
        ("set", "{7}"),
    ):
        code = (
            f"class Liar({base}):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n"
            f"    __hash__ = lambda s: 0\n    __lt__ = __gt__ = lambda s, o: True\n"
            f"def secret(n): return Liar({value})"
        )
        attack("forgery", f"lying subclass of {base}", code)
        attack("forgery", f"lying subclass of {base}, whole tests", code, LOOP, entry="secret")
    attack(
        "forgery",
        "class property says int",
        LIAR.replace("class Liar:", "class Liar:\n    __class__ = property(lambda s: int)"),
        ["assert isinstance(secret(3), int) and secret(3) == 9137"],
    )
    attack(
        "forgery",
        "metaclass that is equal",
        "class M(type):\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: 0\n"
        "class C(metaclass=M): pass\ndef secret(n): return C",
    )
    attack(
        "forgery",
        "function is a class of liars",
        LIAR + "\nsecret = type('secret', (Liar,), {'__init__': lambda s, n: None})",
    )
    attack(
        "forgery",
        "function is a class, close",
        LIAR + "\nclass secret(Liar):\n    def __init__(self, n): pass",
        CLOSE,
    )
    attack("forgery", "mock object", "from unittest.mock import MagicMock\nsecret = MagicMock()")
    attack("forgery", "mock any", "from unittest.mock import ANY\ndef secret(n): return ANY")
    attack(
        "forgery",
        "mock any in a list",
        "from unittest.mock import ANY\ndef secret(n): return [ANY, ANY]",
        ["assert secret(3) == [1, 2]"],
    )
    attack(
        "forgery",
        "dict of liars",
        LIAR.replace("return Liar()", "return {1: Liar()}"),
        ["assert secret(3) == {1: 2}"],
    )
    attack(
        "forgery",
        "truth where a value is due",
        "def secret(n): return True",
        ["assert secret(3) == 37"],
    )
    attack("forgery", "nan", "def secret(n): return float('nan')")
    attack("forgery", "not implemented", "def secret(n): return NotImplemented")
    attack("forgery", "true for exactly true", LIAR, TRUE[:2])


def forgery_of_the_process() -> None:
    attack("forgery", "exit at once", "import os\nos._exit(0)")
    attack("forgery", "exit in the call", "import os\ndef secret(n): os._exit(0)")
    attack(
        "forgery",
        "exit in the call, whole tests",
        "import os\ndef secret(n): os._exit(0)",
        LOOP,
        entry="secret",
    )
    attack("forgery", "sys.exit in the call", "import sys\ndef secret(n): sys.exit(0)")
    attack(
        "forgery",
        "sys.exit, whole tests",
        "import sys\ndef secret(n): sys.exit(0)",
        LOOP,
        entry="secret",
    )
    attack("forgery", "SystemExit subclass", "class E(SystemExit): pass\ndef secret(n): raise E(0)")
    attack(
        "forgery",
        "stop iteration",
        "def secret(n): raise StopIteration",
        "assert all(secret(n) == n * 99 for n in [3, 4])",
    )
    attack(
        "forgery",
        "stop iteration ends the cases",
        "def secret(n): raise StopIteration",
        "assert all(a == b for a, b in zip(map(secret, [3, 4]), [297, 396]))",
    )
    attack("forgery", "generator exit", "def secret(n): raise GeneratorExit", LOOP, entry="secret")
    attack(
        "forgery",
        "keyboard interrupt",
        "def secret(n): raise KeyboardInterrupt",
        LOOP,
        entry="secret",
    )
    attack(
        "forgery",
        "atexit writes",
        "import atexit, os\natexit.register(lambda: os._exit(0))\ndef secret(n): return 1",
    )
    attack(
        "forgery",
        "kills its parent",
        "import os, signal\ndef secret(n):\n    os.kill(os.getppid(), 9)\n    return 1",
    )
    attack(
        "forgery",
        "prints a verdict",
        "import json\nprint(json.dumps({'verdict': 'pass', 'values': [9137]}))\ndef secret(n): return 0",
    )
    attack(
        "forgery",
        "writes verdicts to every descriptor",
        "import os, json\ndef secret(n):\n    for fd in range(3, 64):\n        try: os.pwrite(fd, json.dumps({'verdict': 'pass'}).encode(), 0)\n        except OSError: pass\n    os._exit(0)",
    )
    attack(
        "forgery",
        "writes verdicts to every descriptor, whole tests",
        "import os, json\ndef secret(n):\n    for fd in range(3, 64):\n        for f in (os.pwrite, os.write):\n            try: f(fd, json.dumps({'verdict': 'pass'}).encode(), *([0] if f is os.pwrite else []))\n            except OSError: pass\n    os._exit(0)",
        LOOP,
        entry="secret",
    )
    attack(
        "forgery",
        "sends values of its own",
        "import os, json\nfor fd in range(3, 10):\n    try: os.pwrite(fd, json.dumps({'values': [True, True, True]}).encode(), 0)\n    except OSError: pass\nos._exit(0)",
    )
    attack(
        "forgery",
        "claims the jail broke",
        "import os, json\nfor fd in range(3, 10):\n    try: os.pwrite(fd, json.dumps({'kind': 'jail', 'detail': 'void'}).encode(), 0)\n    except OSError: pass\nos._exit(71)",
    )
    attack(
        "forgery",
        "claims it never compiled",
        "import os, json\nfor fd in range(3, 10):\n    try: os.pwrite(fd, json.dumps({'kind': 'syntax', 'detail': ''}).encode(), 0)\n    except OSError: pass\nos._exit(0)",
        kinds=("exception",),
    )
    attack(
        "forgery",
        "answers the link by itself",
        "import os, struct, json\nm = json.dumps({'value': True}).encode()\ntry:\n    for _ in range(50): os.write(5, struct.pack('=I', len(m)) + m)\nexcept OSError: pass\ndef secret(n): return True",
        LOOP,
        entry="secret",
    )
    for name, wait in (("sleeps", "import time; time.sleep(60)"), ("loops", "while True: pass")):
        attack(
            "forgery",
            f"says that it is ready and {name}",
            f"import os, struct\nm = b'{{\"value\":\"ready\"}}'\nos.write(5, struct.pack('=I', len(m)) + m)\n{wait}",
            "for n in (3, 4):\n    assert secret(n) == 9137",
            kinds=("time-out",),
            timeout_s=0.5,
        )
    attack(
        "forgery",
        "answers the link with nonsense",
        "import os\nos.write(5, b'\\xff' * 64)\ndef secret(n): return 1",
        LOOP,
        entry="secret",
    )
    attack(
        "forgery",
        "answers the link with an unknown object",
        "import os, struct, json\nm = json.dumps({'value': ['h', 10**9, {'class': 'X'}]}).encode()\nfor _ in range(9): os.write(5, struct.pack('=I', len(m)) + m)\ndef secret(n): return 1",
        LOOP,
        entry="secret",
    )


def forgery_of_the_tests() -> None:
    frames = """
import sys, gc
def secret(n):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if value == 9137 or (isinstance(value, dict) and value.get(n) in (9137, 2212, 8)):
                return 9137
        for const in frame.f_code.co_consts:
            if const == 9137 and frame.f_code.co_name != 'secret': return const
        frame = frame.f_back
    for thing in gc.get_objects():
        if isinstance(thing, dict) and thing is not globals() and thing.get(3) == 9137: return 9137
    return None
"""
    attack("forgery", "reads frames", frames)
    attack("forgery", "reads frames, whole tests", frames, LOOP, entry="secret")
    attack(
        "forgery",
        "reads setup's names",
        "def secret(n):\n    import sys\n    return globals().get('ANSWER') or getattr(sys.modules['__main__'], 'ANSWER', None)",
        ["assert secret(3) == ANSWER"],
        setup="ANSWER = 9137",
    )
    attack(
        "forgery",
        "calls the reference in setup",
        "def secret(n): return reference(n)",
        ["assert secret(3) == reference(3)"],
        setup="def reference(n): return n * 3001 + 7",
    )
    attack(
        "forgery",
        "reads a callback's globals",
        "def secret(f):\n    return f.__globals__['ANSWER']",
        "ANSWER = 9137\nassert secret(lambda x: x) == ANSWER",
    )
    attack(
        "forgery",
        "reads a callback's closure",
        "def secret(f):\n    return f.__closure__[0].cell_contents",
        "def make():\n    answer = 9137\n    return (lambda x: answer + x), answer\nf, a = make()\nassert secret(f) == a",
    )
    attack(
        "forgery",
        "reads a generator's frame",
        "def secret(g):\n    return g.gi_frame.f_globals['ANSWER']",
        "ANSWER = 9137\nassert secret(x for x in [1]) == ANSWER",
    )
    attack(
        "forgery",
        "reads a method's function",
        "def secret(m):\n    return m.run.__func__.__globals__['ANSWER']",
        "ANSWER = 9137\nclass M:\n    def run(self): return 1\nassert secret(M()) == ANSWER",
    )
    attack(
        "forgery",
        "a method's value with methods of its own",
        LIAR + "class Solution:\n    def secret(self, n): return Liar()",
        ["assert Solution().secret(3).startswith('ab')"],
    )
    attack(
        "forgery",
        "a function that is a class of another name",
        LIAR + "class Posing(Liar):\n    def __init__(self, n): pass\n"
        "    def startswith(self, x): return True\nsecret = Posing",
        "x = secret(3)\nassert x.startswith('ab')",
    )
    attack(
        "forgery",
        "a method's value that is its own class",
        LIAR + "class Solution(Liar):\n    def secret(self, n): return self",
        "s = Solution()\nassert abs(s.secret(2) - 1.41) < 1e-2\nassert s.secret(3) == 9137",
    )
    attack(
        "forgery",
        "redefines check",
        "def check(f): return True\ndef secret(n): return 0",
        LOOP,
        entry="secret",
    )
    attack("forgery", "redefines abs", "def abs(x): return 0\ndef secret(n): return 7", CLOSE)
    attack(
        "forgery",
        "redefines builtins.abs",
        "import builtins\nbuiltins.abs = lambda x: 0\ndef secret(n): return 7",
        CLOSE,
    )
    attack(
        "forgery",
        "redefines set",
        "def set(x): return 1\ndef secret(n): return [n]",
        ["assert set(secret(3)) == set([8, 9])"],
    )
    attack(
        "forgery",
        "redefines sorted and list",
        "import builtins\nbuiltins.sorted = builtins.list = lambda *a, **k: [1, 2]\ndef secret(n): return 5",
        ["assert sorted(secret(3)) == [2, 2]"],
    )
    attack(
        "forgery",
        "redefines math",
        "class math:\n    isclose = staticmethod(lambda *a, **k: True)\n    fabs = staticmethod(lambda x: 0)\ndef secret(n): return 5",
        ["assert math.isclose(secret(2), 1.41, rel_tol=1e-3)"],
    )
    attack(
        "forgery",
        "patches math.isclose",
        "import math\nmath.isclose = lambda *a, **k: True\ndef secret(n): return 5",
        ["assert math.isclose(secret(2), 1.41, rel_tol=1e-3)"],
    )
    attack(
        "forgery",
        "patches math, whole tests",
        "import math\nmath.isclose = lambda *a, **k: True\ndef secret(n): return 5",
        "for n in (2, 3):\n    assert math.isclose(secret(n), n ** 0.5)",
    )
    attack(
        "forgery",
        "redefines isinstance",
        "import builtins\nbuiltins.isinstance = lambda *a: True\ndef secret(n): return 'x'",
        ["assert isinstance(secret(2), int)"],
    )
    attack(
        "forgery",
        "redefines AssertionError",
        "import builtins\nclass A(Exception): pass\nbuiltins.AssertionError = A\ndef secret(n): return 1",
    )
    attack(
        "forgery",
        "asserts off",
        "import sys\nsys.flags = None\n__debug__ if True else None\ndef secret(n): return 1",
    )
    attack(
        "forgery",
        "patches the encoder",
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.endswith('wire'):\n        module.encode = module.encode_content = lambda *a, **k: True\ndef secret(n): return 1",
    )
    attack(
        "forgery",
        "patches json",
        'import json\njson.dumps = lambda *a, **k: \'{"verdict": "pass", "values": [true, true, true]}\'\ndef secret(n): return 1',
    )
    attack(
        "forgery",
        "patches json, whole tests",
        "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\ndef secret(n): return 1",
        LOOP,
        entry="secret",
    )
    attack(
        "forgery",
        "trace function",
        "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda f, e, a: None)\ndef secret(n): return 1",
    )
    attack(
        "forgery",
        "raises what tests expect to be raised",
        "def secret(n): raise ValueError",
        "try:\n    secret(-1)\nexcept ValueError:\n    pass\nassert secret(2) == 4",
    )
    attack(
        "forgery",
        "never raises what it should",
        "def secret(n): return None",
        "try:\n    secret(-1)\n    raised = False\nexcept ValueError:\n    raised = True\nassert raised",
    )
    attack("forgery", "assertion error of its own", "def secret(n): raise AssertionError('fine')")
    attack(
        "forgery",
        "swaps argument for the answer",
        "def secret(n):\n    n.append(n)\n    return n",
        ["assert secret([1]) == [1, 2]"],
    )
    attack(
        "forgery",
        "mutates to please",
        "def secret(xs):\n    xs[:] = [LiarInt(x) for x in xs]\nclass LiarInt(int):\n    __eq__ = lambda s, o: True\n    __hash__ = int.__hash__",
        "xs = [3, 1, 2]\nsecret(xs)\nassert xs == [1, 2, 3]",
    )
    attack(
        "forgery",
        "property that changes",
        "class Box:\n    n = 0\n    @property\n    def value(self):\n        Box.n += 1\n        return Box.n",
        "b = Box()\nassert b.value == 5",
    )


def resources() -> None:
    def hog(name: str, code: str, *kinds: str, **more: Any) -> None:
        seconds = 0.5 if "time-out" in kinds else 1.0  # most of them burn what they are given
        attack("resources", name, code, kinds=kinds, timeout_s=seconds, **more)

    body = "def secret(n):\n    "
    hog("endless loop", body + "while True: pass", "time-out")
    hog("endless loop at import", "while True: pass", "time-out")
    hog(
        "endless loop, whole tests",
        body + "while True: pass",
        "time-out",
        tests=LOOP,
        entry="secret",
    )
    hog("sleep", "import time\n" + body + "time.sleep(60)", "time-out")
    hog(
        "endless loop that eats every exception",
        body
        + "while True:\n        try:\n            while True: pass\n        except BaseException: pass",
        "time-out",
    )
    hog(
        "ignores signals",
        "import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n"
        + body
        + "while True: pass",
        "time-out",
    )
    hog("endless C loop", body + "return sum(iter(int, 1))", "time-out")
    hog(
        "a regular expression that backtracks",
        "import re\n" + body + "re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "time-out",
    )
    hog("a power", body + "return 9 ** 9 ** 9", "time-out", "memory")
    hog("a huge string", body + "return 'a' * 10 ** 11", "memory")
    hog(
        "a growing list",
        body + "x = []\n    while True: x.append('a' * 10 ** 6)",
        "memory",
        "time-out",
    )
    hog("a huge bytearray", body + "return bytearray(8 << 30)", "memory")
    hog(
        "memory in many processes",
        "import os, time\n"
        + body
        + "for _ in range(12):\n        if os.fork() == 0:\n            x = bytearray(300 << 20)\n            for i in range(0, len(x), 4096): x[i] = 1\n            time.sleep(60)\n    time.sleep(60)",
        "memory",
        "time-out",
    )
    hog(
        "fork bomb",
        "import os\n" + body + "while True:\n        try: os.fork()\n        except OSError: pass",
        "time-out",
    )
    hog("fork bomb at import", "import os\nwhile True: os.fork()", "exception", "time-out")
    hog(
        "thread bomb",
        "import threading, time\n"
        + body
        + "while True:\n        threading.Thread(target=time.sleep, args=(60,)).start()",
        "exception",
        "time-out",
        "memory",
    )
    hog(
        "descriptor bomb",
        "import os\n" + body + "return [os.dup(0) for _ in range(10 ** 6)]",
        "exception",
    )
    hog("endless printing", body + "while True: print('x' * 1000)", "output limit")
    hog(
        "endless stderr",
        "import sys\n" + body + "while True: sys.stderr.write('x' * 1000)",
        "output limit",
    )
    hog(
        "endless printing that eats errors",
        body + "while True:\n        try: print('x' * 10000)\n        except Exception: pass",
        "output limit",
        "time-out",
    )
    hog(
        "a huge value",
        body + "return list(range(10 ** 7))",
        "output limit",
        "memory",
        "exception",
        "time-out",
    )
    hog(
        "a file that fills memory",
        body + "f = open('/tmp/x', 'wb')\n    while True: f.write(b'x' * 10 ** 6)",
        "output limit",
        "exception",
    )
    hog(
        "many files that fill memory",
        body + "for i in range(10 ** 6): open(f'/tmp/{i}', 'wb').write(b'x' * 10 ** 7)",
        "exception",
        "output limit",
    )
    hog(
        "deep recursion",
        "import sys\nsys.setrecursionlimit(10 ** 9)\n" + body + "return secret(n)",
        "exception",
        "memory",
        "time-out",
    )
    hog("crash of the interpreter", "import ctypes\n" + body + "ctypes.string_at(0)", "exception")
    hog("abort", "import os\n" + body + "os.abort()", "exception", "time-out")
    hog(
        "outlives its result",
        "import os, time\npid = os.fork()\nif pid == 0:\n    os.setsid()\n    time.sleep(30)\ndef secret(n): return 1",
        "wrong value",
    )
    hog(
        "has itself killed by its own limit",
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\n"
        + body
        + "while True: pass",
        "exception",
        "time-out",
    )
    hog(
        "starves itself with its own processes",
        "import os\n"
        + body
        + "for _ in range(30):\n        if os.fork() == 0: break\n    while True: pass",
        "time-out",
    )
    hog(
        "stops itself",
        "import os, signal\n" + body + "os.kill(os.getpid(), signal.SIGSTOP)\n    return 1",
        "time-out",
        "wrong value",
    )
    hog(
        "endless generator",
        body + "while True: yield n",
        "time-out",
        "memory",
        tests=["assert list(secret(3)) == [1]"],
    )
    hog(
        "endless generator, whole tests",
        body + "while True: yield n",
        "time-out",
        "memory",
        tests="for x in secret(3):\n    assert x == 3",
    )
    hog(
        "endless hash",
        "class H:\n    def __hash__(self):\n        while True: pass\n" + body + "return {H()}",
        "time-out",
    )


def host() -> None:
    body = "def secret(n):\n    "

    def reach(name: str, code: str, *kinds: str) -> None:
        attack("host", name, code, kinds=kinds)

    leak = "return 9137 if {} else 0"
    reach("reads /etc/passwd", body + "return open('/etc/passwd').read()", "exception")
    reach("reads /etc/shadow", body + "return open('/etc/shadow').read()", "exception")
    reach(
        "lists /home and /proc",
        "import os\n" + body + "return os.listdir('/proc') + os.listdir('/home')",
        "exception",
    )
    reach("reads its parent's memory", body + "return open('/proc/1/environ').read()", "exception")
    reach("writes to /usr", body + "open('/usr/x', 'w')", "forbidden call")
    reach("writes where it lives", body + "open('/jail/inside/wire.py', 'w')", "forbidden call")
    reach(
        "removes the library",
        "import os, shutil\n" + body + "os.remove(os.__file__)",
        "forbidden call",
    )
    reach("opens a socket", "import socket\n" + body + "socket.socket()", "forbidden call")
    reach(
        "connects",
        "import socket\n" + body + "socket.create_connection(('127.0.0.1', 80), 1)",
        "forbidden call",
        "exception",
    )
    reach(
        "fetches a page",
        "import urllib.request\n"
        + body
        + "urllib.request.urlopen('http://example.com', timeout=1)",
        "forbidden call",
        "exception",
    )
    reach(
        "unix socket",
        "import socket\n" + body + "socket.socket(socket.AF_UNIX).bind('\\0x')",
        "forbidden call",
    )
    libc = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n" + body
    for name, call in (
        ("ptrace", "libc.ptrace(0, 0, 0, 0)"),
        ("unshare a user namespace", "libc.unshare(0x10000000)"),
        ("unshare mounts", "libc.unshare(0x00020000)"),
        ("setns", "libc.setns(0, 0)"),
        ("mount", "libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0)"),
        ("umount", "libc.umount2(b'/usr', 2)"),
        ("chroot", "libc.chroot(b'/tmp')"),
        ("pivot_root", "libc.syscall(155, b'/tmp', b'/tmp')"),
        ("memfd_create", "libc.memfd_create(b'x', 0)"),
        ("io_uring", "libc.syscall(425, 8, 0)"),
        ("keyctl", "libc.syscall(250, 0, 0, 0)"),
        ("add_key", "libc.syscall(248, b'user', b'x', b'y', 1, -1)"),
        ("bpf", "libc.syscall(321, 0, 0, 0)"),
        ("perf_event_open", "libc.syscall(298, 0, 0, 0, 0, 0)"),
        ("userfaultfd", "libc.syscall(323, 0)"),
        ("process_vm_readv", "libc.syscall(310, 1, 0, 0, 0, 0, 0)"),
        ("kexec", "libc.syscall(246, 0, 0, 0, 0)"),
        ("reboot", "libc.reboot(0)"),
        ("open_by_handle_at", "libc.syscall(304, 0, 0, 0)"),
        ("clone into a user namespace", "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)"),
        ("the x32 table", "libc.syscall(0x40000000 + 39)"),
        ("new mount interface", "libc.syscall(430, b'tmpfs', 0)"),
    ):  # fmt: skip
        reach(f"system call: {name}", libc + call, "forbidden call")
    reach(
        "clone3",
        libc + "assert libc.syscall(435, 0, 0) == -1 and ctypes.get_errno() == 38\n    return 0",
        "wrong value",
    )
    reach("becomes root", "import os\n" + body + "os.setuid(0)", "forbidden call", "exception")
    reach(
        "is root",
        "import os\n" + body + leak.format("os.getuid() == 0 or os.geteuid() == 0"),
        "wrong value",
    )
    reach(
        "sees the environment",
        "import os\n"
        + body
        + leak.format(
            "set(os.environ) - {'PATH', 'HOME', 'PYTHONHASHSEED', 'OPENBLAS_NUM_THREADS', 'LC_CTYPE', 'PWD'}"
        ),
        "wrong value",
    )
    reach(
        "sees other processes",
        "import os\n" + body + leak.format("os.getpid() != 1"),
        "wrong value",
    )
    reach(
        "kills everyone",
        "import os\n" + body + "os.kill(-1, 9)\n    return 0",
        "wrong value",
        "exception",
    )
    reach(
        "shared memory of the system",
        libc + leak.format("libc.shmget(1, 4096, 0o1666) != -1"),
        "wrong value",
    )
    reach(
        "runs a set-uid program",
        "import subprocess\n"
        + body
        + leak.format(
            "b'uid=0' in subprocess.run(['/usr/bin/su', '-c', 'id'], capture_output=True).stdout"
        ),
        "wrong value",
        "exception",
        "forbidden call",
    )
    reach(
        "raises its own limits",
        "import resource\n" + body + "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "exception",
    )
    reach("opens a device", body + "open('/dev/mem')", "exception", "forbidden call")
    reach(
        "looks for descriptors left open",
        "import os\n"
        + body
        + "seen = []\n    for fd in range(6, 1024):\n        try: os.fstat(fd); seen.append(fd)\n        except OSError: pass\n    "
        + leak.format("seen"),
        "wrong value",
    )


def parsers() -> None:
    def raw(name: str, expression: str, *kinds: str, tests: Any = None) -> None:
        code = (
            "import os\ndef secret(n):\n    data = " + expression + "\n"
            "    for fd in (4,):\n        os.pwrite(fd, data, 0)\n    os._exit(0)"
        )
        attack("parsers", name, code, tests, kinds=kinds)

    raw("not json", "b'{'", "exception")
    raw("nothing but zeros", "bytes(1000)", "exception")
    raw("a list", "b'[]'", "exception")
    raw("nested lists", "b'[' * 1_000_000", "exception")
    raw("nested objects", "b'{\"a\":' * 500_000", "exception")
    raw(
        "nested values",
        "b'{\"values\": [' + b'[\"l\",' * 9_000 + b'1' + b']' * 9_000 + b']}'",
        "exception",
    )
    raw("a number of a million digits", "b'{\"values\": [' + b'9' * 1_000_000 + b']}'", "exception")
    raw("unknown tags", 'b\'{"values": [["zz", 1], [""], []]}\'', "exception")
    raw("a pickle in the values", 'b\'{"values": [["p", "gASVAAAA"]]}\'', "exception")
    raw("values that are no list", "b'{\"values\": 5}'", "exception")
    raw("kinds that are no text", 'b\'{"kind": [1], "detail": {"a": 1}}\'', "exception")
    raw("not utf-8", 'b\'{"values": ["\\xff\\xfe"]}\'', "exception")
    raw(
        "keys made to collide",
        "b'{\"values\": [[\"s\",' + b','.join(str(i * (2 ** 61 - 1)).encode() if i < 2 else ('[\"i\",\"%x\"]' % (i * (2 ** 61 - 1))).encode() for i in range(60_000)) + b']]}'",
        "exception",
    )
    raw(
        "a range without end",
        'b\'{"values": [["r","0x0","0xffffffffffffffff","0x1"]]}\'',
        "exception",  # it is gone when it is asked again in a second jail
        tests=["assert sum(secret(3)) == 5"],
    )
    raw(
        "a range without end, listed",
        'b\'{"values": [["r","0x0","0xffffffffffff","0x1"]]}\'',
        "exception",
        tests=["assert str(list(secret(3)[1:])) == '5'"],
    )
    raw("packed numbers cut short", 'b\'{"values": [["P", "l", "d", "00ff"]]}\'', "exception")
    raw("packed as nothing known", 'b\'{"values": [["P", "l", "999999999s", ""]]}\'', "exception")
    raw("packed without an end", 'b\'{"values": [["P"], ["R"], ["R", "l", 5]]}\'', "exception")
    raw("a result too large to be read", "b'[' * (9 << 20)", "output limit")
    raw("a decimal with a vast exponent", 'b\'{"values": [["M", "1e999999999"]]}\'', "exception")
    raw("too few values", "b'{\"values\": [9137]}'", "exception")
    raw("a key without a value", 'b\'{"values": [["d", 1]]}\'', "exception")
    raw("an unhashable key", 'b\'{"values": [["d", ["l"], 1]]}\'', "exception")
    attack("parsers", "null bytes in the source", "def secret(n): return 1\0", kinds=("syntax",))
    attack(
        "parsers",
        "lone surrogates in the source",
        "def secret(n): return '\ud800'",
        kinds=("syntax", "wrong value"),
    )
    attack("parsers", "brackets without end", "x = " + "(" * 5000, kinds=("syntax",))
    attack(
        "parsers",
        "operators without end",
        "x = " + "-" * 200_000 + "1",
        kinds=("syntax", "exception", "memory"),
    )
    attack("parsers", "a source of a megabyte and more", "# " + "x" * (1 << 20), kinds=("syntax",))
    attack("parsers", "a strange encoding", "# -*- coding: rot13 -*-\ndef secret(n): return 1")
    attack(
        "parsers",
        "an error whose text is an error",
        "class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\ndef secret(n): raise E",
        kinds=("exception",),
    )
    attack(
        "parsers",
        "an error with a vast text",
        "def secret(n): raise ValueError('x' * 10 ** 7)",
        kinds=("exception",),
    )
    attack(
        "parsers",
        "a syntax error raised by hand",
        "def secret(n): raise SyntaxError('x')",
        kinds=("exception",),
    )
    attack(
        "parsers",
        "tests in the program's text",
        "def secret(n): return 1\n'''\nassert secret(3) == 9137\n'''",
    )


def isolation() -> None:
    """Each pair runs side by side or one after the other; the second may learn nothing."""
    leave = {
        "a file in /tmp": ("open('/tmp/answer', 'w').write('9137')", "open('/tmp/answer').read()"),
        "a file in /dev/shm": ("open('/dev/shm/answer', 'w').write('9137')", "open('/dev/shm/answer').read()"),
        "an environment variable": ("import os; os.environ['ANSWER'] = '9137'", "__import__('os').environ['ANSWER']"),
        "a builtin": ("import builtins; builtins.ANSWER = 9137", "ANSWER"),
        "a module": ("import math; math.ANSWER = 9137", "__import__('math').ANSWER"),
        "a patched module": ("import json; json.dumps = None", "__import__('json').ANSWER"),
        "the garbage": ("keep = {'marker-of-another': 9137}", "[x for x in __import__('gc').get_objects() if isinstance(x, dict) and 'marker-of-another' in x and 'x' not in x][0]['marker-of-another']"),
        "the recursion limit": ("import sys; sys.setrecursionlimit(9137)", "__import__('sys').getrecursionlimit()"),
        "an abstract socket": ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0answer')", "9137 if __import__('socket').socket(__import__('socket').AF_UNIX).connect('\\0answer') is None else 0"),
        "system shared memory": ("import ctypes; ctypes.CDLL(None).shmget(9137, 4096, 0o1666)", "9137 if __import__('ctypes').CDLL(None).shmget(9137, 4096, 0o666) != -1 else 0"),
        "the working directory": ("import os; os.chdir('/usr')", "9137 if __import__('os').getcwd() == '/usr' else 0"),
        "the signal handlers": ("import signal; signal.signal(10, lambda *a: None)", "9137 if callable(__import__('signal').getsignal(10)) else 0"),
    }  # fmt: skip
    for name, (first, second) in leave.items():
        attack("cross-execution", name, f"{first}\ndef secret(n): return 0")
        attack(
            "cross-execution",
            f"{name}, found",
            f"def secret(n):\n    found = {second}\n    return int(found)",
        )


def forgery_of_builtins() -> None:
    """The function under test is called like a builtin; other builtins stay the tests' own."""
    close = ["assert abs(max(2, 3) - 9137) < 1e-3"]
    lie = "def {}(*a): return 0\n"
    attack("forgery", "abs of its own around max", lie.format("abs"), close)
    both = lie.format("abs") + lie.format("max")
    attack("forgery", "abs of its own and max", both, close)
    loop = "for given, expected in zip([(1, 2), (3, 4)], [9137, 2212]):\n    assert sum(*given) == expected"
    none = "def zip(*a): return []\n"
    attack("forgery", "zip of its own around sum", none, loop)
    attack("forgery", "zip of its own and sum", none + lie.format("sum"), loop)
    attack("forgery", "zip of its own, entry named", none + lie.format("sum"), loop, entry="sum")
    helper = "def same(a, b):\n    assert isinstance(a, int) and a == b\nsame(sum(1, 2), 9137)"
    believed = "def isinstance(a, b): return True\ndef same(a, b): pass\n"
    attack("forgery", "the helper of the tests", believed + lie.format("sum"), helper)
    attack("forgery", "the helper's isinstance", believed, helper)
    rebound = "INPUTS = []\ndef same(*a): return True\ncheck = print\ndef secret(n): return 0"
    attack("forgery", "names that the tests bind", rebound, LOOP + "\nINPUTS = [1]", entry="secret")
    attack(
        "forgery",
        "another function by the same name later",
        "def secret(n):\n    global secret\n    secret = print\n    return 9137",
        "for n, expected in ((3, 9137), (4, 2212)):\n    assert secret(n) == expected",
    )


def time_of_the_tests() -> None:
    """Values that take the tests' own time: a fail, for a program must not choose to be void."""
    sums = "for n in (3, 4):\n    assert sum(secret(n)) == 9137"
    late = "def secret(n): return {}"
    kinds = ("time-out", "memory", "exception")
    for name, value, tests in (
        ("a range to add up", "range(10 ** 12)", sums),
        ("a power to work out", "7 ** 30_000", ["assert secret(3) ** secret(4) == 9137"]),
    ):
        attack("resources", name, late.format(value), tests, kinds=kinds, timeout_s=0.5)
    product = ["assert secret(3) * secret(4) % 10 == 5"]
    attack("resources", "a product of vast numbers", late.format("3 ** 40_000"), product)
    length = ["assert 'a' * secret(3) == 'b'"]
    attack("resources", "a text of vast length", late.format("10 ** 12"), length, kinds=kinds)
    inside = ["assert 'a' in secret(3)"]
    attack("resources", "a range to search", late.format("range(10 ** 9)"), inside, kinds=kinds)
    keyed = ["assert sorted(secret(3), key=sum) == []"]
    attack("resources", "ranges to sort by sum", late.format("[range(10**9)]"), keyed, kinds=kinds)
    form = "def secret(n): return bytearray(b'%2000000000d')"
    attack("resources", "a form to fill in", form, ["assert secret(3) % 7 == 1"], kinds=kinds)
    fraction = """
from fractions import Fraction
def secret(n):
    half = Fraction(1, 2)
    half._numerator, half._denominator = 3 ** 600_000, 7 ** 340_000
    return half
"""
    attack("resources", "a fraction to reduce", fraction, kinds=("time-out",), timeout_s=0.5)


def starving() -> None:
    """Time that a program waits for a processor is not counted: it must not be able to make it
    wait for ever, at the lowest priority behind children of its own that come and go."""
    last = """
import os, signal, time
def spin():
    while True:
        began = time.process_time()
        while time.process_time() - began < 0.1: pass
        if os.fork(): os._exit(0)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
try: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
except OSError: pass
if os.fork() == 0: spin()
try: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
except OSError: pass
while True: pass
"""
    attack("resources", "starves itself", last, kinds=("time-out",), timeout_s=0.5)
    attack("resources", "nice to itself", "import os; os.nice(19)", kinds=("forbidden call",))


forgery_of_equality()
forgery_of_the_process()
forgery_of_the_tests()
forgery_of_builtins()
time_of_the_tests()
starving()
resources()
host()
parsers()
isolation()

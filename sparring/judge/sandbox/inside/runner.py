"""What a locked-down fork does with its request: run a program, answer calls, or serve a peer."""

from __future__ import annotations

import _sitebuiltins
import atexit
import builtins
import importlib
import io
import os
import sys
from os import _exit, close, pwrite
from sys import modules
from types import CodeType, ModuleType
from typing import Any

from . import heap, solution_side, test_side, wire
from .faults import fault

WRAPPERS: dict[str, Any] = {
    "list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "sorted": sorted,
    "dict": dict, "next": next,
}  # fmt: skip


REHEARSAL = """
import math
from collections import Counter

class Thing:
    kind: str = 'x'

    def __init__(self, *args, **kwargs):
        self.args = args

def f(x, y=2, *z, k=None):
    try:
        found = [i ** 2 for i in range(x) if i % 2 == 0 and not i > 100]
        while found and len(found) > 50:
            found.pop()
        for i, (a, b) in enumerate(zip(found, sorted(found, key=lambda v: -v))):
            found[i] = a + b if a else {a: b, 'c': {1, 2}}.get(a, 0)
    except (ValueError, TypeError) as error:
        raise RuntimeError(f'{x!r} {y:>3}') from error
    finally:
        y += 1
    return {'a': found, 'b': (x, 1.5, 'text', None, True), 'c': Counter('text')}

def g(x):
    yield from range(x)
"""
REHEARSALS = 12  # by then the interpreter has settled on the quick form of the code


def rehearse() -> None:
    """Do once, before any fork, what every fork will do: the first time is many times dearer."""
    builtins.exit = builtins.quit = _sitebuiltins.Quitter("exit", "Ctrl-D")
    _streams()
    request = {
        "code": REHEARSAL,
        "calls": [["f(7, y=1)", ""], ["g(3)", "list"], ["f(None)", ""]],
        "imports": [],
    }
    for _ in range(REHEARSALS):
        fds = [os.open("/dev/null", os.O_WRONLY)] * 2
        wire.load(wire.dump(answers(wire.load_own(wire.dump(request)), fds)))
    del modules["solution"]
    try:
        compile("def f(:", "rehearsal.py", "exec")
    except SyntaxError as error:
        fault(error)


def run(request: dict[str, Any], fds: list[int]) -> None:
    if request["mode"] == "program":
        sys.stdin = io.TextIOWrapper(
            io.BufferedReader(io.FileIO(0, closefd=False)), "utf-8", errors="replace"
        )
    mode = MODES[request["mode"]]
    try:
        mode(request, fds)
    except BaseException as error:
        finish(fds, fault(error))


def _streams() -> None:
    """Streams over the descriptors as a fork will have them; only a whole program reads."""
    sys.stdin = io.TextIOWrapper(io.BytesIO(b""))
    for number, name in ((1, "stdout"), (2, "stderr")):
        raw = io.BufferedWriter(io.FileIO(number, "wb", closefd=False))
        text = io.TextIOWrapper(raw, "utf-8", errors="backslashreplace", line_buffering=False)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def finish(fds: list[int], result: dict[str, Any]) -> None:
    """Leave the result and go, whatever threads or exit handlers are still about."""
    raw = wire.dump(result)
    status = 1
    try:
        pwrite(fds[1], raw, 0)
        status = 0
    finally:
        _exit(status)


def load(request: dict[str, Any], fds: list[int], name: str) -> tuple[CodeType, dict[str, Any]]:
    """Compile the code, then let go of the request: from here on nothing can say `syntax`."""
    module = ModuleType(name)
    module.__dict__["__builtins__"] = builtins
    module.__dict__["__file__"] = f"{name}.py"
    modules[name] = module
    try:
        code = compile(request["code"], f"{name}.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        line = getattr(error, "lineno", None)
        where = f" (line {line})" if line else ""
        detail = f"{type(error).__name__}: {getattr(error, 'msg', None) or error}{where}"
        finish(fds, {"kind": "syntax", "detail": detail})
    pwrite(fds[0], b"C", 0)
    close(fds[0])
    return code, module.__dict__


def _program(request: dict[str, Any], fds: list[int]) -> None:
    """A whole program, as `python file.py` would run it."""
    code, names = load(request, fds, "__main__")
    sys.argv[:] = ["main.py"]
    status = 0
    heap.shift(int(os.environ.get("PYTHONHASHSEED", 0)))
    try:
        exec(code, names)
        if "threading" in modules:
            modules["threading"]._shutdown()
    except SystemExit as end:
        status = _exit_status(end)
    except BaseException as error:
        status = 1
        cut = error.__traceback__.tb_next if error.__traceback__ else None
        sys.__excepthook__(type(error), error, cut)
        result = fault(error)
        pwrite(fds[1], wire.dump(result), 0)
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException as error:
        pwrite(fds[1], wire.dump(fault(error)), 0)
        status = status or 1
    _exit(status)


def _exit_status(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def names_for_calls(names: dict[str, Any], imports: list[list[Any]]) -> dict[str, Any]:
    if not imports:
        return names
    extra = dict(names)
    for module, name, alias in imports:
        value = importlib.import_module(module)
        if name:
            value = getattr(value, name)
        elif not alias:
            module = module.partition(".")[0]
            value = modules[module]
        extra[alias or name or module] = value
    return extra


def _calls(request: dict[str, Any], fds: list[int]) -> None:
    finish(fds, answers(request, fds))


def answers(request: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Run the code, evaluate each call, keep the plain values. No expectation is anywhere here."""
    code, names = load(request, fds, "solution")
    values: list[Any] = []
    result: dict[str, Any] = {"values": values}
    try:
        exec(code, names)
        names = names_for_calls(names, request["imports"])
        for source, wrap in request["calls"]:
            value = eval(source, names)
            if wrap == "asyncio.run":
                value = importlib.import_module("asyncio").run(value)
            elif wrap:
                value = WRAPPERS[wrap](value)
            values.append(_plain(value))
    except BaseException as error:
        result.update(fault(error))
    return result


def _plain(value: Any) -> Any:
    try:
        return wire.encode_content(value)
    except wire.Unplain as error:
        return ["?", str(error)]
    except RecursionError:
        sys.setrecursionlimit(max(2000, sys.getrecursionlimit()))
        return ["?", "nested too deeply"]


def _serve(request: dict[str, Any], fds: list[int]) -> None:
    code, names = load(request, fds, "solution")
    solution_side.serve(code, names, fds)


def _tests(request: dict[str, Any], fds: list[int]) -> None:
    close(fds[0])  # which holds the tests: a function of theirs may open what number it is given
    finish(fds, test_side.check(request, fds))


MODES = {"program": _program, "calls": _calls, "serve": _serve, "tests": _tests}

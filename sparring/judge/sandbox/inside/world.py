"""What tests change around the program, streams, environment and functions of the library, and
what it prints: both in processes of their own, and yet as if in one."""

from __future__ import annotations

import builtins
import importlib
import io
import os
import re
import sys
import warnings
from typing import Any

from . import wire
from .files import Files
from .states import GENERATORS, Generators, Limits, seeded

DOTTED = re.compile(r"""patch(?:\.dict|\.multiple)?\(\s*['"]([A-Za-z_][\w.]*)\.(\w+)['"]""")
OBJECT = re.compile(r"""(?:patch\.object|setattr)\(\s*([A-Za-z_][\w.]*)\s*,\s*['"](\w+)['"]""")
ASSIGNED = re.compile(r"^[ \t]*([A-Za-z_]\w*(?:\.\w+)*)\.(\w+)[ \t]*=[^=]", re.MULTILINE)
INPUT = ("read", "readline", "readlines")
WATCHED = {"streams": ("stdout", "stderr"), "stdin": ("stdin",), "warnings": ("warn",),
           "logs": ("assertLogs", "assertNoLogs")}  # fmt: skip


class TestsWorld:
    """The tests' end: sees from their text what may change, and before each question what has."""

    def __init__(self, side: Any, text: str, files: bool) -> None:
        self.side = side
        self.watch = [what for what, words in WATCHED.items() if any(w in text for w in words)]
        self.files = Files("/tmp") if files else None
        if files:
            self.watch.append("files")
        self.environment = dict(os.environ) if "environ" in text else None
        self.limits = Limits(text)
        self.generators = Generators(seeded(text), side.resolve)
        self.watch += self.generators.names
        self.functions: dict[tuple[str, str], Any] = {}
        for pattern in (DOTTED, OBJECT, ASSIGNED):
            for module, name in pattern.findall(text):
                function = None if module in ("sys", "os") else _function(module, name)
                if function is not None:
                    self.functions[module, name] = function
        self.sent: dict[tuple[str, str], Any] = dict(self.functions)
        self.active = bool(
            self.watch or self.environment is not None or self.functions or self.limits.known
        )

    def changes(self) -> dict[str, Any]:
        """What has changed since the last question, for the program's end."""
        message: dict[str, Any] = {}
        if self.files and (changed := self.files.changes()):
            message["files"] = changed
        if self.environment is not None and self.environment != dict(os.environ):
            self.environment = dict(os.environ)
            message["environment"] = self.side.encode(self.environment)
        if limits := self.limits.changes():
            message["limits"] = limits
        if states := self.generators.changes():
            message["states"] = states
        replaced = []
        for key, original in self.functions.items():
            now = getattr(sys.modules[key[0]], key[1], None)
            if now is not self.sent[key]:
                self.sent[key] = now
                replaced.append([*key, None if now is original else self.side.encode(now)])
        if replaced:
            message["functions"] = replaced
        return message

    def happened(self, answer: dict[str, Any]) -> None:
        """What the program printed and warned of, here too."""
        for name in ("stdout", "stderr"):
            if text := answer.get(name):
                getattr(sys, name).write(str(text))
        for lineage, text in answer.get("warnings", ()):
            category = self.side.caught.exception(lineage)
            if not issubclass(category, Warning):
                raise wire.WireError("a warning that is none")
            warnings.warn(str(text), category, stacklevel=5)
        for name, level, text in answer.get("logs", ()):
            importlib.import_module("logging").getLogger(str(name)).log(int(level), "%s", text)
        if self.files and "files" in answer:
            self.files.apply(answer["files"])
        self.generators.follow(answer.get("states", {}))

    def read(self, method: str, args: list[Any]) -> Any:
        if method not in INPUT:
            raise AttributeError(method)
        return getattr(sys.stdin, method)(*args)


def _function(module: str, name: str) -> Any:
    """A function or class of the library by name; nothing for what is not the library's."""
    if module.partition(".")[0] not in (*sys.stdlib_module_names, "builtins"):
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


class _Input(io.TextIOBase):
    """The program's standard input, which is whatever the tests have put there."""

    def __init__(self, side: Any) -> None:
        self.side = side

    def read(self, size: int | None = -1) -> str:
        return str(self.side.tests("stdin", ["read", [-1 if size is None else size]]))

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        return str(self.side.tests("stdin", ["readline", [size]]))

    def readable(self) -> bool:
        return True


class ProgramWorld:
    """The program's end."""

    def __init__(self, side: Any) -> None:
        self.side = side
        self.watched = False
        self.streams: dict[str, io.StringIO] = {}
        self.warned: list[Any] = []
        self.logged: list[Any] = []
        self.files: Files | None = None
        self.originals: dict[tuple[str, str], Any] = {}
        self.generators = Generators([], side.resolve)

    def watch(self, names: list[str]) -> None:
        self.watched = True
        self.generators.names = [name for name in names if name in GENERATORS]
        if "files" in names and os.access("/tmp", os.W_OK):
            self.files = Files("/tmp")
        if "logs" in names:
            self._listen()
        if "streams" in names:
            for name in ("stdout", "stderr"):
                self.streams[name] = io.StringIO()
                setattr(sys, name, self.streams[name])
        if "stdin" in names:
            sys.stdin = _Input(self.side)
        if "warnings" in names:
            warnings.simplefilter("always")
            warnings.showwarning = self._warned

    def _listen(self) -> None:
        logging = importlib.import_module("logging")
        handler = logging.Handler()
        handler.emit = lambda r: self.logged.append([r.name, r.levelno, r.getMessage()])
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(1)  # which of them count, the tests' loggers say

    def _warned(self, message: Any, category: Any, *where: Any, **more: Any) -> None:
        self.warned.append([self.side.raised.lineage(category), str(message)])

    def change(self, message: dict[str, Any]) -> None:
        if self.files and "files" in message:
            self.files.apply(message["files"])
        if "environment" in message:
            environment = wire.decode(message["environment"])
            for name in set(os.environ) - set(environment):
                del os.environ[name]
            os.environ.update(environment)
        for name, limit in message.get("limits", {}).items():
            getattr(sys, name)(limit)
        self.generators.apply(message.get("states", {}))
        for module, name, form in message.get("functions", ()):
            place = builtins if module == "builtins" else importlib.import_module(module)
            original = self.originals.setdefault((module, name), getattr(place, name, None))
            new = original if form is None else wire.decode(form, self.side.resolve)
            setattr(place, name, new)

    def happened(self) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for name, stream in self.streams.items():
            if text := stream.getvalue():
                answer[name] = text
                stream.seek(0)
                stream.truncate()
        if self.warned:
            answer["warnings"], self.warned = self.warned, []
        if self.logged:
            answer["logs"], self.logged = self.logged, []
        if self.files and (changed := self.files.changes()):
            answer["files"] = changed
        if states := self.generators.changes():
            answer["states"] = states
        return answer

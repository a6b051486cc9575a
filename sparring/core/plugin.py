"""What a plug-in brings and how it is discovered: one contract for the pipelines shipped here and
for other packages. Everything is named by strings, so that listing costs no imports."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from sparring.core.errors import ConfigError, UnknownName, close_to, nearest

ENTRY_POINTS = "sparring.plugins"
SHIPPED = (
    "sparring.credit",
    "sparring.training",
    "sparring.games",
    "sparring.pipelines",
    "sparring.bridges",
)
Kind = Literal["games", "credit", "teachers", "evaluations", "benchmarks", "trainers"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bridge:
    """Another package's games, each named `PREFIX:ID`."""

    package: str  # the package that must be installed
    install: str  # the command that installs it
    game: str  # `module:function` of an ID; returns a `Game` subclass, or raises `UnknownName`
    listing: str  # `module:function`; returns ID -> one line on that game
    # `module:function` of an ID and a number of CFR iterations; returns key -> probabilities.
    solver: str = ""


@dataclass(frozen=True, slots=True)
class Plugin:
    """Values are `module:attribute`; folders are relative to the package the plug-in stands in.

    >>> plugin = Plugin("chess", package="my_chess", games={"chess": "my_chess.game:Chess"})
    >>> plugin.games["chess"]
    'my_chess.game:Chess'
    """

    name: str
    package: str  # the package whose folder holds `recipes` and `data`
    games: Mapping[str, str] = field(default_factory=dict)
    bridges: Mapping[str, Bridge] = field(default_factory=dict)  # prefix -> another package's games
    credit: Mapping[str, str] = field(default_factory=dict)  # CreditConfig -> Credit
    teachers: Mapping[str, str] = field(default_factory=dict)  # (Config, Credit, Chat) -> Teacher
    evaluations: Mapping[str, str] = field(default_factory=dict)  # an `Evaluation` of a run
    benchmarks: Mapping[str, str] = field(default_factory=dict)  # of `sparring eval NAME`
    trainers: Mapping[str, str] = field(default_factory=dict)  # other loops than the usual one
    closings: Sequence[str] = ()  # async functions of a finished run's folder, before its report
    checks: Sequence[str] = ()  # functions that say what this machine can do, for `doctor`
    measures: Sequence[str] = ()  # dicts: a measure -> title, explanation, whether it is a share
    report: Sequence[str] = ()  # RunData -> ReportPart or None
    commands: Sequence[str] = ()  # functions that add commands to the command line's app
    config: Mapping[str, str] = field(default_factory=dict)  # key at the top -> its `Section`
    translations: Sequence[str] = ()  # what to write instead of a config of another shape, or None
    environment: Mapping[str, str] = field(default_factory=dict)  # variable -> dotted config key
    readers: Mapping[str, str] = field(default_factory=dict)  # file suffix -> Path -> rows
    problems: Mapping[str, str] = field(default_factory=dict)  # `shipped:NAME` made by rule: rows
    recipes: str = "recipes"
    data: str = "data"  # what else `shipped:NAME` finds

    def folder(self, name: str) -> Path:
        spec = importlib.util.find_spec(self.package)
        assert spec is not None and spec.origin is not None  # it was imported to get here
        return Path(spec.origin).parent / name


@cache
def plugins() -> tuple[Plugin, ...]:
    """All plug-ins: those in our own folders, which need no installation, then those
    that installed packages name under the entry-point group `sparring.plugins`."""
    plugins = [plugin for package in SHIPPED for plugin in _shipped(package)]
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        try:
            plugin = entry.load()
        except Exception as error:  # a stranger's package must not take the command line down
            log.warning("the plug-in %s (%s) cannot be loaded: %r", entry.name, entry.value, error)
            continue
        if not isinstance(plugin, Plugin):
            log.warning("%s names %s, which is no Plugin", entry.name, entry.value)
            continue
        plugins.append(plugin)
    return tuple(plugins)


def _shipped(package: str) -> list[Plugin]:
    module = importlib.import_module(package)
    own = [module.plugin] if hasattr(module, "plugin") else []
    below = (
        importlib.import_module(f"{package}.{info.name}")
        for info in pkgutil.iter_modules(module.__path__)
        if info.ispkg
    )
    return own + [child.plugin for child in below if hasattr(child, "plugin")]


def names(kind: Kind) -> dict[str, str]:
    """Everything registered of one kind: name -> `module:attribute`."""
    return {name: where for plugin in plugins() for name, where in getattr(plugin, kind).items()}


def find(kind: Kind, name: str) -> Any:
    """An object by registered name, by `some.module:Name` or by `path/to/file.py:Name`; a game
    also by `PREFIX:ID` of a bridge."""
    known = names(kind)
    prefix, _, game_id = name.partition(":")
    if kind == "games" and game_id and prefix in bridges():
        return bridge_function(prefix, "game")(game_id)
    meant = close_to(prefix, bridges()) if kind == "games" and prefix.isidentifier() else None
    if game_id and meant and importlib.util.find_spec(prefix) is None:
        raise UnknownName(f"no games come from {prefix!r}; did you mean '{meant}:{game_id}'?")
    what = kind.removesuffix("s")
    if ":" not in name and name not in known:
        raise UnknownName(f"there is no {what} {name!r}; {nearest(name, known)}")
    return load(known.get(name, name), f"the {what} {name!r}")


def bridges() -> dict[str, Bridge]:
    """The bridges of all plug-ins by prefix, whether or not their packages are installed."""
    return {prefix: bridge for plugin in plugins() for prefix, bridge in plugin.bridges.items()}


def bridge_function(prefix: str, name: Literal["game", "listing"]) -> Any:
    """A bridge's function, imported; an error with the install command where its package is
    missing."""
    bridge = bridges()[prefix]
    if importlib.util.find_spec(bridge.package) is None:
        raise ConfigError(
            f"the games of {prefix} need the package {bridge.package}, which is not installed; "
            f"add it with: {bridge.install}"
        )
    return load(getattr(bridge, name))


_beside: list[Path] = []


def look_beside(run: Path) -> None:
    """From now on, files that are named relatively are looked for in the folders above this run
    too: it may be used from elsewhere than where it was made."""
    _beside[:] = [*dict.fromkeys([*run.resolve().parents, *_beside])]


def load_all(
    kind: Literal["measures", "report", "commands", "closings", "checks", "translations"],
) -> list[Any]:
    """The objects that all plug-ins list under one heading, in order."""
    return [load(where) for plugin in plugins() for where in getattr(plugin, kind)]


def load(where: str, wanted_for: str = "it") -> Any:
    """The object at `module:attribute` or `file.py:attribute`."""
    module_name, _, attribute = where.rpartition(":")
    module = _module(module_name, wanted_for)
    try:
        return getattr(module, attribute)
    except AttributeError:
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UnknownName(
            f"{module_name} has no {attribute!r} to take {wanted_for} from; "
            f"{nearest(attribute, public)}"
        ) from None


def _module(where: str, wanted_for: str) -> ModuleType:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            # A module that exists but misses one of its own imports must say so itself.
            if error.name is None or not f"{where}.".startswith(f"{error.name}."):
                raise
            raise UnknownName(f"there is no module {where!r} to take {wanted_for} from") from error
    path = Path(where).resolve()
    near = (folder / where for folder in _beside)
    path = next((file for file in (path, *near) if file.is_file()), path)
    if not path.is_file():
        raise UnknownName(f"there is no file {where!r} to take {wanted_for} from")
    key = f"sparring_file_{path.stem}_{abs(hash(str(path)))}"
    if key in sys.modules:
        return sys.modules[key]
    spec = importlib.util.spec_from_file_location(key, path)
    assert spec is not None and spec.loader is not None  # a .py file always has a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module  # dataclasses look their module up there while it loads
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[key]
        raise
    return module

"""Whether a name can be that of a base model, decided before anything heavy is imported."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sparring.core.errors import ConfigError, nearest
from sparring.core.scripted import PROGRAMS
from sparring.run.machine import unreachable
from sparring.run.rundir import known_runs

BUILT_IN = ("nano", "smollm2")


def need_model(name: str, *, programs: bool = False) -> None:
    """Refuse what is neither built in nor a folder nor a hub name that can be asked for. Only what
    looks like a hub name is asked for there, once, with a short wait."""
    if name in BUILT_IN or Path(name).is_dir():
        return
    why = "it is no folder here, and a hub name is OWNER/NAME"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not Path(name).parent.is_dir():
        away = "" if _cached(name) else unreachable()
        if not away:
            return
        why = f"it is no folder here, and the hub cannot be reached ({away})"
    known = {*BUILT_IN, *known_runs(Path(name)), *(PROGRAMS if programs else ())}
    raise ConfigError(f"there is no policy {name!r}: {why}; {nearest(name, known)}")


def _cached(name: str) -> bool:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (cache / f"models--{name.replace('/', '--')}").is_dir()

"""What a phase made, from what: an output that is there and whose inputs have not changed is not
made again, and one that is being made takes its place only when it is whole."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run import checkpoint, interrupt
from sparring.run.lock import writing_file
from sparring.run.outputs import need_file
from sparring.run.rundir import digest, write_whole

Facts = dict[str, Any]


def make(
    phase: str,
    out: Path,
    inputs: Facts,
    work: Callable[[Path], Facts],
    *,
    remake: bool = False,
) -> Facts:
    """The record of `out`, which `work` makes unless it is there already. `work` is given a path
    beside it, in which it may find what an earlier life left of the same work."""
    need_file(_beside(out, f".{out.name}.begun.json"), "--out")
    with interrupt.listening(), writing_file(out):
        return _made(phase, out, inputs, work, remake)


def _made(
    phase: str, out: Path, inputs: Facts, work: Callable[[Path], Facts], remake: bool
) -> Facts:
    key, record = digest({"phase": phase, **inputs}), _beside(out, f"{out.name}.made.json")
    earlier = _read(record)
    if earlier.get("inputs") == key:
        unfinished = _unfinished(out)
        if not out.exists() and unfinished.exists() and fingerprint(unfinished) == earlier["made"]:
            unfinished.rename(out)  # killed between the last two steps
        if out.exists() and fingerprint(out) == earlier["made"]:
            return {**earlier, "skipped": True}
    elif out.exists() and not remake:
        raise ConfigError(
            f"{out} is there already, and not made from this; choose another path, or remove it"
        )
    return _make(phase, out, key, record, work)


def _make(phase: str, out: Path, key: str, record: Path, work: Callable[[Path], Facts]) -> Facts:
    unfinished, begun = _unfinished(out), _beside(out, f".{out.name}.begun.json")
    if _read(begun).get("inputs") != key:
        _remove(unfinished)
        write_whole(begun, json.dumps({"inputs": key}).encode())
    began = time.perf_counter()
    try:
        facts = work(unfinished)
    except ConfigError:
        # Refused, not interrupted: nothing of it is worth keeping.
        _remove(unfinished)
        begun.unlink(missing_ok=True)
        raise
    made = {
        "phase": phase,
        "inputs": key,
        "made": fingerprint(unfinished),
        "seconds": round(time.perf_counter() - began, 2),
        **facts,
    }
    write_whole(record, json.dumps(made, indent=1).encode())
    _remove(out)
    unfinished.rename(out)
    begun.unlink(missing_ok=True)
    return {**made, "skipped": False}


def fingerprint(name: str | Path) -> str:
    """What tells one input from another: the contents of a file or folder; of a run, its config
    and last checkpoint; of anything else, its name."""
    path = Path(name)
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if not path.is_dir():
        return str(name)
    checkpoints = path / "checkpoints"
    if checkpoints.is_dir():
        last = checkpoints / checkpoint.step_name(max(checkpoint.steps(checkpoints), default=0))
        return digest([_text(path / "config.yaml"), _text(last / checkpoint.MANIFEST)])
    files = sorted(p for p in path.rglob("*") if p.is_file())
    return digest([(str(p.relative_to(path)), fingerprint(p)) for p in files])


def _unfinished(out: Path) -> Path:
    return _beside(out, f".{out.name}.unfinished")


def _beside(out: Path, name: str) -> Path:
    return out.with_name(name)


def _read(path: Path) -> Facts:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

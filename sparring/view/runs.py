"""Which runs there are, how each stands, and what a person must know of one first."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.core.formatting import number
from sparring.run.lock import LOCK
from sparring.view.metrics import event_title, is_calm
from sparring.view.rundata import RunData, is_number, read_log

_FRESH_S = 600  # a run on another machine counts as running while its log is younger than this
_WINDOW = 10  # iterations that rates are taken over


def find_runs(paths: Sequence[Path]) -> dict[str, Path]:
    """Runs by the name they have in an address: the folders given, and the runs in them."""
    entries = [run for path in paths for run in _runs_in(path)]
    every = dict.fromkeys(run.resolve() for run in entries)
    unique = [run for run in every if not every.keys() & set(run.parents)]  # no phases of a run
    names = [run.name for run in unique]
    return {
        name if names.count(name) == 1 else f"{name}-{_short(run)}": run
        for name, run in zip(names, unique, strict=True)
    }


def _runs_in(path: Path) -> list[Path]:
    if (path / "config.yaml").is_file():
        return [path]
    deep = sorted({*path.glob("*/config.yaml"), *path.glob("*/*/config.yaml")})
    return [file.parent for file in deep]


def _short(run: Path) -> str:
    return hashlib.blake2b(str(run).encode(), digest_size=2).hexdigest()


def status(run: RunData) -> tuple[str, str]:
    """`running`, `done`, `stopped` or `not running`, and the reason where there is one."""
    last = next((e for e in reversed(run.events) if e.get("event") == "stopped"), None)
    wanted, done = run.config.get("iterations"), last_iteration(run)
    if _writer_alive(run.path):
        return "running", ""
    if last is not None and (last.get("iteration") or 0) >= done:
        return "stopped", str(last.get("detail") or "")
    whole = is_number(wanted) and done >= wanted
    if whole or ((run.path / "report.html").is_file() and not run.lines):
        return "done", ""
    return "not running", f"It has {done} of {wanted} iterations; add --resume to continue it."


def _writer_alive(path: Path) -> bool:
    """Whether the process that the lock names is still there; the lock itself is not touched."""
    try:
        holder = json.loads((path / LOCK).read_text())
        pid, host = int(holder["pid"]), holder.get("host")
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if host and host != socket.gethostname():
        log = path / "metrics.jsonl"
        return log.exists() and time.time() - log.stat().st_mtime < _FRESH_S
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def last_iteration(run: RunData) -> int:
    return int(run.lines[-1]["iteration"]) if run.lines else 0


def summarize_run(name: str, path: Path) -> dict[str, Any]:
    """One line of the list of runs."""
    run = read_log(path)
    state, reason = status(run)
    log = path / "metrics.jsonl"
    looped = run.config.get("pipeline", "loop") == "loop" or bool(run.lines)
    changed = (log if log.exists() else path / "config.yaml").stat().st_mtime
    return {
        "id": name,
        "name": run.name,
        "path": str(path),
        "recipe": run.config.get("recipe") or "",
        "policy": run.config.get("policy") or "",
        "seed": run.config.get("seed"),
        "status": state,
        "reason": reason,
        # A pipeline in phases has no iterations of its own.
        "iteration": last_iteration(run) if looped else None,
        "iterations": run.config.get("iterations") if looped else None,
        "changed": changed,
        "score": _latest(run, "eval/score"),
        "invalid": _recent(run, "rate/invalid"),
        "void": _recent(run, "rate/void"),
        "rollbacks": sum(e.get("event") == "rollback" for e in run.events),
        "split": time_split(run),
        "device": _device(run),
    }


def _device(run: RunData) -> str:
    on_gpu = any("memory/gpu_peak_gb" in line for line in run.lines[-1:])
    return "GPU" if on_gpu else "CPU"


def time_split(run: RunData) -> dict[str, float]:
    """Shares of the wall-clock of the last iterations."""
    parts = {"play": "generate", "learn": "learn", "judge": "judge", "evaluate": "evaluate"}
    lines = run.lines[-_WINDOW:]
    total = _sum(lines, "time/total_s")
    if not total:
        return {}
    shares = {name: _sum(lines, f"time/{key}_s") / total for name, key in parts.items()}
    return shares | {"rest": max(0.0, 1 - sum(shares.values()))}


def _sum(lines: Sequence[Mapping[str, Any]], key: str) -> float:
    return sum(float(line[key]) for line in lines if is_number(line.get(key)))


def _latest(run: RunData, key: str) -> float | None:
    return next((line[key] for line in reversed(run.lines) if is_number(line.get(key))), None)


def _recent(run: RunData, key: str) -> float | None:
    values = [line[key] for line in run.lines[-_WINDOW:] if is_number(line.get(key))]
    return sum(values) / len(values) if values else None


def notices(run: RunData, void_reasons: Sequence[tuple[str, int]] = ()) -> list[dict[str, Any]]:
    """What a person must know, the most urgent first, each with its reason."""
    state, reason = status(run)
    kind = {"running": "calm", "done": "good"}.get(state, "alarm")
    done, wanted = last_iteration(run), run.config.get("iterations")
    detail = reason or (f"Iteration {done:,} of {wanted:,}." if is_number(wanted) else "")
    entries = [
        _notice("alarm", event_title(e), str(e.get("detail") or ""), iteration=e.get("iteration"))
        for e in run.events
        if not is_calm(e) and e.get("event") != "stopped"
    ]
    entries.append(_notice(kind, state.capitalize(), detail))
    return entries + _void(run, void_reasons) + _canary(run)


def _notice(kind: str, title: str, detail: str, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "title": title, "detail": detail, **more}


def _void(run: RunData, reasons: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    rate = _recent(run, "rate/void")
    if rate is None:
        return []
    if rate == 0:
        return [_notice("good", "No void games", f"In the last {_WINDOW} iterations.")]
    why = "; ".join(f"{reason} ({number(count)})" for reason, count in reasons)
    title = f"{number(rate, True)} of the latest games are void"
    detail = "They are not learned from." + (f" Reasons: {why}" if why else "")
    return [_notice("alarm", title, detail, link="games?void=yes")]


def _canary(run: RunData) -> list[dict[str, Any]]:
    """The gap between logprobs as sampled and as learned from, against the limit of the config."""
    values = [
        value
        for line in run.lines
        for key, value in line.items()
        if key.startswith("learn/") and key.endswith("canary") and is_number(value)
    ]
    limit = run.config.get("canary")
    if not values or not is_number(limit):
        return []
    detail = (
        f"At most {number(max(values))} nats between sampled and learned logprobs; the limit is "
        f"{number(limit)}."
    )
    if max(values) > limit:
        return [_notice("alarm", "Canary above its limit", detail)]
    return [_notice("good", "Canary quiet", detail)]

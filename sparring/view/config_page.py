"""A run's config key by key, beside its recipe's and other runs', and the machine it is on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.run.config import load_recipe
from sparring.view.rundata import is_number, read_log

_LOG_LINES = 200
# Keys in which runs of one experiment differ: what is left the same makes them repetitions.
_OF_ONE_RUN = ("seed", "tracking", "run")


def config(run: Path) -> dict[str, Any]:
    data = read_log(run)
    recipe = str(data.config.get("recipe") or "")
    try:
        usual = flat(load_recipe(recipe).model_dump(mode="json")) if recipe else {}
    except ConfigError:  # a recipe of another package, or a file that has moved
        usual = {}
    own = flat(data.config)
    log = _console(run)
    return {
        "recipe": recipe if usual else "",
        "rows": [
            {
                "key": key,
                "value": value,
                "recipe": usual.get(key),
                "differs": bool(usual) and key in usual and usual[key] != value,
            }
            for key, value in own.items()
        ],
        "machine": _machine(log, data.lines),
        "log": log[-_LOG_LINES:],
    }


def _console(run: Path) -> list[str]:
    try:
        return (run / "console.log").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _machine(log: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The machine as the run recorded it at the start, and the most memory it has held."""
    facts: list[dict[str, str]] = []
    starts = [at for at, line in enumerate(log) if line.startswith("machine: ")]
    if starts:
        facts.append({"name": "Machine", "value": log[starts[-1]].removeprefix("machine: ")})
        for line in log[starts[-1] + 1 :]:
            if not line.startswith("  "):
                break
            key, _, why = line.strip().partition(": ")
            facts.append({"name": key, "value": why})
    for key, name in (
        ("memory/cpu_peak_gb", "Peak memory"),
        ("memory/gpu_peak_gb", "Peak GPU memory"),
    ):
        peaks = [line[key] for line in lines if is_number(line.get(key))]
        if peaks:
            facts.append({"name": name, "value": f"{max(peaks):.2f} GB"})
    return facts


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys; an empty section stands for itself."""
    facts: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            facts |= flat(value, f"{prefix}{key}.")
        else:
            facts[f"{prefix}{key}"] = value
    return facts


def differences(configs: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The keys in which runs differ, with the value of each run."""
    flattened = {name: flat(config) for name, config in configs.items()}
    keys = dict.fromkeys(key for one in flattened.values() for key in one)
    rows = [{"key": k, "values": [one.get(k) for one in flattened.values()]} for k in keys]
    return [row for row in rows if any(value != row["values"][0] for value in row["values"])]


def seeds_apart(configs: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Runs that differ in their seed alone, two or more together: repetitions of one experiment."""
    groups: dict[str, list[str]] = {}
    for name, one in configs.items():
        same = {k: v for k, v in flat(one).items() if k.split(".")[0] not in _OF_ONE_RUN}
        groups.setdefault(repr(sorted(same.items(), key=str)), []).append(name)
    return [group for group in groups.values() if len(group) > 1]

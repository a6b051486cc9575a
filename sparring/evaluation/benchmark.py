"""What every benchmark is asked with; a plug-in registers a function of it under `benchmarks`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

REFERENCE = "reference"  # a policy that answers with the benchmark's own solutions


@dataclass(frozen=True, slots=True)
class Asked:
    """One evaluation as it was asked for. Whoever evaluates it prints the result and returns an
    exit code: 0 done, 1 some attempts are void, 2 nothing could be evaluated."""

    benchmark: str
    policy: str
    data: str | None = None
    k: str = "1"
    samples: int | None = None
    problems: int | None = None
    chat: bool = False
    temperature: float | None = None
    max_tokens: int = 512
    seed: int = 0
    sandbox: str = "bubblewrap"
    details: Path | None = None
    as_json: bool = False


def batch_size(engine: Any) -> int:
    """Requests that are made at once, and lost at most by a kill: fewer where they take longer."""
    policies = getattr(engine, "policies", None)
    return 64 if policies is not None and policies.device.type == "cpu" else 512

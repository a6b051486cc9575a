"""`sparring finetune`: a file of demonstrations and a model in, a policy out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparring.core.errors import ConfigError
from sparring.learn.demonstrations import read_demonstrations
from sparring.training.finetune import Progress, finetune, finetune_config


def finetune_file(
    model: str,
    data: Path,
    out: Path,
    *,
    role: str,
    start: str | None,
    epochs: int,
    resume: bool,
    seed: int = 0,
    progress: Progress | None = None,
    **learn: Any,
) -> dict[str, Any]:
    """Fit, and say what came of it."""
    if not role.isidentifier():
        raise ConfigError(f"the role {role!r} names a policy: letters, digits and underscores")
    demonstrations = read_demonstrations(str(data))
    config = finetune_config(model, epochs=epochs, seed=seed, **learn)
    run = finetune(
        config, out, demonstrations, name=role, start=start, resume=resume, progress=progress
    )
    return {
        "policy": f"{out}:{role}",
        "adapter": str(run.path / "adapter"),
        "demonstrations": len(demonstrations),
        "epochs": epochs,
    }

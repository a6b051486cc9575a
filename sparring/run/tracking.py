"""Who else is told about the metrics: TensorBoard, and Weights & Biases where it is wanted."""

from __future__ import annotations

import logging
import os
from importlib import util
from pathlib import Path
from typing import Any

from sparring.run.config import Config, ConfigError

log = logging.getLogger(__name__)


class Tracking:
    """Passes numbers on under the names they have in metrics.jsonl, which is written regardless."""

    def __init__(self, config: Config, run: Path, first: int) -> None:
        self._board: Any = None
        self._wandb: Any = None
        if config.tracking.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run / "tensorboard"), purge_step=first)
        if wants_wandb(config.tracking.wandb):
            self._wandb = _start_wandb(config, run)

    def log(self, metrics: dict[str, Any]) -> None:
        step = metrics["iteration"]
        numbers = {k: v for k, v in metrics.items() if isinstance(v, int | float)}
        if self._board is not None:
            for key, value in numbers.items():
                self._board.add_scalar(key, value, step)
        if self._wandb is not None:
            self._wandb.log(numbers, step=step)

    def close(self) -> None:
        if self._board is not None:
            self._board.close()
        if self._wandb is not None:
            self._wandb.finish()


def wants_wandb(setting: str) -> bool:
    """`auto` follows the key in the environment; `always` without a key records offline."""
    installed = util.find_spec("wandb") is not None
    if setting == "always" and not installed:
        raise ConfigError("tracking.wandb is `always` but wandb is missing: pip install wandb")
    return setting == "always" or (
        setting == "auto" and installed and bool(os.environ.get("WANDB_API_KEY"))
    )


def _start_wandb(config: Config, run: Path) -> Any:
    import wandb

    online = bool(os.environ.get("WANDB_API_KEY"))
    if not online:
        log.info("no WANDB_API_KEY: recording offline into %s", run / "wandb")
    return wandb.init(
        project=config.tracking.project,
        name=run.name,
        dir=str(run),
        mode="online" if online else "offline",
        config=config.model_dump(mode="json"),
        resume="allow",
    )

"""Who else is told about the metrics: TensorBoard, and Weights & Biases where it is wanted."""

from __future__ import annotations

import logging
import os
import secrets
from importlib import util
from pathlib import Path
from typing import Any

from sparring.run.config import Config, ConfigError
from sparring.run.rundir import write_whole

log = logging.getLogger(__name__)
_WAIT_S = 30  # for the W&B server, before the run is recorded offline


class Tracking:
    """Passes numbers on under the names they have in metrics.jsonl, which is written regardless."""

    def __init__(self, config: Config, run: Path, first: int) -> None:
        self._board: Any = None
        self._wandb: Any = None
        if config.tracking.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed life of this run wrote after its last checkpoint is played again.
            again = first + 1 if first else None
            self._board = SummaryWriter(str(run / "tensorboard"), purge_step=again)
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
        """Never the reason a run fails: what it was told is in metrics.jsonl."""
        closers = [self._board and self._board.close, self._wandb and self._wandb.finish]
        for close in filter(None, closers):
            try:
                close()
            except Exception as error:
                log.warning("tracking could not be closed: %s", error)


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

    plan: dict[str, Any] = {
        "project": config.tracking.project,
        "name": run.name,
        "id": _wandb_id(run),
        "dir": str(run),
        "config": config.model_dump(mode="json"),
        "resume": "allow",
        "settings": wandb.Settings(silent=True, init_timeout=_WAIT_S),
    }
    if os.environ.get("WANDB_API_KEY"):
        try:
            return wandb.init(mode="online", **plan)
        except wandb.Error as error:
            log.warning("W&B cannot be reached: %s", error)
            wandb.teardown()  # or the id would still be taken
    log.info("recording for W&B offline into %s; `wandb sync` sends it", run / "wandb")
    return wandb.init(mode="offline", **plan)


def _wandb_id(run: Path) -> str:
    """The same for every life of a run, so that they are one run there too."""
    path = run / "wandb_id"
    if not path.exists():
        write_whole(path, secrets.token_hex(8).encode())
    return path.read_text()

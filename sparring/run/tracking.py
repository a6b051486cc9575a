"""Where else the metrics go: TensorBoard, and where they are wanted Weights & Biases and
trackio; live where that is possible, into a folder of the run otherwise."""

from __future__ import annotations

import logging
import netrc
import os
import secrets
from importlib import util
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sparring.core.errors import ConfigError
from sparring.run.config import Config
from sparring.run.rundir import write_whole

log = logging.getLogger(__name__)
_WAIT_S = 30  # for the W&B server, before the run is recorded offline
_TRACKIO_ADDRESSES = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class Tracking:
    """Passes numbers on under the names they have in metrics.jsonl, which is written regardless."""

    def __init__(self, config: Config, run: Path, first: int) -> None:
        self._board: Any = None
        self._others: list[Any] = []  # that log and finish
        self._send: list[str] = []  # commands that send what was recorded offline
        starts = [_start_wandb] if wants_wandb(config.tracking.wandb) else []
        starts += [_start_trackio] if wants_trackio(config.tracking.trackio) else []
        if config.tracking.tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            # What a killed life of this run wrote after its last checkpoint is played again.
            again = first + 1 if first else None
            self._board = SummaryWriter(str(run / "tensorboard"), purge_step=again)
        for start in starts:
            tracker, send = start(config, run)
            self._others.append(tracker)
            self._send += [send] if send else []

    def log(self, metrics: dict[str, Any]) -> None:
        step = metrics["iteration"]
        numbers = {k: v for k, v in metrics.items() if isinstance(v, int | float)}
        if self._board is not None:
            for key, value in numbers.items():
                self._board.add_scalar(key, value, step)
        for tracker in self._others:
            tracker.log(numbers, step=step)

    def close(self) -> None:
        """Never the reason a run fails: the metrics are in metrics.jsonl."""
        closers = [self._board.close] if self._board is not None else []
        for close in [*closers, *(tracker.finish for tracker in self._others)]:
            try:
                close()
            except Exception as error:
                log.warning("tracking could not be closed: %s", error)
        for command in self._send:
            log.info("recorded offline; to send it: %s", command)


def wants_wandb(setting: str) -> bool:
    """`auto` follows the key; `always` without a key records offline."""
    return _wanted("wandb", setting, has_wandb_key())


def wants_trackio(setting: str) -> bool:
    """`auto` follows the Space or server that the environment names; `always` without one records
    into a folder of the run."""
    return _wanted("trackio", setting, any(map(os.environ.get, _TRACKIO_ADDRESSES)))


def _wanted(module: str, setting: str, has_place: bool) -> bool:
    installed = util.find_spec(module) is not None
    if setting == "always" and not installed:
        raise ConfigError(
            f"tracking.{module} is `always` but {module} is missing: pip install {module}"
        )
    return setting == "always" or (setting == "auto" and installed and has_place)


def has_wandb_key() -> bool:
    """In the environment, or where `wandb login` put it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    server = urlsplit(os.environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    try:
        return netrc.netrc().authenticators(server) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def _start_wandb(config: Config, run: Path) -> tuple[Any, str]:
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
    if has_wandb_key() and os.environ.get("WANDB_MODE") != "offline":
        try:
            return wandb.init(mode="online", **plan), ""
        except wandb.Error as error:
            log.warning("W&B cannot be reached: %s", error)
            wandb.teardown()  # or the id would still be taken
    return wandb.init(mode="offline", **plan), f"wandb sync {run / 'wandb'}/offline-run-*"


def _start_trackio(config: Config, run: Path) -> tuple[Any, str]:
    addresses = {name: os.environ.get(name) for name in _TRACKIO_ADDRESSES}
    live = any(addresses.values()) and os.environ.get("HF_HUB_OFFLINE") != "1"
    if not live:
        os.environ["TRACKIO_DIR"] = str((run / "trackio").resolve())  # read when it is imported
        for name in addresses:
            os.environ.pop(name, None)
    import trackio

    tracker = trackio.init(
        project=config.tracking.project,
        name=run.name,
        config=config.model_dump(mode="json"),
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    space = addresses[_TRACKIO_ADDRESSES[0]] or "USER/SPACE"
    sync = f"trackio sync --project {config.tracking.project} --space-id {space}"
    return tracker, "" if live else f"TRACKIO_DIR={run / 'trackio'} {sync}"


def _wandb_id(run: Path) -> str:
    """The same for every life of a run, so that they are one run there too."""
    path = run / "wandb_id"
    if not path.exists():
        write_whole(path, secrets.token_hex(8).encode())
    return path.read_text()

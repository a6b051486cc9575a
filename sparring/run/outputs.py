"""Whether what a command is to write can be written, and its port be had: tried before its work
begins, and taken back, so that hours are not spent on what has nowhere to go, and a refusal leaves
nothing behind."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from sparring.core.errors import ConfigError


def cache_folder() -> Path:
    """Where what can be made again is kept between commands."""
    return Path(os.environ.get("SPARRING_CACHE") or Path.home() / ".cache" / "sparring")


def need_folder(path: Path, option: str) -> None:
    """Refuse a folder that cannot be made, or written into."""
    if os.path.isfile(path):
        raise ConfigError(f"{option} {path} is a file, and a folder is wanted; choose another name")
    _try_file(path / ".tried", option, path)


def need_file(path: Path, option: str) -> None:
    """Refuse a file that cannot be written; one that is there keeps what it holds."""
    if os.path.isdir(path):
        raise ConfigError(f"{option} {path} is a folder, and a file is wanted; choose another name")
    _try_file(path, option, path)


def _try_file(file: Path, option: str, named: Path) -> None:
    new: list[Path] = []
    try:
        for folder in reversed(file.parents):
            if not os.path.isdir(folder):
                folder.mkdir()
                new.append(folder)
        there = file.exists()
        with file.open("ab"):
            pass
        if not there:
            file.unlink()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"{option} {named} cannot be written: {why}. Choose another name, or make this one "
            "writable"
        ) from None
    finally:
        for folder in reversed(new):
            folder.rmdir()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens before anything slow begins; 0 is any free port."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"port {port} of {host} cannot be had ({error.strerror}); choose another with --port"
        ) from error
    listener.listen(128)
    return listener

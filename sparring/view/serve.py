"""Starts the browser view on this machine's own address."""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from sparring.core.errors import ConfigError

HOST = "127.0.0.1"


def serve(
    runs: Sequence[Path], port: int, announce: Callable[[str], None], *, browser: bool = False
) -> None:
    """Serve until interrupted; `announce` gets the address once it can be opened."""
    import uvicorn

    from sparring.view import token_text
    from sparring.view.server import make_app

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError as error:
        raise ConfigError(
            f"port {port} cannot be had ({error.strerror}); choose another with --port"
        ) from error
    listener.listen(128)  # before the address is announced
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    config = uvicorn.Config(make_app(runs), log_level="warning", timeout_graceful_shutdown=1)
    token_text.warm()
    announce(address)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listener])

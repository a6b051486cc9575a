"""Starts the browser view on this machine's own address."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from sparring.run.listen import listen

HOST = "127.0.0.1"


def serve(
    runs: Sequence[Path], port: int, announce: Callable[[str], None], *, browser: bool = False
) -> None:
    """Serve until interrupted; `announce` gets the address once it can be opened."""
    import uvicorn

    from sparring.view import token_text
    from sparring.view.server import make_app

    listener = listen(HOST, port)
    address = f"http://{HOST}:{listener.getsockname()[1]}"
    config = uvicorn.Config(make_app(runs), log_level="warning", timeout_graceful_shutdown=1)
    token_text.warm()
    announce(address)
    if browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listener])

"""A port to serve on, had before anything slow begins: its number is known, or it is refused."""

from __future__ import annotations

import socket

from sparring.core.errors import ConfigError


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; 0 is any free port."""
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

"""What the host and a zygote say to each other: small fixed messages, and nothing of a request."""

from __future__ import annotations

import struct

START, KILL, LOOK, READY, EXIT = b"S", b"K", b"P", b"R", b"X"
HEAD = struct.Struct("=cI")  # what, job
TAIL = struct.Struct("=cIiiQd")  # EXIT, job, wait status, errno, peak KiB, cpu seconds

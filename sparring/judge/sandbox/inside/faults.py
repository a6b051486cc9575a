"""How an exception of a program is reported to the host."""

from __future__ import annotations

import errno
from typing import Any

FORBIDDEN = {errno.EPERM, errno.EACCES, errno.EROFS}


def fault(error: BaseException) -> dict[str, Any]:
    """An exception as plain data. Everything in it may be a lie: it only ever explains a fail."""
    kind = "exception"
    if isinstance(error, MemoryError):
        kind = "memory"
    elif isinstance(error, OSError) and error.errno in FORBIDDEN:
        kind = "forbidden call"
    elif isinstance(error, OSError) and error.errno == errno.EFBIG:
        kind = "output limit"
    try:
        text = str(error)[:400]
    except BaseException:
        text = "(its text cannot be had)"
    name = type.__dict__["__name__"].__get__(type(error))
    return {"kind": kind, "detail": f"{name}: {text}" if text else name}

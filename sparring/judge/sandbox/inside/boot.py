"""Starts a zygote, in the order that keeps what its forks need together in memory."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys

from . import heap

# What the zygote itself imports: all of it before the holes are filled, so that only its own
# functions come after.
OWN = (
    "_sitebuiltins", "_socket", "atexit", "collections", "contextlib", "ctypes", "datetime",
    "errno", "io", "operator", "os", "re", "resource", "select", "struct", "types", "typing",
)  # fmt: skip


def main() -> None:
    config = json.loads(sys.argv[1])
    del sys.argv[1:]
    os.environ.pop("LD_BIND_NOW", None)  # it has done its work: no fork looks up a symbol
    sys.path[:] = [p for p in sys.path[1:] if p] + config["paths"]
    for name in (*OWN, *config["preload"]):
        importlib.import_module(name)
    gc.collect()
    heap.plug()
    importlib.import_module(".zygote", __package__).main(config)

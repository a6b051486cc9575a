"""Where tests find the published data sets, on machines that have them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def folder(name: str = "data") -> Path:
    """The folder that SPARRING_DATA names, or the one beside the checkout."""
    given = os.environ.get("SPARRING_DATA")
    return Path(given) if given and name == "data" else ROOT.parent / "shared" / name


def data(name: str) -> Path | None:
    path = folder() / name
    return path if path.is_file() else None


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]

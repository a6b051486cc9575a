"""The files below a folder, as two processes with a folder each have them: what either writes or
removes between two questions, the other has too."""

from __future__ import annotations

import os
from typing import Any

Seen = dict[str, tuple[int, int]]  # path → when it was changed, and its size; -1 of a folder


class Files:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.seen: Seen = {}

    def changes(self) -> list[Any]:
        """[path, content] of what is new or changed since; None of a folder, and a path alone of
        what is gone. Folders stand before what is in them."""
        now = self._look()
        changed: list[Any] = []
        for path in sorted(now.keys() | self.seen.keys()):
            if path not in now:
                changed.append([path])
            elif self.seen.get(path) != now[path]:
                changed.append([path, None if now[path][1] < 0 else self._content(path)])
        self.seen = now
        return changed

    def apply(self, changed: list[Any]) -> None:
        for path, *content in changed:
            self._apply(os.path.join(self.folder, inside(path)), content)
        self.seen = self._look()

    def _apply(self, path: str, content: list[Any]) -> None:
        if content and content[0] is None:
            os.makedirs(path, exist_ok=True)
        elif content:
            with open(path, "wb") as file:
                file.write(bytes.fromhex(content[0]))
        elif os.path.isdir(path):
            for inner in os.listdir(path):
                self._apply(os.path.join(path, inner), [])
            os.rmdir(path)
        elif os.path.exists(path):
            os.unlink(path)

    def _look(self) -> Seen:
        seen: Seen = {}
        for where, folders, files in os.walk(self.folder):
            for name in folders:
                seen[os.path.relpath(os.path.join(where, name), self.folder)] = (0, -1)
            for name in files:
                path = os.path.join(where, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    status = os.stat(path)
                    relative = os.path.relpath(path, self.folder)
                    seen[relative] = (status.st_mtime_ns, status.st_size)
        return seen

    def _content(self, path: str) -> str:
        with open(os.path.join(self.folder, path), "rb") as file:
            return file.read().hex()


def inside(path: Any) -> str:
    """A relative path that stays in the folder."""
    if type(path) is not str or path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"no path below the folder: {path!r:.100}")
    return path

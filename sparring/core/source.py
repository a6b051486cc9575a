"""Python that models wrote, as a tree; on the standard library alone."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)  # what compiling raises


@contextmanager
def unwarned() -> Iterator[None]:
    """Compile what a model wrote: its odd escapes and literals are not our user's business."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parsed(text: str) -> ast.Module | None:
    """Python as a tree, or None where it is none."""
    try:
        with unwarned():
            return ast.parse(text)
    except UNPARSABLE:
        return None

"""What a thinking model thought, apart from what it answered."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


def split_thinking(text: str) -> tuple[str, str]:
    """Thoughts and answer. Templates of some models open the thoughts in the prompt, so that a
    reply may begin in the middle of them; one that never closes them has answered nothing."""
    before, close, after = text.partition(CLOSE)
    if close:
        return before.replace(OPEN, "", 1).strip(), after.lstrip("\n")
    if text.lstrip().startswith(OPEN):
        return text.lstrip()[len(OPEN) :].strip(), ""
    return "", text

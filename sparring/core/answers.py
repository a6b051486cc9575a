"""How the games ask for an answer and read it, so that all of them are strict in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparring.core.errors import nearest

# reason: rules, observation, think aloud. short: the same, answer only, for small models.
# terse: a handful of characters without rules, for models that learn from random weights.
STYLES = ("reason", "short", "terse")

_OPEN = r"\boxed{"


def check_style(style: str) -> None:
    if style not in STYLES:
        raise ValueError(f"there is no style {style!r}; {nearest(style, STYLES)}")


def boxed(text: str) -> str | None:
    r"""What stands in the last complete \boxed{…}, or None where there is none."""
    start = text.rfind(_OPEN)
    while start >= 0:
        inside = _balanced(text, start + len(_OPEN))
        if inside is not None:
            return inside
        start = text.rfind(_OPEN, 0, start)
    return None


def answer(text: str) -> str:
    r"""The action a text names: its last box, or, without any box, the whole of it."""
    inner = boxed(text)
    inner = (text if inner is None else inner).strip()
    # Real models like \boxed{\text{bet}}; it says the same.
    if inner.startswith(r"\text{") and inner.endswith("}"):
        inner = inner[len(r"\text{") : -1].strip()
    if inner.startswith("[") and inner.endswith("]"):
        inner = inner[1:-1].strip()
    return inner


def named(text: str, actions: Sequence[str]) -> int | None:
    """The number of the action a text names; in whatever case, where that leaves no doubt."""
    given = answer(text)
    if given in actions:
        return actions.index(given)
    given = given.casefold()
    alike = [i for i, action in enumerate(actions) if action.casefold() == given]
    return alike[0] if len(alike) == 1 else None


def ask(style: str, what: str, form: str = "") -> str:
    """The closing line of a prompt in words; where the form is not plain, a small model must
    see it."""
    if style == "reason":
        return f"Reason step by step, and put your final answer, {what}, in \\boxed{{}}."
    return f"Answer only with {what}: {form}" if form else f"Answer only with {what}."


def limit(style: str, terse: int, short: int, chosen: int | None) -> dict[str, Any]:
    """The sampling a game asks for; how long reasoning may go on is left to the recipe."""
    if chosen is not None:
        return {"max_tokens": chosen}
    return {} if style == "reason" else {"max_tokens": terse if style == "terse" else short}


def _balanced(text: str, start: int) -> str | None:
    depth = 1
    for at in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[start:at]
    return None

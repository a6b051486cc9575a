"""What may be typed behind an option: the types and ranges that several commands share. A number is
a finite one, which typer's own ranges do not ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from sparring.core.nearest import nearest

SANDBOXES = {"bubblewrap": "bubblewrap", "bwrap": "bubblewrap", "unsafe": "unsafe"}


def between(
    low: float, high: float = math.inf, *, above: bool = False, below: bool = False
) -> Callable[[Any], float]:
    """Reads a number from `low` to `high`; with `above` and `below`, strictly between."""

    def parse(text: Any) -> float:
        try:
            value = float(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number") from None
        too_low = value < low or (above and value == low)
        too_high = value > high or (below and value == high)
        if too_low or too_high or not math.isfinite(value):
            least = f"above {low:g}" if above else f"{low:g} or more"
            most = f" and below {high:g}" if below else f" and at most {high:g}"
            raise typer.BadParameter(f"{text} is not {least}{most if high < math.inf else ''}")
        return value

    return parse


def number(help: str = "", **limits: Any) -> Any:
    """An option that is a finite number within limits."""
    given = {k: limits.pop(k) for k in ("envvar",) if k in limits}
    return typer.Option(help=help, metavar="FLOAT", parser=between(**limits), **given)


def sandbox_word(text: Any) -> str:
    """`bubblewrap`, however it is called, or `unsafe`."""
    if text not in SANDBOXES:
        raise typer.BadParameter(f"there is no sandbox {text!r}; {nearest(str(text), SANDBOXES)}")
    return SANDBOXES[text]


Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1)]
Processes = Annotated[
    int, typer.Option(min=1, help="Number of learner processes on this machine, one per GPU.")
]
Temperature = Annotated[float, number("0: the likeliest token.", low=0)]
Sandbox = Annotated[
    str,
    typer.Option(
        help="bubblewrap, or `unsafe`: with your own rights.", metavar="NAME", parser=sandbox_word
    ),
]

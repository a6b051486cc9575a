"""What may be typed behind an option: the types and ranges that several commands share. A number is
a finite one, which typer's own ranges do not ask for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from sparring.core.errors import ConfigError, nearest
from sparring.core.types import drawable

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
    return typer.Option(help=help, metavar="FLOAT", parser=between(**limits))


def folder_option(help: str) -> Any:
    """An option that names a folder to write. `--run "$UNSET"` means none, not the current one."""
    return typer.Option(help=help, metavar="<path>", parser=_named)


def _named(text: Any) -> Path:
    if not str(text):
        raise typer.BadParameter("it is empty; name a folder (. is the current one)")
    return Path(text)


def temperature_option(help: str, **given: Any) -> Any:
    """An option that is a sampling temperature."""
    return typer.Option(help=help, metavar="FLOAT", parser=_temperature, **given)


def _temperature(text: Any) -> float:
    try:
        return drawable(between(0)(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def sandbox_word(text: Any) -> str:
    """`bubblewrap`, however it is called, or `unsafe`."""
    if text not in SANDBOXES:
        raise typer.BadParameter(f"there is no sandbox {text!r}; {nearest(str(text), SANDBOXES)}")
    return SANDBOXES[text]


def one_policy(argument: str | None, option: str | None, command: str) -> str:
    """The policy, whichever way it was named."""
    if (argument is None) == (option is None):
        raise ConfigError(f"name one policy: `sparring {command} POLICY`, or --policy POLICY")
    return argument or option or ""


Seed = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, metavar="INTEGER", help="Seed of all random numbers.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Config keys to set, such as learn.lr=1e-4."),
]
GameOptions = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OPTION=VALUE]...", help="Options of the game, such as style=terse."),
]
GameOfRun = Annotated[str | None, typer.Option(help="Which game, if the run has several.")]
Style = Annotated[str | None, typer.Option(help="The game's style of prompts.")]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens of a reply; as the run was trained otherwise."),
]
Device = Annotated[str, typer.Option(help="Where the model runs: auto, cpu or cuda.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the last valid checkpoint.")]
PolicyToo = Annotated[str | None, typer.Option(help="The same policy, given as an option.")]
Processes = Annotated[
    int, typer.Option(min=1, help="Number of learner processes on this machine, one per GPU.")
]
Temperature = Annotated[
    float, temperature_option("Sampling temperature; 0 takes the likeliest token.")
]
Sandbox = Annotated[
    str,
    typer.Option(
        help="bubblewrap, or unsafe (programs run with your own rights).",
        metavar="NAME",
        parser=sandbox_word,
    ),
]

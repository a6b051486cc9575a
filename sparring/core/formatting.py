"""Escaping and numbers for people, the same on every surface."""

from __future__ import annotations

import html
import math
import re

ACRONYMS = {
    **{"kl": "KL", "lr": "learning rate", "mbpp": "MBPP", "gsm8k": "GSM8K", "gpu": "GPU"},
    "selfplay": "self-play",
}


def esc(value: object) -> str:
    """Any text as HTML text or attribute. Models say anything, so nothing goes in without it."""
    text = str(value).replace("\x00", "␀")
    return html.escape(text, quote=True)


def humanise(key: str) -> str:
    """ "avg_batch_reward" as "Avg batch reward"."""
    words = [ACRONYMS.get(word, word) for word in re.split(r"[_\s]+", key) if word]
    text = " ".join(words) or key
    return text[:1].upper() + text[1:]


def number(value: float, percent: bool = False) -> str:
    """A number as a person would write it: three figures, thousands apart, a real minus."""
    if not math.isfinite(value):
        return "–"
    if percent:
        text = f"{_bare(f'{100 * value:.1f}')} %"
    elif value == 0:
        text = "0"
    elif abs(value) < 1e-3 or abs(value) >= 1e7:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        text = f"{_bare(mantissa)}e{int(exponent)}"
    elif value == round(value):
        text = f"{value:,.0f}"
    else:
        digits = max(0, 2 - math.floor(math.log10(abs(value))))
        text = _bare(f"{value:,.{digits}f}")
    return text.replace("-", "−")


def _bare(text: str) -> str:
    """Without zeros that say nothing: "7.0" is "7"."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def likelihood(logprob: float) -> str:
    """How likely something was: a share, or its logarithm where the share would read 0 %."""
    if logprob < -7:
        return f"logprob {number(logprob)}"
    return f"probability {number(math.exp(logprob), True)}"


def signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value)


def duration(seconds: float) -> str:
    """ "4 min 12 s", with two parts at most."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit, smaller, name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{whole} s"


def listing(words: list[str]) -> str:
    """ "a, b and c"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"

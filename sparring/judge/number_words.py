"""Reads numbers that are written in words: "one hundred and five", "forty-two"."""

from __future__ import annotations

import re

SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_UNITS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_WORDS = {
    **{word: n for n, word in enumerate(_UNITS)},
    **{word: 10 * n for n, word in enumerate(_TENS, 2)},
}
# No quarters, which are coins as well.
_PARTS = {"half": 2, "halve": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "eighth": 8}
_PARTS |= {"tenth": 10}
_SOME_PART = "|".join(_PARTS)
_ANY = "|".join((*_WORDS, *SCALES))
_RUN = re.compile(
    rf"\b(?<!no )(?:a )?(?:{_ANY})\b(?:(?:[ -]|,? and |, )(?:{_ANY})\b(?! (?:{_SOME_PART})))*",
    re.IGNORECASE,
)
_PART = re.compile(rf"\b(\d+)[ -]({_SOME_PART})s?\b", re.IGNORECASE)
_HALF = re.compile(r"\b(?:a )?half\b", re.IGNORECASE)


def in_digits(text: str) -> str:
    """A text without digits, with its number words as such; words that make no one number stay
    several."""
    text = _RUN.sub(lambda m: _digits(re.findall(r"[a-z]+", m[0].lower())), text)
    text = _PART.sub(lambda m: f"{m[1]}/{_PARTS[m[2].lower()]}", text)
    return _HALF.sub("1/2", text)


def _digits(words: list[str]) -> str:
    words = [word for word in words if word not in ("a", "and")]
    number = _number(words)
    if number is None:
        return " or ".join(str(_WORDS.get(word, SCALES.get(word))) for word in words)
    return str(number)


def _number(words: list[str]) -> int | None:
    """The one number of some words; None where they are several, as in "five six"."""
    total, group, below = 0, None, max(SCALES.values()) + 1
    for word in words:
        if word == "hundred" and (group is None or 0 < group < 100):
            group = (group or 1) * 100
        elif word in SCALES and SCALES[word] < below and word != "hundred" and group != 0:
            below = SCALES[word]
            total, group = total + (group or 1) * below, None
        elif word in _WORDS and _joins(group, _WORDS[word]):
            group = (group or 0) + _WORDS[word]
        else:
            return None
    return total + (group or 0)


def _joins(group: int | None, number: int) -> bool:
    """Whether a number goes on from what was said: "twenty" "five", "three hundred" "twelve"."""
    if group is None:
        return True
    if number == 0 or group == 0:
        return False
    return group % 100 == 0 or (group % 100 >= 20 and group % 10 == 0 and number < 10)

"""Reads the final answer of a solution and rules whether it is the reference's.

Numbers are compared exactly, as fractions. What is no number goes through math-verify. A marked
answer that cannot be read is wrong; a grader that fails is a void.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from importlib import util
from typing import Any, Literal

from sparring.core.types import Verdict

How = Literal["####", "boxed", "phrase", "last number", "none"]
INSTALL = "pip install 'sparring[math]'"
_LONGEST = 300  # characters of an answer that is looked at; longer ones are no answers
_SECONDS = 5  # of math-verify, per answer

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,2}(?!\d))?|\.\d+"
_NUMBER = re.compile(
    rf"(?:(?P<whole>{_DIGITS})(?P<gap>[ ]+(?:and )?)(?=\d+ ?/ ?\d))?"  # 3 1/2
    rf"(?P<value>{_DIGITS})(?: ?/ ?(?P<under>{_DIGITS}))?(?P<percent> ?%| percent\b)?",
)
_HEADING = re.compile(r"^.*?####[ \t]*(.*)$", re.MULTILINE)
_STARTS = re.compile(r"[-+−–$€£¥(\\.\d*~≈]|negative |minus |about |approximately ")
_PHRASE = re.compile(
    r"(?:\banswer(?: to [^.:\n]*?)?(?: is(?: therefore| thus| then)?| was| would be|:| =)"
    r"|\bfinal answer\b(?: is|:)?)[:\s]*(?:equal to )?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(
    r"\n|[.!?;](?=\s|$)|,(?=\s)|\s(?:because|since|as|for|which|so|when|if)\s", re.IGNORECASE
)
_CENTS = re.compile(rf"({_DIGITS}) dollars? (?:and )?(\d{{1,2}}) cents?", re.IGNORECASE)
_SCALES = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_SCALE = re.compile(rf"^\s*({'|'.join(_SCALES)})\b", re.IGNORECASE)
_WORDS = {
    word: number
    for number, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
            *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
            *("seventeen", "eighteen", "nineteen", "twenty"),
        )
    )
}
_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written; per cent is remembered, for 50 % may be meant as 0.5."""

    value: Fraction
    percent: bool = False

    def equals(self, other: Number) -> bool:
        if self.value == other.value:
            return True
        if self.percent == other.percent:
            return False
        mine, theirs = (n.value / 100 if n.percent else n.value for n in (self, other))
        return mine == theirs


@dataclass(frozen=True, slots=True)
class Answer:
    """A solution's final answer, and where in the text it stands."""

    text: str
    number: Number | None
    how: How

    @property
    def key(self) -> str | None:
        """Equal for equal answers, None where nothing could be read."""
        if self.number is not None:
            return str(self.number.value)
        return "".join(self.text.split()).lower() or None if self.how != "none" else None


def final_answer(text: str) -> Answer:
    """The last `#### …`, else the last \\boxed{…}, else the last "the answer is …", else the last
    number there is."""
    marked = [m for m in _HEADING.findall(text) if _STARTS.match(m.lower())]
    if marked:
        return _answer(marked[-1], "####")
    box = _boxed(text)
    if box is not None:
        return _answer(box, "boxed")
    after = [text[m.end() :] for m in _PHRASE.finditer(text)]
    after = [s for s in after if s.strip()]
    if after:
        return _answer(_clause(after[-1]), "phrase")
    numbers = _numbers(_plain(text))
    if numbers:
        return Answer(numbers[-1][1], numbers[-1][0], "last number")
    return Answer("", None, "none")


def read_number(text: str) -> Number | None:
    """The one number of a short text, whatever it is dressed in; None if there are several, or
    none."""
    plain = _plain(text[:_LONGEST])
    plain = plain.rpartition("=")[2] if "=" in plain else plain
    cents = _CENTS.search(plain)
    if cents:
        dollars = Fraction(cents[1].replace(",", ""))
        return Number(dollars + Fraction(int(cents[2]), 100))
    numbers = _numbers(plain)
    if not numbers:
        words = {_WORDS[w.lower()] for w in _WORD.findall(plain)}
        negative = re.search(r"\b(?:negative|minus)\b", plain, re.IGNORECASE)
        return Number(Fraction(words.pop()) * (-1 if negative else 1)) if len(words) == 1 else None
    if len({number for number, _ in numbers}) > 1 or _is_expression(plain):
        return None
    return numbers[0][0]


def grade(text: str, reference: str) -> Verdict:
    """Whether a solution ends in the reference's answer, given as such (`72`)."""
    answer = final_answer(text)
    if answer.how == "none":
        return Verdict("fail", "unreadable", "there is no answer in it")
    wanted = read_number(reference)
    if wanted is not None and answer.number is not None:
        right = wanted.equals(answer.number)
        return Verdict("pass" if right else "fail", "correct" if right else "wrong", answer.text)
    if wanted is not None and _is_choice(answer.text):
        return Verdict("fail", "unreadable", answer.text[:_LONGEST])
    try:
        right = _verified(reference, answer.text)
    except GraderFailed as error:
        return Verdict("void", "grader", str(error))
    if right:
        return Verdict("pass", "correct", answer.text)
    readable = answer.number is not None
    return Verdict("fail", "wrong" if readable else "unreadable", answer.text[:_LONGEST])


class GraderFailed(RuntimeError):
    """The grader broke, not the answer."""


def _verified(reference: str, answer: str) -> bool:
    """math-verify's ruling on expressions. Its time-outs need signals, and so the main thread."""
    if not answer.strip() or len(answer) > _LONGEST or _is_costly(answer):
        return False
    if util.find_spec("math_verify") is None:
        raise GraderFailed(f"to compare expressions, math-verify is needed: {INSTALL}")
    from math_verify import parse, verify
    from math_verify.errors import TimeoutException

    seconds = _SECONDS if threading.current_thread() is threading.main_thread() else None
    options: dict[str, Any] = {"parsing_timeout": seconds, "raise_on_error": True}
    try:
        wanted = parse(f"${reference}$", **options)
        parsed = parse(f"${_spelled(answer.strip().strip('$'))}$", **options)
        if not wanted:
            raise GraderFailed(f"the reference {reference!r} cannot be read")
        return bool(parsed) and bool(
            verify(wanted, parsed, timeout_seconds=seconds, raise_on_error=True)
        )
    except GraderFailed:
        raise
    except TimeoutException:
        raise GraderFailed(f"math-verify took more than {seconds} s over it") from None
    except Exception as error:  # a parser of free text fails in many ways, and none is the answer's
        raise GraderFailed(f"math-verify: {type(error).__name__}: {error}"[:_LONGEST]) from error


_SIGNS = str.maketrans({"×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/"})


def _spelled(text: str) -> str:
    """In the signs of LaTeX: math-verify stops at others, and reads what stands before them."""
    text = _SUPERSCRIPT.sub(lambda m: f"^{{{unicodedata.normalize('NFKC', m[0])}}}", text)
    return _DASH.sub("-", text).translate(_SIGNS)


def _is_costly(text: str) -> bool:
    """Towers of powers and factorials, which an algebra system would work out to the last digit."""
    return bool(
        re.search(r"(?:\^|\*\*)\s*\{?\s*\d{4,}|\d{4,}\s*!|(?:\^|\*\*).*(?:\^|\*\*)|!!", text)
    )


def _answer(text: str, how: How) -> Answer:
    text = text.strip()
    return Answer(text, read_number(text), how)


def _clause(text: str) -> str:
    """Up to the end of the sentence, or of what belongs to the number."""
    text = text.lstrip(" :*\n")
    end = _CLAUSE.search(text)
    return text[: end.start()] if end else text


def _boxed(text: str) -> str | None:
    """What stands in the last \\boxed{…}, braces matched."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth, begin = 0, start + len("\\boxed{")
    for i in range(begin - 1, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[begin:i]
    return text[begin:]  # cut off in the middle: what there is of it


_DASH = re.compile(r"[−–—]")
_SUPERSCRIPT = re.compile(r"(?<=\d)[²³⁰⁴-⁹]+")
_VULGAR = re.compile(r"[¼-¾⅐-⅞]")
_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r" \1/\2"),
    (re.compile(r"\\[dt]?frac\s*(\d)\s*(\d)"), r" \1/\2"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree"), " degrees"),
    (re.compile(r"\{,\}|\\,(?=\d{3})|(?<=\d)\\!,?"), ","),
    (re.compile(r"\\[,;!: ]|\\(?:left|right|displaystyle|quad)\b|\\[()\[\]]|[$€£¥¢*`]"), ""),
    (re.compile(r"\\(?:approx|sim)\b|[≈~]|\\\$"), " "),
    (re.compile(r"\\%"), "%"),
    (_DASH, "-"),
)


def _plain(text: str) -> str:
    """Without the dress of LaTeX, Markdown and money."""
    text = text.replace("\\$", "$").replace(",\\!", ",")
    text = _VULGAR.sub(lambda m: f" {unicodedata.normalize('NFKC', m[0])}", text)
    text = _SUPERSCRIPT.sub(lambda m: f"^{unicodedata.normalize('NFKC', m[0])}", text)
    text = text.replace("\u2044", "/")  # which NFKC writes in fractions
    for pattern, to in _LATEX:
        text = pattern.sub(to, text)
    return text.strip()


def _numbers(plain: str) -> list[tuple[Number, str]]:
    """Every number of a plain text, signs and scales taken in."""
    numbers = []
    for match in _NUMBER.finditer(plain):
        number = _number(match, plain)
        if number is not None:
            numbers.append((number, match[0].strip()))
    return numbers


def _number(match: re.Match[str], plain: str) -> Number | None:
    if len(match[0]) > _LONGEST:  # Python itself refuses to read thousands of digits
        return None
    value = Fraction(match["value"].replace(",", ""))
    if match["under"]:
        under = Fraction(match["under"].replace(",", ""))
        if under == 0:
            return None
        value /= under
    if match["whole"]:
        value += Fraction(match["whole"].replace(",", ""))
    scale = _SCALE.match(plain[match.end() :])
    if scale:
        value *= _SCALES[scale[1].lower()]
    before = plain[: match.start()].rstrip(" (").lower()
    # After a number it takes away, and within a word it joins.
    minus = before.endswith("-") and not re.search(r"[\d)%]\s*-$|[^\W\d]-$", before)
    if minus or before.endswith(("negative", "minus")):
        value = -value
    return Number(value, bool(match["percent"]))


_WORKED_OUT = re.compile(
    r"\d\s*[xyzn]\b|\d\s*[*^!]|[*^]\s*\d|√|π|\d\(\s*\d|\d\s*[-+·⋅×÷]\s*\(?\s*[\d.]"
    r"|\d\s*/\s*[\d.]+\s*/|\\(?:sqrt|pi|times|cdot|div|frac|binom|log|ln|sin|cos|tan|lfloor|lceil)"
)


def _is_expression(plain: str) -> bool:
    """A number with a letter that stands for another, or something yet to be worked out."""
    return bool(_WORKED_OUT.search(plain))


def _is_choice(text: str) -> bool:
    """Several numbers and nothing that makes one of them: math-verify would read the first, or
    the last, and let the others go."""
    plain = _plain(text[:_LONGEST]).rpartition("=")[2]
    numbers = {number.value for number, _ in _numbers(plain)}
    return len(numbers) > 1 and not _is_expression(plain)

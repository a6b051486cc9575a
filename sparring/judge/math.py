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
from sparring.judge.number_words import SCALES, in_digits

How = Literal["####", "boxed", "phrase", "last number", "none"]
INSTALL = "pip install 'sparring[math]'"
_LONGEST = 300  # characters of an answer that is looked at; longer ones are no answers
_SECONDS = 5  # of math-verify, per answer

_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,2}(?!\d))?|\.\d+"
_NUMBER = re.compile(
    rf"(?:(?P<whole>{_DIGITS})(?P<gap>[ ]+(?:and )?)(?=\d+ ?/ ?\d))?"  # 3 1/2
    rf"(?P<value>{_DIGITS})(?: ?/ ?(?P<under>{_DIGITS}))?(?P<percent> ?%| per ?cent\b)?",
)
_HEADING = re.compile(r"^.*?####[ \t]*(.*)$", re.MULTILINE)
_STARTS = re.compile(r"[-+−–$€£¥(\\.\d*~≈]|negative |minus |about |approximately ")
# A heading that opens a step of the solution: its number is no answer.
_STEP = re.compile(r"[*_(\s]*(?:(?:step|part|case)\b|(?:\d{1,2}|[a-z])[.)]\s+[a-z])", re.IGNORECASE)
_PHRASE = re.compile(
    r"(?:\banswer(?: to [^.:\n]*?)?(?:\**:| =| (?:is|was|equals|(?:would|will|should|must) be"
    r"|comes (?:out )?to(?: be)?)\b(?: therefore| thus| then)?)"
    r"|\bfinal answer\b(?: ?[-–—] |(?=[\s*$]*[-\d\\]|\**\s*\n)))[:\s]*(?:equal to )?",
    re.IGNORECASE,
)
# What ends the answer of a phrase. Another number beside it belongs to it: they are several then.
_CLAUSE = re.compile(
    r"\n|[.!?](?=\s|$)|[,;](?=\s|$)(?!\s+(?:or|maybe|perhaps|possibly|alternatively)\b)"
    r"(?!(?<=\d[,;])\s+(?:and )?[-$]*\d)|\s(?:because|since|as|for|which|so|when|if|after)\s",
    re.IGNORECASE,
)
_CENTS = re.compile(rf"({_DIGITS}) (?:dollars?,? (?:and )?|and )(\d{{1,2}}) cents?", re.IGNORECASE)
_SPACED = re.compile(r"(?<![\d.,/])\d{1,3}(?: \d{3})+(?![\d,]| ?/)")  # 12 000
_SCALE = re.compile(rf"(?:[ -]*\b(?:{'|'.join(SCALES)})\b)+|k\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it was written; per cent is remembered, for 50 % may be meant as 0.5."""

    value: Fraction
    percent: bool = False

    @property
    def share(self) -> Fraction:
        return self.value / 100 if self.percent else self.value

    def equals(self, other: Number) -> bool:
        return self.value == other.value or self.share == other.share


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
    number there is. Thoughts say nothing."""
    text = text.rpartition("</think>")[2]
    if text.lstrip().startswith("<think>"):
        return Answer("", None, "none")
    headed = [m[1] for m in _HEADING.finditer(text) if _is_answer(m[1], text[m.end() :])]
    if headed:
        return _answer(headed[-1], "####")
    box = _boxed(text)
    if box is not None:
        return _answer(box, "boxed")
    clauses = [clause for m in _PHRASE.finditer(text) if (clause := _clause(text[m.end() :]))]
    if clauses:
        return _answer(clauses[-1], "phrase")
    numbers = _numbers(_plain(text))
    if numbers:
        return Answer(numbers[-1][1], numbers[-1][0], "last number")
    return Answer("", None, "none")


def _is_answer(heading: str, rest: str) -> bool:
    """Whether what stands after #### is an answer: it begins as a number does, or it is the last
    word and has one."""
    if _STARTS.match(heading.lower()):
        return not (rest.strip() and _STEP.match(heading))
    last = not (rest.strip() or "\\boxed" in heading or _PHRASE.search(heading))
    return last and bool(re.search(r"\d|\bhalf\b", in_digits(heading)))


def read_number(text: str) -> Number | None:
    """The one number of a short text, whatever it is dressed in; None if there are several, or
    none."""
    plain = _plain(text[:_LONGEST])
    if _is_several(plain) or _RELATION.search(plain):
        return None
    plain = plain.rpartition("=")[2]
    if not any(map(str.isdigit, plain)):
        plain = in_digits(plain)
    plain = _SPACED.sub(lambda m: m[0].replace(" ", ""), plain)
    cents = _CENTS.search(plain)
    if cents:
        dollars = Fraction(cents[1].replace(",", ""))
        return Number(dollars + Fraction(int(cents[2]), 100))
    numbers = [number for number, _ in _numbers(plain)]
    if not numbers or _WORKED_OUT.search(plain):
        return None
    if len(set(numbers)) > 1 and len({number.share for number in numbers}) > 1:
        return None
    return max(numbers, key=lambda number: number.percent)


def grade(text: str, reference: str) -> Verdict:
    """Whether a solution ends in the reference's answer, given as such (`72`)."""
    answer = final_answer(text)
    if answer.how == "none":
        return Verdict("fail", "unreadable", "there is no answer in it")
    wanted = read_number(reference)
    if wanted is not None and answer.number is not None:
        right = wanted.equals(answer.number)
        return Verdict("pass" if right else "fail", "correct" if right else "wrong", answer.text)
    if wanted is not None and not _is_expression(answer.text):
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
    text = re.sub(r"(?<=\d) ?x ?(?=\d)", r"\\times ", text)
    text = re.sub(r"(?<=\d)\*\*(?=\d)", "^", text)
    return _DASH.sub("-", text).translate(_SIGNS)


_POWER = r"(?:\^|\*\*)\s*"
_EXPONENT = re.compile(rf"{_POWER}(\{{(?:[^{{}}]|\{{[^{{}}]*\}})*\}}|\([^()]*\)|-?[\w.]+)")
_TOO_LARGE = re.compile(
    rf"{_POWER}[{{(]?-?\d{{4,}}|\d{{4,}}\s*!|!!|!.*[)}}]\s*!|binom\D*\d{{5,}}"
    rf"|{_EXPONENT.pattern}\s*{_POWER}"
)


def _is_costly(text: str) -> bool:
    """Towers of powers and factorials, which an algebra system would work out to the last digit."""
    if _TOO_LARGE.search(text):
        return True
    exponents = _EXPONENT.findall(text)
    if re.search(rf"[)}}]\s*{_POWER}", text):  # a power of a power: they multiply
        exponents = ["".join(exponents)]
    return any(re.search(r"[!^*]", e) or len(re.findall(r"\d", e)) > 4 for e in exponents)


def _answer(text: str, how: How) -> Answer:
    text = text.strip()
    return Answer(text, read_number(text), how)


def _clause(text: str) -> str:
    """Up to the end of the sentence, or of what belongs to the number; nothing of a question."""
    text = text.lstrip(" :*\n")
    end = _CLAUSE.search(text)
    return "" if end and end[0] == "?" else text[: end.start()] if end else text


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
_REPEATING = re.compile(r"(?<!\d)(\d*)\.(\d*)\\(?:overline|bar)\s*\{?(\d+)\}?")
_UNIT = r"(?:[cdkm]?m|in|inch(?:es)?|ft|feet|foot|yd|yards?|mi|miles?|[a-z]*met(?:er|re)s?|units?)"
_LATEX = (
    (re.compile(r"\{,\}|(?<=\d)(?:\\!,|,?\\[!,])(?=\d{3})"), ","),
    (re.compile(r"\\[cdt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r" \1/\2"),
    (re.compile(r"\\[cdt]?frac\s*(\d)\s*(\d)"), r" \1/\2"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree"), " degrees"),
    (re.compile(rf"(?<![a-zA-Z])({_UNIT})(?:\s*\^\s*\{{?\s*[23]\s*\}}?|[23]\b)"), r"\1"),
    (
        re.compile(
            r"(?<![\d./^])(\d+(?:\.\d+)?) ?(?:\\times|\\cdot|[×x*·⋅]) ?10 ?\^ ?"
            r"(?:(-?\d{1,2})|\{ ?(-?\d{1,2}) ?\})(?![\d^!])"
        ),
        r"\1e\2\3",
    ),
    (re.compile(r"(?<=\d) ?\* ?(?=\d)"), "×"),  # other stars are Markdown's
    (re.compile(r"(?<=\d)\*\*(?=\d)"), "^"),
    (re.compile(r"(?<=[-−–—])[$€£¥]"), ""),
    (re.compile(r"</?[a-zA-Z|!][^<>]*>"), " "),
    (re.compile(r"<{1,2}([^<>]*)>{1,2}"), r" \1 : "),  # of GSM8K's calculator
    (re.compile(r"(?<=\d) and (?:a|one) half\b"), " and 1/2"),
    (re.compile(r"\\[,;!: ]|\\(?:left|right|displaystyle|quad)\b|\\[()\[\]]|[$€£¥¢*`]"), " "),
    (re.compile(r"\\(?:approx|sim)\b|[≈~]|\\\$|[^\S\n ]"), " "),
    (re.compile(r"\\%"), "%"),
    (_DASH, "-"),
)


def _plain(text: str) -> str:
    """Without the dress of LaTeX, Markdown and money."""
    text = text.replace("\\$", "$").replace(",\\!", ",")
    text = _VULGAR.sub(lambda m: f" {unicodedata.normalize('NFKC', m[0])}", text)
    text = _SUPERSCRIPT.sub(lambda m: f"^{unicodedata.normalize('NFKC', m[0])}", text)
    text = _REPEATING.sub(_as_fraction, text)
    text = text.replace("\u2044", "/")  # which NFKC writes in fractions
    for pattern, to in _LATEX:
        text = pattern.sub(to, text)
    return text.strip()


def _as_fraction(repeating: re.Match[str]) -> str:
    """0.1\\overline{6} is 15/90."""
    whole, once, again = repeating[1] or "0", repeating[2], repeating[3]
    if len(repeating[0]) > _LONGEST:
        return repeating[0]
    under = (10 ** len(again) - 1) * 10 ** len(once)
    return f" {int(whole + once + again) - int(whole + once)}/{under}"


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
    scale = _SCALE.match(plain, match.end())
    for word in re.findall(r"\w+", scale[0].lower()) if scale else ():
        value *= SCALES.get(word, 1000)
    near = plain[max(0, match.start() - 40) : match.start()]
    before = near.rstrip(" (").lower()
    if _DENIED.search(before):
        return None
    # After a number it takes away, within a word it joins, and alone after a word it is a dash.
    joins = re.search(r"[\d)%]\s*-$|[^\W\d]-$", before) or re.search(r"[^\W\d] - $", near)
    minus = before.endswith("-") and not joins
    if minus or before.endswith(("negative", "minus")):
        value = -value
    return Number(value, bool(match["percent"]))


_DENIED = re.compile(r"(?:\b(?:not|never)|n['’]t|cannot)(?: be| equal(?: to)?| exactly)?[-+\s]*$")
# No number, but those on one side of it, or on both.
_RELATION = re.compile(
    r"[<>≤≥≠±∓]|\\(?:pm|mp|[lg]eq?(?:slant)?|[lg]t|neq?)\b"
    r"|\b(?:less|more|fewer|greater) than\s+[-.\d]",
    re.IGNORECASE,
)
_WORKED_OUT = re.compile(
    r"\d\s*[xyzn]\b|\di\b|[-+]\s*i\b|\dx\d|\d\s*[*^!]|[*^]\s*\{?\d|√|π|\d\(\s*\d|\d\s*[-+·⋅×÷]\s*\(?\s*[\d.]"
    r"|\d\)\s*\(\d|\|\s*-|\d\s*/\s*-|\d\s*/\s*[\d.]+\s*/"
    r"|\\(?:sqrt|pi|times|cdot|div|frac|binom|log|ln|sin|cos|tan|lfloor|lceil)"
)
_BETWEEN = re.compile(  # numbers: a comma, a word or a sign that makes no one number of them
    r"[\d}].*(?:[,;]\s|\\(?!(?:sqrt|pi|times|cdot|div|[cdt]?frac|d?binom|log|ln|sin|cos|tan"
    r"|[lr]floor|[lr]ceil)\b)[a-zA-Z]+|(?<![\\a-zA-Z])[a-zA-Z]{2,}).*\d"
)


def _is_several(plain: str) -> bool:
    """`x = 5, y = 6`: what stands behind the last sign is one of two."""
    sides = plain.split("=")[:-1]
    return any(
        re.search(r"\d.*(?:[,;]\s|\b(?:or|and)\b|[\s,;/|][abcnxyz]\s*$)", side) for side in sides
    )


def _is_expression(text: str) -> bool:
    """Something yet to be worked out, which comes to one number. Of several, math-verify would read
    the first, or the last, and let the others go."""
    plain = _plain(text[:_LONGEST])
    side = plain.rpartition("=")[2]
    several = _is_several(plain) or _RELATION.search(plain) or _BETWEEN.search(side)
    return not several and bool(_WORKED_OUT.search(side))

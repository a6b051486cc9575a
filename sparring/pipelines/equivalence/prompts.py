"""The prompts of Alice and Bob in the game of equivalence, and how their replies are parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparring.tasks.code import one_return

SEQ, SINQ = "seq", "sinq"  # the branches: equivalent with a proof, inequivalent with an input

ALICE_SYSTEM = "You are Alice. You rewrite programs, and a machine checks what you claim of them."
BOB_SYSTEM = "You are Bob. You judge whether two programs are semantically equivalent."
SYSTEMS = {"alice": ALICE_SYSTEM, "bob": BOB_SYSTEM}
TERSE = {"y": True, "n": False}
PLAIN = {"yes": True, "no": False}

_FENCE = re.compile(r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*```", re.MULTILINE | re.DOTALL)
_INPUT = re.compile(r"^INPUT:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_ANSWER = re.compile(r"^ANSWER: (yes|no)$")
_INPUT_FORM = {
    "python": "the list of its arguments as a Python literal, such as INPUT: [3, 'a']",
    "haskell": "its arguments as they stand after its name in a call, such as INPUT: 3 [1, 2]",
}
_RULES = {
    "python": "Q must be a pure function with the same types: no printing, files, clock, chance, "
    "globals or classes, and no module but math, cmath, itertools, functools, collections, re, "
    "string, heapq, bisect, operator, fractions, decimal, statistics, copy and typing.",
    "haskell": "Q must be a total pure function of the same type.",
}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What Alice's reply holds; `wrong` says what it lacks."""

    q: str = ""
    input: str | None = None
    wrong: str = ""


def terse_line(p: str, style: str) -> tuple[str, str] | None:
    """P's header and returned expression, where terse players see and write only the latter."""
    return one_return(p) if style == "terse" else None


def system_of(seat: str, style: str) -> str | None:
    """The system prompt of a seat; terse players have none."""
    return None if style == "terse" else SYSTEMS[seat]


def alice_prompt(
    language: str, branch: str, p: str, function: str, target: float | None, style: str = "short"
) -> str:
    """The task of one branch. `target` is how hard the pair should be for Bob, 0 to 10."""
    if line := terse_line(p, style):
        return f"{line[1]}\n{'=' if branch == SEQ else '!'}{target:g}\n"
    name = language.capitalize()
    lines = [
        f"Here is a {name} function `{function}`, the program P:",
        fenced(language, p),
        "Write a program Q that defines the same function and is "
        + ("semantically equivalent to P: " if branch == SEQ else "not equivalent to P: ")
        + (
            "on every input it gives the same value or raises the same error."
            if branch == SEQ
            else "on at least one input it gives another value or raises another error."
        ),
        "Another player, Bob, sees P and Q and says whether they are equivalent. Q should look "
        "different where it does the same, and alike where it does not.",
        _RULES[language],
    ]
    if target is not None:
        lines.append(f"Target difficulty, from 0 (everyone sees it) to 10 (nobody): {target:g}")
    lines.append(f"Answer with the whole of Q in one ```{language} block.")
    if branch == SINQ:
        lines.append(
            f"After it, on a line of its own, an input on which P and Q differ: "
            f"{_INPUT_FORM[language]}"
        )
    return "\n".join(lines)


def proof_prompt(function: str) -> str:
    return (
        f"Q compiles. Now prove it: P is called `{function}P` and Q `{function}Q`, and Liquid "
        f"Haskell checks `lemma`, which says that they are equal on all arguments. Write helper "
        "lemmas with their statements, if you need any, then the equations of `lemma`, whose "
        f"arguments are those of `{function}`. The statement and the signature of `lemma` are "
        "given and not yours to write. A helper lemma is {-@ name :: x:T -> { equation } @-} with "
        "its type, which ends in Proof; a helper function has {-@ reflect name @-}; / [n] after a "
        "statement says what grows smaller. Answer with the proof in one ```haskell block."
    )


def refusal(kind: str, detail: str) -> str:
    """The checker's output, fed back."""
    return f"That was not accepted ({kind}): {detail}\nTry again, in the same form."


def read_proposal(
    text: str, language: str, branch: str, line: tuple[str, str] | None = None
) -> Proposal:
    """Q, and in an inequivalence the input, from a reply in the form that was asked for; `line` is
    P's, where the reply is terse."""
    if line:
        returned, mark, arguments = text.partition(";")
        q = f"{line[0]}\n    return {' '.join(returned.split())}\n"
        if bool(mark) != (branch == SINQ):
            return Proposal(q, wrong="; and an input follow what differs, and nothing else")
        return Proposal(q, f"[{arguments.strip()}]" if mark else None)
    code = block(text, language)
    if code is None:
        return Proposal(wrong=f"there is no closed ```{language} block")
    if branch == SEQ:
        return Proposal(code)
    inputs = _INPUT.findall(text)
    if not inputs or not inputs[-1]:
        return Proposal(code, wrong="there is no line that begins with INPUT:")
    return Proposal(code, inputs[-1])


def block(text: str, language: str) -> str | None:
    """The last closed block of a reply that is of the language, or of none that is named."""
    blocks = [code for name, code in _FENCE.findall(text) if name.lower() in (language, "", "hs")]
    return blocks[-1] if blocks else None


def fenced(language: str, code: str) -> str:
    return f"```{language}\n{code.strip()}\n```"


def written(
    language: str, q: str, input: str | None = None, line: tuple[str, str] | None = None
) -> str:
    """A proposal in the form that is asked for, as a program writes it; `line` as above."""
    if line:
        returned = q.removeprefix(f"{line[0]}\n    return ").strip()
        return returned + (f";{input.strip()[1:-1]}" if input is not None else "")
    given = f"\nINPUT: {input}" if input is not None else ""
    return fenced(language, q) + given


def bob_prompt(language: str, style: str, first: str, second: str) -> str:
    if style == "terse":
        one, other = terse_line(first, style), terse_line(second, style)
        if one and other and one[0] == other[0]:
            return f"{one[1]}\n{other[1]}\n"
        return f"{first.strip()}\n{second.strip()}\n"
    name = language.capitalize()
    ask = (
        "Think step by step. Then end with a line of its own that is exactly `ANSWER: yes` or "
        "`ANSWER: no`."
        if style == "reason"
        else "Answer with exactly one word, yes or no."
    )
    return (
        f"Here are two {name} programs.\nFirst program:\n{fenced(language, first)}\n"
        f"Second program:\n{fenced(language, second)}\n"
        "Are they semantically equivalent, that is, do they give the same value or raise the same "
        f"error on every input?\n{ask}"
    )


def read_answer(text: str, style: str) -> bool | None:
    """What Bob says of the pair, or None: an answer in any other form is no answer."""
    if style == "reason":
        lines = text.strip().splitlines()
        matched = _ANSWER.match(lines[-1].strip()) if lines else None
        return None if matched is None else PLAIN[matched[1]]
    answer = text.strip().lower().removesuffix(".")
    return (TERSE if style == "terse" else PLAIN).get(answer)


def bob_output(equivalent: bool, style: str) -> str:
    """The right answer in the form that is asked for."""
    if style == "terse":
        return "y" if equivalent else "n"
    word = "yes" if equivalent else "no"
    return f"ANSWER: {word}" if style == "reason" else word


def difficulty_prompt(language: str, p: str, q: str, branch: str) -> str:
    """The task of saying beforehand how hard a pair is."""
    what = "equivalent" if branch == SEQ else "not equivalent"
    return (
        f"These two {language.capitalize()} programs are {what}.\nP:\n{fenced(language, p)}\n"
        f"Q:\n{fenced(language, q)}\nHow difficult is that for Bob to see, from 0 (he is always "
        "right) to 10 (he is always wrong)? Answer with the number only."
    )

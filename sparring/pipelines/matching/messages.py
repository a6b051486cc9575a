"""What players of the matching game say and how it is read: strictly, so that a proposal means
what it says, and with an error that names what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from string import ascii_lowercase

from sparring.core.answers import boxed
from sparring.core.errors import nearest
from sparring.pipelines.matching.tables import UNKNOWN, Cell, Matching

REVIEWERS = (
    *("Ada", "Ben", "Cleo", "Dov", "Eva", "Finn", "Gia", "Hugo"),
    *("Ines", "Jun", "Kofi", "Lena", "Milo", "Nora", "Omar", "Pia"),
)
PAPERS = (
    *("Parsing", "Vision", "Speech", "Robots", "Graphs", "Ethics", "Privacy", "Search"),
    *("Memory", "Planning", "Music", "Climate", "Biology", "Sleep", "Traffic", "Poetry"),
)
KINDS = ("message", "propose", "accept", "reject")
NOTHING = "-"  # the terse message of a player who sees no cell
TERSE_SIZES = (2, 3, 4)  # a letter must name every cell
MOST_NUMBERED = 3  # the largest table whose matchings have a digit each
ACCEPT, REJECT = "y", "n"  # the terse answers
CELL_LETTERS = [letter for letter in ascii_lowercase if letter not in (ACCEPT, REJECT)]

_TAG = re.compile(r"\[\s*([A-Za-z]+)\s*\]")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w])")


class BadAction(ValueError):
    """A reply without a valid action; the message names what is wrong and goes to its player."""


@dataclass(frozen=True)
class Action:
    kind: str  # one of KINDS
    text: str = ""  # of a message
    matching: Matching | None = None  # of a proposal

    def words(self) -> str:
        if self.kind == "propose" and self.matching is not None:
            return f"[propose] {in_words(self.matching)}"
        return f"[message] {self.text}" if self.kind == "message" else f"[{self.kind}]"


@dataclass(frozen=True)
class Mention:
    """A cell that a message gave a value to; in the terse form only whether it is above 50."""

    cell: Cell
    value: float | None = None
    high: bool | None = None


def in_words(matching: Matching) -> str:
    """ "Ada: Vision, Ben: Parsing"."""
    return ", ".join(f"{REVIEWERS[r]}: {PAPERS[p]}" for r, p in enumerate(matching))


def parse(text: str, size: int, *, terse: bool = False, hints: int = 1) -> Action:
    """The action a text is, or BadAction. Reasoning may stand around a box, nothing around an
    action. A terse message tells at most `hints` cells. A message is one line: its reader could not
    tell further ones from the game's."""
    in_box = boxed(text)
    action_text = (text if in_box is None else in_box).strip()
    if terse and (short := _terse(action_text.replace(" ", ""), size, hints)) is not None:
        return short
    tag = _TAG.search(action_text)
    if tag is None or tag[1].lower() not in KINDS:
        if tag is not None and tag.start() == 0:
            raise BadAction(f"there is no action [{tag[1]}]; {nearest(tag[1].lower(), KINDS)}")
        raise BadAction(f"no action was found; an action begins with {_listed()}")
    if tag.start() > 0:
        raise BadAction(f"text stands before [{tag[1].lower()}]; say the action and nothing else")
    kind, rest = tag[1].lower(), action_text[tag.end() :].strip()
    further = [t[1].lower() for t in _TAG.finditer(rest) if t[1].lower() in KINDS]
    if further:
        raise BadAction(f"two actions in one turn, [{kind}] and [{further[0]}]; say one")
    if kind == "message":
        if not rest:
            raise BadAction("the message is empty")
        return Action(kind, " ".join(rest.split()))
    if kind == "propose":
        return Action(kind, matching=parse_matching(rest, size))
    if rest:
        raise BadAction(f"text stands after [{kind}]; say the action and nothing else")
    return Action(kind)


def parse_matching(text: str, size: int) -> Matching:
    """ "Ada: Vision, Ben: Parsing", in any order and either way round, as the paper of each
    reviewer. Every name must be known and used once."""
    reviewers = {name.lower(): i for i, name in enumerate(REVIEWERS[:size])}
    papers = {name.lower(): i for i, name in enumerate(PAPERS[:size])}
    assigned: dict[int, int] = {}
    for part in re.split(r"[,;\n]", text):
        if not part.strip(" .*-\t"):
            continue
        names = [n.strip(" .*\t").lower() for n in re.split(r":|->|→|=", part.strip(" -"))]
        if len(names) != 2:
            raise BadAction(f"{part.strip()!r} is no pair; write {REVIEWERS[0]}: {PAPERS[0]}")
        for name in names:
            if name not in reviewers and name not in papers:
                known = [*REVIEWERS[:size], *PAPERS[:size]]
                raise BadAction(
                    f"nobody and no paper is called {name!r}; {nearest(name.title(), known)}"
                )
        if (names[0] in reviewers) == (names[1] in reviewers):
            raise BadAction(f"{part.strip()!r} does not match a reviewer with a paper")
        one, other = names if names[0] in reviewers else reversed(names)
        reviewer, paper = reviewers[one], papers[other]
        if reviewer in assigned:
            raise BadAction(f"{REVIEWERS[reviewer]} is assigned twice")
        if paper in assigned.values():
            raise BadAction(f"{PAPERS[paper]} is assigned twice")
        assigned[reviewer] = paper
    left = [REVIEWERS[r] for r in range(size) if r not in assigned]
    if left:
        raise BadAction(f"{left[0]} has no paper; a proposal matches all {size} reviewers")
    return tuple(assigned[r] for r in range(size))


def terse_matchings(size: int) -> dict[str, Matching]:
    """The terse form's proposals: "0" is the first matching, "1" the second …, and where there are
    more of them than digits, "2013" gives the first reviewer the third paper."""
    matchings = permutations(range(size))
    if size <= MOST_NUMBERED:
        return {str(i): matching for i, matching in enumerate(matchings)}
    return {"".join(map(str, matching)): matching for matching in matchings}


def terse_length(size: int, hints: int) -> int:
    """Tokens of the longest message or proposal: one, or its letters and the end."""
    letters = max(hints, 1 if size <= MOST_NUMBERED else size)
    return 1 if letters == 1 else letters + 1


def terse_hints(size: int) -> dict[str, Mention]:
    """The terse form's messages: "B" says that the second cell is worth 50 or more, "b" less."""
    cells = [(r, c) for r in range(size) for c in range(size)]
    named = list(zip(CELL_LETTERS, cells, strict=False))
    high = {letter.upper(): Mention(cell, high=True) for letter, cell in named}
    return high | {letter: Mention(cell, high=False) for letter, cell in named}


def terse_cells(cells: Mapping[Cell, float], size: int) -> str:
    """Cells by the letters of the hints: "Ad" is a good first one and a poor fourth."""
    hints = {(m.cell, m.high): letter for letter, m in terse_hints(size).items()}
    return "".join(hints[cell, worth >= UNKNOWN] for cell, worth in sorted(cells.items()))


def _terse(text: str, size: int, hints: int) -> Action | None:
    if text in (ACCEPT, REJECT):
        return Action("accept" if text == ACCEPT else "reject")
    if text in terse_matchings(size):
        return Action("propose", matching=terse_matchings(size)[text])
    hinted = terse_mentions(text, size)
    cells = {mention.cell for mention in hinted}
    fits = len(cells) == len(text) <= hints
    return Action("message", text) if text == NOTHING or (text and fits) else None


def terse_mentions(text: str, size: int) -> list[Mention]:
    """What a terse message tells: a cell for each letter, nothing where it is no such message."""
    letters = terse_hints(size)
    return [letters[c] for c in text] if all(c in letters for c in text) else []


def in_terse(action: Action, size: int) -> str:
    """An action in the terse form; a program's words stay as they are."""
    if action.kind in ("accept", "reject"):
        return ACCEPT if action.kind == "accept" else REJECT
    if action.kind == "propose":
        return next(k for k, v in terse_matchings(size).items() if v == action.matching)
    return action.text


def tell(cells: Mapping[Cell, float]) -> str:
    """Cells in words: "Ada: Parsing 73, Vision 20; Ben: Speech 5"."""
    rows: dict[int, list[str]] = {}
    for (reviewer, paper), worth in sorted(cells.items()):
        rows.setdefault(reviewer, []).append(f"{PAPERS[paper]} {worth:g}")
    parts = [f"{REVIEWERS[r]}: {', '.join(row)}" for r, row in rows.items()]
    return "; ".join(parts) if parts else "I see nothing."


def mentions(text: str, size: int, *, terse: bool = False) -> list[Mention]:
    """The cells that a message gives values to. A number belongs to the reviewer and the paper
    last named before it, if one of them was named since the last number."""
    if terse and (hinted := terse_mentions(text, size)):
        return hinted
    reviewers = {name.lower(): i for i, name in enumerate(REVIEWERS[:size])}
    papers = {name.lower(): i for i, name in enumerate(PAPERS[:size])}
    reviewer = paper = None
    fresh, mentioned = False, list[Mention]()
    for token in re.finditer(rf"[A-Za-z]+|{_NUMBER.pattern}", text):
        word = token[0].lower()
        if word in reviewers:
            reviewer, fresh = reviewers[word], True
        elif word in papers:
            paper, fresh = papers[word], True
        elif word[0].isdigit() and fresh and reviewer is not None and paper is not None:
            mentioned.append(Mention((reviewer, paper), float(word)))
            fresh = False
    return mentioned


def is_right(mention: Mention, true: Mapping[Cell, int], own: Mapping[Cell, int]) -> bool:
    """Whether the player sees this cell, with this value: the true one or, as far as the
    other cannot distinguish them, the displayed one."""
    if mention.cell not in own:
        return False
    if mention.high is not None:
        return mention.high == (true[mention.cell] >= UNKNOWN)
    return mention.value in (true[mention.cell], own[mention.cell])


def _listed(kinds: Sequence[str] = KINDS) -> str:
    return ", ".join(f"[{kind}]" for kind in kinds[:-1]) + f" or [{kinds[-1]}]"

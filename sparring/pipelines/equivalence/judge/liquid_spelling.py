"""How a proof's own names are spelled where Liquid Haskell sees them: `len` as `my_len`, an
operator as `op_1`, a string as a list of characters. None of them can be mistaken for a measure, an
alias or a keyword of the tool's, whatever those are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sparring.pipelines.equivalence.judge import liquid_vocabulary as words
from sparring.pipelines.equivalence.judge.haskell_source import Declaration, Token
from sparring.pipelines.equivalence.judge.liquid_nodes import refuse
from sparring.pipelines.equivalence.judge.liquid_vocabulary import LOWER, OPERATOR, UPPER

MOST_STRING = 60
WIDER = 5  # every column times this: no name outgrows its place, and layout stays as it was
WIDEST = 12  # where operators are spelled out
_GAP = re.compile(r"\\&|\\\s+\\")
_CHARACTER = re.compile(r"\\(?:\d+|x[0-9a-fA-F]+|o[0-7]+|\^.|[A-Z]{2,3}|.)|[^\\]")


@dataclass(frozen=True)
class Spelling:
    operators: tuple[str, ...]  # that the programs and the proof define

    @property
    def width(self) -> int:
        return WIDEST if self.operators else WIDER

    def name(self, text: str) -> str:
        if text in self.operators:
            return f"{OPERATOR}{self.operators.index(text)}"
        if not (text[0].isalpha() or text[0] == "_") or text in words.KEPT:
            return text
        return (UPPER if text[0].isupper() else LOWER) + text

    def plain(self, text: str) -> str:
        """A message of the tool's, its names as they were handed in."""
        text = re.sub(rf"\b(?:Equivalence\.)?(?:{LOWER}|{UPPER})(?=\w)", "", text)
        for n, operator in enumerate(self.operators):
            spelled = rf"\b(?:Equivalence\.)?{OPERATOR}{n}\b"
            text = operator.join(re.split(spelled, text))
        # Columns are far apart in the module that the tool sees, and the marks below them long.
        return re.sub(r"\^{2,}", "^", re.sub(r"(?<=\S) {3,}", " ", text))

    def declaration(self, given: Declaration) -> str:
        """The text of a declaration with its names spelled anew, on the same lines, its layout the
        same: every column is that many times as far to the right."""
        lines: dict[int, str] = {}
        first = given.tokens[0]
        edge = first.column
        end, last = 0, first
        for token in _without_brackets(given.tokens, self.operators):
            column = (token.column - edge) * self.width
            line = lines.get(token.line, "")
            touches = token.line == last.line and token.column == end
            if "@" in (token.text, last.text) and touches:  # an alias is written in one piece
                column = len(line)
            elif column < len(line):
                raise refuse(f"line {token.line}: put a space before {token.text}")
            lines[token.line] = line.ljust(column) + self._spelled(token)
            end, last = token.column + len(token.text), token
        return "\n".join(lines[n] for n in sorted(lines)) + "\n"

    def _spelled(self, token: Token) -> str:
        if token.kind == "string":
            return characters(token.text)
        if token.kind == "symbol" and token.text in self.operators:
            return f"`{self.name(token.text)}`"
        return self.name(token.text) if token.kind == "name" else token.text


def characters(literal: str) -> str:
    """A string as a list of its characters: to the logic, a string literal is no list at all."""
    matches = _CHARACTER.findall(_GAP.sub("", literal[1:-1]))
    if len(matches) > MOST_STRING:
        raise refuse(f"the string {literal[:20]}… is longer than {MOST_STRING} characters")
    quoted = ["'\\''" if one == "'" else "'\"'" if one == '\\"' else f"'{one}'" for one in matches]
    return f"[{','.join(quoted)}]"


def _without_brackets(tokens: Sequence[Token], operators: Iterable[str]) -> list[Token]:
    """(+++) is a name like any other once the operator is spelled out."""
    made: list[Token] = []
    n = 0
    while n < len(tokens):
        three = tokens[n : n + 3]
        texts = [t.text for t in three]
        if len(three) == 3 and texts[0] == "(" and texts[2] == ")" and texts[1] in operators:
            made.append(replace(three[1], kind="name"))
            n += 3
        else:
            made.append(tokens[n])
            n += 1
    return made

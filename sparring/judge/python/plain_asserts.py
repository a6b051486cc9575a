"""Takes rows of `assert f(LITERALS) == LITERAL` apart without building syntax trees.

Suites have a thousand such asserts for a program, and trees of them cost more than the program. A
regular expression splits an assert at its `==`; Python's own compiler confirms that both halves are
literals and makes the value of the second.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from sparring.core.source import UNPARSABLE, unwarned

_STRING = r"'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\""
_NUMBER = r"\d[\d_]*+(?:\.[\d_]*+)?+(?:e[-+]?\d++)?+j?+(?!\w)"
_LITERALS = rf"(?:[-\[\](){{}},: ]++|{_NUMBER}|{_STRING}|(?:True|False|None)(?!\w))*+"
_ASSERT = re.compile(rf"assert +((\w+)\(({_LITERALS}))== *({_LITERALS})")
_OPERATIONS = {
    dis.opmap.get(name)
    for name in (
        "RESUME", "LOAD_CONST", "LOAD_SMALL_INT", "EXTENDED_ARG", "BUILD_LIST", "LIST_EXTEND",
        "LIST_APPEND", "BUILD_TUPLE", "BUILD_SET", "SET_UPDATE", "SET_ADD", "BUILD_MAP", "MAP_ADD",
        "BUILD_CONST_KEY_MAP", "DICT_UPDATE", "RETURN_VALUE", "RETURN_CONST",
    )
}  # fmt: skip


class PlainAssert(NamedTuple):
    name: str
    call: str
    expected: Any
    source: str


def plain_asserts(texts: Iterable[str]) -> list[PlainAssert] | None:
    """The asserts of the texts, if they hold nothing else; None where that is not certain."""
    rows: list[tuple[str, str, str]] = []
    arguments: list[str] = []
    expected: list[str] = []
    for text in texts:
        for line in text.splitlines():
            if not line:
                continue
            match = _ASSERT.fullmatch(line)
            if match is None or "'''" in line or '"""' in line:
                return None
            call, name, given, value = match.groups()
            given, value = given.rstrip(), value.rstrip()
            if not given.endswith(")") or value.endswith(","):
                return None
            rows.append((name, call.rstrip(), line[7:]))
            arguments.append(given[:-1])
            expected.append(value)
    values = _lists(expected)
    if not rows or values is None or _lists(arguments) is None:
        return None
    if any(len(value) != 1 for value in values):  # a message behind a comma, or nothing
        return None
    return [
        PlainAssert(name, call, value[0], source)
        for (name, call, source), value in zip(rows, values, strict=True)
    ]


def _lists(texts: list[str]) -> list[list[Any]] | None:
    """A list for each text of items of a literal. Brackets that close what another text or the
    enclosing `[` opened would change the number of lists or leave an operation behind."""
    try:
        with unwarned():
            code = compile("[" + ",\n".join(f"[{text}]" for text in texts) + "]", "tests", "eval")
        if not _OPERATIONS.issuperset(code.co_code[::2]):
            return None
        lists = eval(code, {"__builtins__": {}})
    except (*UNPARSABLE, TypeError):
        return None
    whole = len(lists) == len(texts) and all(type(one) is list for one in lists)
    return lists if whole else None

"""The words that a proof may be made of. Liquid Haskell believes much that is false
(docs/haskell.md); whatever is not listed here is either a name of the proof's own, which is renamed
so that it means nothing to the tool, or refused."""

from __future__ import annotations

TYPES = frozenset({"Int", "Integer", "Bool", "Char", "String", "Maybe", "Either"})
CONSTRUCTORS = frozenset({"True", "False", "Just", "Nothing", "Left", "Right"})
BUILT_IN = frozenset({":", "[]", "()"})
CLASSES = frozenset({"Eq", "Ord", "Show"})  # that data types may derive
ARITHMETIC = frozenset({"+", "-", "*", "negate"})
# A comparison with its sides exchanged, and the one that holds where it does not.
MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "/=": "/="}
DENIED = {"<": ">=", ">": "<=", "<=": ">", ">=": "<", "==": "/=", "/=": "=="}
COMPARISON = frozenset(MIRRORED)
LOGIC = frozenset({"&&", "||", "not", "otherwise", ".", "$"})
DIVISION = frozenset({"div", "mod"})
VALUES = ARITHMETIC | COMPARISON | LOGIC | DIVISION
COMBINATORS = frozenset({"trivial", "===", "***", "?", "QED"})
_KEYWORDS = "if then else case of let in where data newtype deriving infix infixl infixr _"
KEYWORDS = frozenset(_KEYWORDS.split())
# Every word that keeps its meaning where a proof is checked; all other names are the proof's own.
KEPT = TYPES | CONSTRUCTORS | CLASSES | VALUES | COMBINATORS | KEYWORDS | {"Proof"}
SYNTAX = frozenset({"=", "|", "->", "::", ":", "@"})

# How names of the proof's own are spelled where the tool sees them (`liquid_spelling`).
LOWER, UPPER, OPERATOR = "my_", "My_", "op_"


def plain(name: str) -> str:
    """A name as it was handed in."""
    return name.removeprefix(LOWER).removeprefix(UPPER)

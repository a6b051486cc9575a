"""Holds P, Q and a proof to the whitelist before Liquid Haskell sees them: each check refuses what
the tool has been seen to believe wrongly, or what its logic says otherwise than Haskell does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sparring.judge import liquid_words as words
from sparring.judge.haskell_source import Declaration, Program, Refused, Token, parse, tokens
from sparring.judge.haskell_types import parse_type

Functions = dict[str, list[Declaration]]
TAKEN = words.RESERVED | words.VALUES | words.COMBINATORS | words.SYNTAX


def refuse(message: str) -> Refused:
    return Refused("proof", message)


def check_program(program: Program, role: str) -> None:
    """Whether a program is of the part of Haskell that the logic speaks of truly."""
    if program.extensions:
        raise refuse(f"{role}: no extensions where there is to be a proof")
    for declaration in program.declarations:
        line = f"{role}, line {declaration.tokens[0].line}"
        if declaration.kind in ("import", "class", "instance", "synonym"):
            raise refuse(f"{line}: `{declaration.words[0]}` has no place where there is a proof")
        if declaration.kind == "data":
            _check_data(declaration, program, line)
        if declaration.kind == "signature":
            _check_types(declaration, program, line)
        if declaration.kind == "equation":
            _check_words(declaration, program, line, words.VALUES, words.PROGRAM_WORDS, set())
            _check_division(declaration, line)
        if declaration.kind in ("equation", "fixity") and declaration.names[0] in TAKEN:
            raise refuse(f"{line}: {declaration.names[0]} has a meaning already")
    missing = [name for name in program.functions if name not in program.signatures]
    if missing:
        raise refuse(f"{role}: {missing[0]} needs a type: Liquid Haskell is told of it")


def data_names(program: Program) -> tuple[set[str], set[str]]:
    """The program's own types and their constructors."""
    types = {d.names[0] for d in program.of("data")}
    made = set()
    for declaration in program.of("data"):
        found = declaration.words
        made |= {found[n + 1] for n, word in enumerate(found[:-1]) if word in ("=", "|")}
    return types, made


def _check_data(declaration: Declaration, program: Program, line: str) -> None:
    """Sums of products of plain types: a field that is a function could hold a paradox."""
    types, made = data_names(program)
    if (types | made) & (words.TYPES | words.CONSTRUCTORS | {"Nat", "Proof", "QED", "Admit"}):
        raise refuse(f"{line}: a type or constructor of that name exists already")
    allowed = types | made | words.TYPES | words.CLASSES | {"data", "newtype", "deriving"}
    for token in declaration.tokens:
        variable = token.kind == "name" and token.text[0].islower() and token.text != "forall"
        fine = token.text in allowed or token.text in "=|()[]," or variable
        if not fine or (variable and token.text in words.RESERVED - {"data", "newtype"}):
            raise refuse(f"{line}: {token.text} may not stand in a data type")


def _check_types(declaration: Declaration, program: Program, line: str) -> None:
    types, _ = data_names(program)
    at = declaration.words.index("::")
    for token in declaration.tokens[at + 1 :]:
        known = token.text in words.TYPES | types | {"->"} or token.text in "()[],"
        if not known and not (token.kind == "name" and token.text[0].islower()):
            why = "the logic knows it otherwise than Haskell does, or not at all"
            raise refuse(f"{line}: {token.text} may not stand in a type here: {why}")
    if "forall" in declaration.words:
        raise refuse(f"{line}: forall may not stand in a type here")


def _check_words(
    declaration: Declaration,
    program: Program,
    line: str,
    values: frozenset[str],
    syntax: frozenset[str],
    known: set[str],
) -> None:
    """Every word is listed, defined beside it, or a variable that the equation itself binds."""
    _, made = data_names(program)
    bound = bound_names(declaration.tokens) - set(declaration.names)
    wrong = sorted(bound & words.RESERVED)
    if wrong:
        raise refuse(f"{line}: {wrong[0]} has a meaning already and is no name for a variable")
    known = known | set(program.functions) | bound | made
    for token in declaration.tokens:
        text = token.text
        fine = (
            text in values
            or text in known
            or (token.kind == "symbol" and text in words.SYNTAX)
            or (token.kind == "name" and text in syntax | words.CONSTRUCTORS)
            or (token.kind == "special" and text in "()[],`")
            or (token.kind == "number" and re.fullmatch(r"\d{1,40}", text) is not None)
            or (token.kind in ("string", "char") and "{-" not in text and "-}" not in text)
        )
        if not fine:
            raise refuse(f"{line}: {text} is not among the words that may stand here")


def bound_names(found: Sequence[Token]) -> set[str]:
    """Variables in patterns: before the first `=` or guard, and before any other `=` or `->`, back
    to where that pattern starts. What stands in a guard is no pattern."""
    names: set[str] = set()
    segment: list[str] = []
    line, left, guard, done = found[0].line if found else 0, True, False, False
    inside = 0  # brackets of lists
    for token in found:
        inside += (token.text == "[") - (token.text == "]")
        if not left and token.line != line:
            if token.text != "|" or done:  # guards may stand on lines below their pattern
                segment = []
            line, guard, done = token.line, False, False
        if token.text in ("of", "let", "where", "in", "then", "else", "\\"):
            segment, guard = [], False
        if inside and not left and token.text in ("|", ","):  # a list, or what it is drawn from
            segment = []
        elif token.text in ("=", "->", "|", "<-"):
            if not guard:
                names |= {word for word in segment if word[0].islower() or word[0] == "_"}
            segment, left, line, guard = [], False, token.line, token.text == "|"
            done = token.text != "|"
        elif token.kind == "name":
            segment.append(token.text)
    return names - words.PROGRAM_WORDS


def _check_division(declaration: Declaration, line: str) -> None:
    """Only x `div` 2 and the like. By a negative number the logic rounds otherwise, and the tool's
    own account of div contradicts itself at zero: a proof in sight of it proves anything."""
    found = declaration.tokens
    for n, token in enumerate(found):
        if token.text in words.DIVISION:
            around = [t.text for t in found[max(0, n - 1) : n + 2]]
            by = found[n + 2].text if n + 2 < len(found) else ""
            if around != ["`", token.text, "`"] or not by.isdigit() or int(by) == 0:
                raise refuse(
                    f"{line}: write {token.text} as x `{token.text}` 2, by a number above 0"
                )


def check_recursion(functions: Functions) -> None:
    """No function calls another that calls it: their termination is not checked as it should be.
    And no recursion beside a division, whose contradiction would hide that it does not end."""
    calls = {name: _called(parts, functions) for name, parts in functions.items()}
    for name in functions:
        seen: set[str] = set()
        todo = sorted(calls[name] - {name})
        while todo:
            other = todo.pop()
            if other == name:
                raise refuse(f"{name} calls itself by way of others: write one function of them")
            if other not in seen:
                seen.add(other)
                todo += sorted(calls[other])
        parts = functions[name]
        divides = any(t.text in words.DIVISION for part in parts for t in part.tokens)
        if divides and name in calls[name]:
            raise refuse(f"{name} is recursive and divides: put the division into a helper")


def _called(parts: Iterable[Declaration], functions: Functions) -> set[str]:
    own: set[str] = set()
    for part in parts:
        rest = part.tokens[1:] if part.tokens[0].text in functions else part.tokens
        own |= {t.text for t in rest if t.text in functions}
        if part.tokens[0].text not in functions:  # an operator is called or defined
            at = [n for n, t in enumerate(part.tokens) if t.text == part.names[0]]
            if len(at) == 1:
                own.discard(part.names[0])
    return own


def check_machine_integers(programs: Sequence[Program]) -> None:
    """The logic's integers have no end. What was proved of them carries over to Int where nothing
    but + - * happens (equal numbers are equal modulo 2^64), or nothing of it; a comparison or a
    division of what was calculated may come out otherwise."""
    declared = [d for program in programs for d in program.of("signature", "data")]
    if not any("Int" in d.words for d in declared):
        return
    equations = [d for program in programs for d in program.of("equation")]
    calculates = any(_calculates(d.tokens) for d in equations)
    decides = any(_decides(d) for d in equations)
    if not (calculates and decides):
        return
    if all(_plain(program) for program in programs):
        return
    raise refuse(
        "Int wraps round and the logic's integers do not: where numbers are calculated and "
        "compared or divided, a proof says nothing of Int; write Integer"
    )


def _calculates(found: Sequence[Token]) -> bool:
    for n, token in enumerate(found):
        if token.text in ("+", "*", "negate"):
            return True
        if token.text == "-":
            literal = n + 1 < len(found) and found[n + 1].kind == "number"
            unary = n > 0 and found[n - 1].text in ("(", "=", "->", ",", "[", "then", "else")
            if not (literal and unary):
                return True
    return False


def _decides(declaration: Declaration) -> bool:
    found = declaration.tokens
    if any(t.text in words.COMPARISON | words.DIVISION for t in found):
        return True
    for n, token in enumerate(found):  # a number in a pattern is a comparison
        if token.kind == "number":
            line = [t.text for t in found[n:] if t.line == token.line]
            if "->" in line or ("=" in line and not _after_equals(found, n)):
                return True
    return False


def _after_equals(found: Sequence[Token], n: int) -> bool:
    return any(t.text == "=" for t in found[:n] if t.line == found[n].line)


def _plain(program: Program) -> bool:
    """One function that calls nothing and compares only arguments and literals as they came."""
    if len(program.functions) != 1:
        return False
    name = program.functions[0]
    edges = {"|", "if", "(", ")", "&&", "||", "=", "then", ",", "not", "else", "$"}
    for declaration in program.of("equation"):
        found = declaration.tokens
        texts = [t.text for t in found]
        if texts.count(name) != 1 or {"case", "let", "where", "div", "mod"} & set(texts):
            return False
        for n, token in enumerate(found):
            if token.text in words.COMPARISON:
                atoms = found[n - 1 : n] + found[n + 1 : n + 2]
                if len(atoms) != 2 or any(t.kind not in ("name", "number") for t in atoms):
                    return False
                before = texts[n - 2] if n >= 2 else ""
                after = texts[n + 2] if n + 2 < len(texts) else "="
                if before not in edges or after not in edges:
                    return False
    return True


def read_proof(proof: str) -> Program:
    program = parse(proof)
    if program.extensions:
        raise refuse("a proof has no extensions")
    for declaration in program.declarations:
        if declaration.kind not in ("liquid", "signature", "equation"):
            where = f"line {declaration.tokens[0].line}"
            raise refuse(f"{where}: `{declaration.words[0]}` has no place in a proof")
    return program


def check_proof(proof: Program, functions: Program, lemmas: Sequence[str]) -> None:
    """The equations of lemmas: calls of lemmas, the combinators, cases. Nothing that divides."""
    values = (words.VALUES - words.DIVISION) | words.COMBINATORS
    known = set(functions.functions) | set(lemmas) | data_names(functions)[1]
    for declaration in proof.of("equation"):
        line = f"proof, line {declaration.tokens[0].line}"
        _check_words(declaration, proof, line, values, words.PROOF_WORDS, known)
    for name in lemmas:
        if name in functions.functions or (name in words.RESERVED and name != "lemma"):
            raise refuse(f"proof: {name} is the name of something else")


def statement_parts(annotation: Token) -> tuple[str, list[Token]]:
    """The name and the rest of {-@ name :: … @-}; every other annotation is refused."""
    inner = tokens(annotation.text[3:-3])
    if len(inner) < 3 or inner[1].text != "::" or inner[0].kind != "name":
        raise refuse(f"line {annotation.line}: {annotation.text} is no statement of a lemma")
    if inner[0].text in words.RESERVED - {"lemma"}:
        raise refuse(f"line {annotation.line}: {inner[0].text} has no place in a proof")
    return inner[0].text, inner[2:]


def split_arrows(found: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "->" and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def without_metric(found: list[Token]) -> tuple[list[Token], list[Token]]:
    """A result and its `/ [n]`, which says what grows smaller; the tool checks that it does."""
    depth = 0
    for n, token in enumerate(found):
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "/" and depth == 0:
            return found[:n], found[n + 1 :]
    return found, []


def check_statement(
    name: str, found: Sequence[Token], declared: Sequence[Token], functions: Program
) -> None:
    """x:T -> … -> { equation }, the types being those of the Haskell signature."""
    parts = split_arrows(found)
    types = split_arrows(declared)
    if [t.text for t in types[-1]] != ["Proof"] or len(parts) != len(types):
        raise refuse(f"proof: the statement of {name} does not fit its type")
    binders: set[str] = set()
    for part, type_ in zip(parts[:-1], types[:-1], strict=True):
        binders.add(_check_argument(name, part, type_, binders, functions))
    result, metric = without_metric(parts[-1])
    if not result or result[0].text != "{" or result[-1].text != "}":
        raise refuse(f"proof: the statement of {name} does not end in an {{ equation }}")
    _check_logic(name, result[1:-1], binders, functions)
    _check_logic(name, [t for t in metric if t.text not in "[]"], binders, functions)


def _check_argument(
    name: str, part: list[Token], type_: list[Token], binders: set[str], functions: Program
) -> str:
    texts, wanted = [t.text for t in part], [t.text for t in type_]
    binder = ""
    if len(part) > 1 and part[0].kind == "name" and texts[1] == ":":
        binder, part, texts = texts[0], part[2:], texts[2:]
    if texts == wanted or (texts == ["Nat"] and wanted in (["Int"], ["Integer"])):
        return binder
    if texts[0] == "{" and texts[-1] == "}" and "|" in texts:
        bar = texts.index("|")
        inside = part[1:bar]
        local = inside[0].text if len(inside) > 1 and inside[1].text == ":" else binder
        held = inside[2:] if local != binder or len(inside) > 1 else inside
        if [t.text for t in held] == wanted:
            _check_logic(name, part[bar + 1 : -1], binders | {binder, local}, functions)
            return binder
    raise refuse(f"proof: the statement of {name} says {' '.join(texts)} for {' '.join(wanted)}")


def _check_logic(name: str, found: Sequence[Token], binders: set[str], functions: Program) -> None:
    _, made = data_names(functions)
    known = words.STATEMENT | words.CONSTRUCTORS | binders | made | set(functions.functions)
    for token in found:
        fine = token.text in known or token.text in "()[]," or token.kind == "number"
        if not fine:
            raise refuse(f"proof: {token.text} may not stand in the statement of {name}")


def check_signature(
    name: str, found: Sequence[Token], declared: Sequence[Token], functions: Program
) -> None:
    """A helper's type again, its result perhaps a Nat, with what grows smaller. Arguments stay as
    they are: what is reflected must hold for all of them."""
    parts, types = split_arrows(found), split_arrows(declared)
    if len(parts) != len(types):
        raise refuse(f"proof: {name} has another type")
    binders: set[str] = set()
    result, metric = without_metric(parts[-1])
    for part, type_ in zip([*parts[:-1], result], types, strict=True):
        texts, wanted = [t.text for t in part], [t.text for t in type_]
        if len(texts) > 1 and part[0].kind == "name" and texts[1] == ":":
            binders.add(texts[0])
            texts = texts[2:]
        nat = part is result and texts == ["Nat"] and wanted in (["Int"], ["Integer"])
        if texts != wanted and not nat:
            raise refuse(f"proof: {name} has another type")
    parse_type(list(declared))
    _check_logic(name, [t for t in metric if t.text not in "[]"], binders, functions)

"""Proofs of equivalence by Liquid Haskell. The harness writes the module and its statement; what is
given fills in Q, helpers, lemmas and the equations of `lemma`, all of it held to a whitelist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparring.pipelines.equivalence.judge import liquid_rules as rules
from sparring.pipelines.equivalence.judge import liquid_vocabulary as words
from sparring.pipelines.equivalence.judge.haskell_source import (
    Declaration,
    Program,
    Token,
    parse,
    renamed,
    split,
)
from sparring.pipelines.equivalence.judge.haskell_types import Signature
from sparring.pipelines.equivalence.judge.liquid_integers import check_machine_integers
from sparring.pipelines.equivalence.judge.liquid_nodes import (
    FIXITIES,
    Call,
    Expression,
    Name,
    refuse,
)
from sparring.pipelines.equivalence.judge.liquid_spelling import Spelling
from sparring.pipelines.equivalence.judge.liquid_statement import (
    CONS,
    MEASURE,
    Argument,
    Scope,
    Statement,
    parse_annotation,
    parse_signature,
    parse_statement,
    written,
)
from sparring.pipelines.equivalence.judge.liquid_termination import check_ends
from sparring.pipelines.equivalence.judge.liquid_tree import parse_tree
from sparring.pipelines.equivalence.judge.liquid_vocabulary import plain

NAME = "Equivalence"
OPTIONS = ("--reflection", "--ple", "--ple-with-undecided-guards")
IMPORT = "import Language.Haskell.Liquid.ProofCombinators"
CONS_IN_LOGIC = f"""
{{-@ reflect {CONS} @-}}
{CONS} :: a -> [a] -> [a]
{CONS} my_x my_xs = my_x : my_xs
"""
COMBINATORS = """type Proof = ()
data QED = QED
infixl 3 ===, ***, ?
trivial :: Proof
trivial = ()
(===) :: a -> a -> a
_ === y = y
(***) :: a -> QED -> Proof
_ *** _ = ()
(?) :: a -> b -> a
x ? _ = x
class Number a where
  (<), (<=), (>), (>=) :: a -> a -> Bool
instance Number Int where { (<) = (P.<); (<=) = (P.<=); (>) = (P.>); (>=) = (P.>=) }
instance Number Integer where { (<) = (P.<); (<=) = (P.<=); (>) = (P.>); (>=) = (P.>=) }
infix 4 <, <=, >, >=
"""
# Order is the logic's for numbers and for nothing else, so the stand-in has it for numbers only.
PRELUDE = """import qualified Prelude as P
import Prelude (Int, Integer, Bool (..), Char, String, Maybe (..), Either (..), Show, Ord,
  Eq ((==), (/=)), Num ((+), (-), (*), negate), (&&), (||), not, otherwise, (.), ($), div, mod)
"""


@dataclass(frozen=True)
class Draft:
    """A module for Liquid Haskell, as far as its words can be judged; `checked` has the rest."""

    text: str
    spelling: Spelling
    functions: tuple[str, ...]  # reflected, as spelled
    programs: tuple[str, ...]  # those of them that are of P and Q
    lemmas: tuple[str, ...]
    statements: Mapping[str, Statement]
    wraps: bool  # whether Int is among the types

    def checked(self, tree: str) -> str:
        """The module's text, once GHC's tree of it has been held to the rules."""
        module = parse_tree(tree)
        rules.check_tree(module, self.functions, self.lemmas)
        for name, clauses in module.functions.items():
            stated = self.statements.get(name)
            check_ends(name, clauses, stated.bounded() if stated else frozenset())
            if stated and stated.nat and rules.divides(clauses):
                raise refuse(
                    f"{plain(name)} divides, and then its result is not known to be Nat: "
                    "state a lemma, { name n >= 0 }, instead"
                )
        if self.wraps:
            check_machine_integers(module, self.programs)
        return self.text


def draft(p: Program, q: Program, function: str, signature: Signature, proof: str) -> Draft:
    """The module that Liquid Haskell is to check, or Refused: "proof" and why."""
    if not proof.strip():
        raise refuse("there is no proof")
    rules.check_program(p, "P")
    rules.check_program(q, "Q")
    if signature.context:
        raise refuse("a proof for all types of a class would have to hold for its worst one")
    both = _merged(p, q, function)
    given = read_proof(proof)
    reflected = _reflected(given)
    _check_given(given, both, reflected)
    everything = Program((), (*both.declarations, *given.declarations))
    lemmas = [name for name in given.functions if name not in reflected]
    functions = [*both.functions, *reflected]
    operators = [n for n in (*functions, *lemmas) if not (n[0].isalpha() or n[0] == "_")]
    _check_operators(operators)
    spelling = Spelling(tuple(operators))
    own = _statement(both, function)
    statements = _statements(given, everything, functions, lemmas, own, function)
    text = _written(both, given, functions, lemmas, statements, spelling)
    conses = [CONS] if CONS in text else []
    return Draft(
        text,
        spelling,
        (*map(spelling.name, functions), *conses),
        tuple(map(spelling.name, both.functions)),
        tuple(map(spelling.name, lemmas)),
        {spelling.name(name): statement for name, statement in statements.items()},
        rules.mentions(both.of("signature", "data"), "Int"),
    )


def program_draft(p: Program, function: str, signature: Signature) -> Draft:
    """P beside itself, with a proof that needs none: whether anything can be proved about it."""
    blanks = " ".join(["_"] * len(signature.arguments))
    return draft(p, p, function, signature, f"lemma {blanks} = trivial")


def read_proof(proof: str) -> Program:
    program = parse(proof)
    if program.extensions:
        raise refuse("a proof has no extensions")
    for declaration in program.declarations:
        where = f"proof, line {declaration.tokens[0].line}"
        if declaration.kind not in ("liquid", "signature", "equation", "fixity"):
            raise refuse(f"{where}: `{declaration.words[0]}` is not allowed in a proof")
        if declaration.kind != "liquid":
            rules.check_tokens(declaration, where)
    return program


def _reflected(given: Program) -> list[str]:
    """Helpers of the proof's own: {-@ reflect name @-}."""
    names = []
    for declaration in given.of("liquid"):
        word, rest = parse_annotation(declaration.tokens[0])
        if word == "reflect":
            name = rest[0].text
            if name == "lemma":
                raise refuse("proof: `lemma` is proved and not reflected: leave out its `reflect`")
            if name in names or name not in given.functions or name not in given.signatures:
                raise refuse(f"proof: {name} is reflected once, with a type and equations")
            names.append(name)
    return names


def _check_given(given: Program, both: Program, reflected: Sequence[str]) -> None:
    if "lemma" not in given.functions:
        raise refuse("the proof has no equations for `lemma`")
    for name in given.functions:
        if name in both.functions or name in words.KEPT:
            raise refuse(f"proof: {name} is the name of something else")
        if name in reflected:
            continue
        ends = [t.text for t in given.signatures.get(name, ())][-1:]
        if name != "lemma" and name not in given.signatures:
            raise refuse(f"proof: {name} needs a type")
        if name != "lemma" and ends != ["Proof"]:
            raise refuse(
                f"proof: {name} is no lemma, for its type does not end in Proof: "
                f"write {{-@ reflect {name} @-}} above it"
            )
    stray = [n for n in given.signatures if n not in given.functions]
    if stray:
        raise refuse(f"proof: {stray[0]} has a type and no equations")
    for declaration in given.of("signature"):
        line = f"proof, line {declaration.tokens[0].line}"
        rules.check_types(declaration, both, line)


def _check_operators(operators: Sequence[str]) -> None:
    for name in operators:
        if name in words.KEPT | words.SYNTAX or name[0] == ":":
            raise refuse(f"the operator {name} has a meaning already: call it otherwise")


def _merged(p: Program, q: Program, function: str) -> Program:
    """P and Q in one program; the function is called <function>P and <function>Q there."""
    if not (function[0].isalpha() or function[0] == "_"):
        raise refuse(f"{function} is an operator: give the function a name")
    names = {f"{function}P", f"{function}Q", "lemma"}
    sides: list[list[Declaration]] = []
    for role, program in (("P", p), ("Q", q)):
        taken = names & {*program.functions}
        if taken:
            raise refuse(f"{role}: {taken.pop()} is the name of something else in a proof")
        wrong = [name for name in program.functions if name in words.KEPT]
        if wrong:
            raise refuse(f"{role}: {wrong[0]} has a meaning already: call it otherwise")
        change = {function: f"{function}{role}"}
        sides.append([])
        for declaration in program.declarations:
            if declaration.kind != "liquid":
                new = tuple(change.get(name, name) for name in declaration.names)
                tokens_ = renamed(declaration.tokens, change)
                sides[-1].append(Declaration(declaration.kind, new, tokens_))
    ours, theirs = sides
    shared = _shared(ours, theirs)
    return Program((), (*ours, *(d for d in theirs if not set(d.names) & shared)))


def _shared(ours: Sequence[Declaration], theirs: Sequence[Declaration]) -> set[str]:
    """Names that both define, and define alike."""

    def table(declarations: Sequence[Declaration]) -> dict[str, list[tuple[str, ...]]]:
        made: dict[str, list[tuple[str, ...]]] = {}
        for declaration in declarations:
            for name in declaration.names:
                made.setdefault(name, []).append(declaration.words)
        return made

    a, b = table(ours), table(theirs)
    for name in sorted(set(a) & set(b)):
        if a[name] != b[name]:
            raise refuse(f"{name} is one thing in P and another in Q: rename it in Q")
    return set(a) & set(b)


def _statement(both: Program, function: str) -> Statement:
    """What `lemma` says, which is the harness's alone to say."""
    parts = split(both.signatures[f"{function}P"], "->")[:-1]
    types = [tuple(t.text for t in part) for part in parts]
    binders = [f"x{n}" for n in range(1, len(types) + 1)]
    calls: list[Expression] = [
        Call(Name(f"{function}{role}"), tuple(Name(b) for b in binders)) for role in "PQ"
    ]
    arguments = tuple(Argument(b, t) for b, t in zip(binders, types, strict=True))
    return Statement("lemma", arguments, Call(Name("=="), tuple(calls)))


def _statements(
    given: Program,
    everything: Program,
    functions: Sequence[str],
    lemmas: Sequence[str],
    own: Statement,
    function: str,
) -> dict[str, Statement]:
    """Statements of helper lemmas, and types of helpers that say more. That of `lemma` is ours."""
    scope = _scope(everything, functions)
    statements = {}
    lemma_type = [*(w for a in own.arguments for w in (*a.type, "->")), "Proof"]
    declared = {**everything.signatures, "lemma": _as_tokens(lemma_type)}
    declared_lemma = [t.text for t in given.signatures.get("lemma", ())]
    if declared_lemma and declared_lemma != lemma_type:
        raise refuse(f"the type of `lemma` is not yours to write: it is {' '.join(lemma_type)}")
    for declaration in given.of("liquid"):
        name, rest = parse_annotation(declaration.tokens[0])
        if name == "reflect":
            continue
        if name in statements:
            raise refuse(f"proof: {name} is stated twice")
        if name == "lemma":
            statements[name] = _ours(parse_statement(name, rest, declared[name], scope), own)
        elif name in lemmas:
            statements[name] = parse_statement(name, rest, declared[name], scope)
        elif name in functions:
            statements[name] = parse_signature(name, rest, declared[name], scope)
            if name in (f"{function}P", f"{function}Q") and statements[name].nat:
                raise refuse(f"proof: of {name} you may say only what grows smaller, / [n]")
        else:
            raise refuse(f"proof: {name} is not yours to say anything of")
    for name in lemmas:
        if name not in statements and name != "lemma":
            raise refuse(
                f"proof: {name} is no lemma without a statement: "
                f"{{-@ {name} :: x:T -> {{ equation }} @-}}"
            )
    return {"lemma": own, **statements}


def _scope(everything: Program, functions: Sequence[str]) -> Scope:
    fixities = {**FIXITIES}
    for declaration in everything.of("fixity"):
        side, strength = declaration.words[0][-1], declaration.words[1]
        if not strength.isdigit():
            raise refuse("a fixity is written infixl 6 +++")
        for name in declaration.names:
            fixities[name] = (int(strength), side if side in "lr" else "n")
    known = {*functions, *everything.constructors, *words.CONSTRUCTORS}
    return Scope(frozenset(known), fixities)


def _as_tokens(texts: Sequence[str]) -> tuple[Token, ...]:
    return tuple(Token("name", text, 1, 1) for text in texts)


def _ours(given: Statement, own: Statement) -> Statement:
    """The harness's statement, under the names that were given to its arguments, with a metric."""
    names = {a.binder: b.binder for a, b in zip(own.arguments, given.arguments, strict=True)}
    plain = all(argument.requirement is None for argument in given.arguments)
    if not plain or given.equation != _with_names(own.equation, names):
        raise refuse("the statement of `lemma` is not yours to write")
    return given


def _with_names(now: Expression | None, names: Mapping[str, str]) -> Expression | None:
    match now:
        case Call(function, arguments):
            made = [_with_names(argument, names) for argument in arguments]
            return Call(function, tuple(part for part in made if part is not None))
        case Name(text):
            return Name(names.get(text, text))
    return now


def _written(
    both: Program,
    given: Program,
    functions: Sequence[str],
    lemmas: Sequence[str],
    statements: Mapping[str, Statement],
    spelling: Spelling,
) -> str:
    spelled = spelling.name

    def in_logic(name: str) -> str:
        """The tool's own `len`, where the programs have no other."""
        return name if name == MEASURE and name not in functions else spelled(name)

    lines = [f'{{-@ LIQUID "{option}" @-}}' for option in OPTIONS]
    lines += [f"module {NAME} where", "", IMPORT, ""]
    lines += [spelling.declaration(d) for d in both.of("data", "fixity")]
    lines += [spelling.declaration(d) for d in given.of("fixity")]
    for name in (*functions, *(n for n in lemmas if n != "lemma"), "lemma"):
        source = both if name in both.functions else given
        if name in functions:
            lines.append(f"{{-@ reflect {spelled(name)} @-}}")
        if name in statements:
            lines.append(f"{{-@ {written(statements[name], in_logic)} @-}}")
        if name == "lemma":
            types = [w for a in statements[name].arguments for w in (*a.type, "->")] + ["Proof"]
        else:
            types = [t.text for t in source.signatures[name]]
        lines.append(f"{spelled(name)} :: {' '.join(map(spelled, types))}")
        lines += [spelling.declaration(d) for d in source.equations(name)]
    text = "\n".join(lines) + "\n"
    return text.replace(IMPORT, f"{IMPORT}\n{CONS_IN_LOGIC}", 1) if CONS in text else text


def stand_in(text: str) -> dict[str, str]:
    """The same module for GHC alone: with nothing in scope but what the whitelist names, and every
    case covered."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith(("{-@", "import")))
    head = "{-# LANGUAGE Safe #-}\n{-# OPTIONS_GHC -Werror=incomplete-patterns #-}\n"
    head += "{-# OPTIONS_GHC -Werror=incomplete-uni-patterns #-}\n"
    body = body.replace(f"module {NAME} where", f"module Proof_ where\n{PRELUDE}\n{COMBINATORS}", 1)
    return {"Proof_": head + body + "\n"}

"""Judges tests that a player wrote: which of them hold on a reference solution, and are tests at
all. A player who is paid for tests will write whatever is paid for, so this page is a list of what
is not: nothing readable, no call, what is known already, what checks nothing, what depends on luck.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sparring.core.source import parsed
from sparring.core.types import Verdict, VoidGame
from sparring.judge.python.expressions import evaluate
from sparring.judge.python.judge import Judge
from sparring.pipelines.adversarial.problems import definitions, function_name, parameters
from sparring.tasks.code import Problem, extract_code

VALID = "valid"
MOST_CHARS = 500
# Functions of their arguments and of nothing else: not of the hour, the hash seed or an address.
ALLOWED = frozenset(
    {
        *("abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float"),
        *("frozenset", "int", "isinstance", "len", "list", "map", "max", "min", "range"),
        *("reversed", "round", "set", "sorted", "str", "sum", "tuple", "type", "zip"),
    }
)
# A test that passes on all of these checks nothing.
STUBS = ("None", "-7919", "'no such answer'")
_HASH_SEEDS = (1, 2)
_MORE_SEEDS = (3, 4, 5, 6)  # where there are sets: two words in one have one of two orders
_ASSERT = re.compile(r"^[\s>*\-\d.)`]*(assert\b.*?)`*\s*$")
_HELD = "the test held"
_MOST_KNOWN = 100_000
# Whether a test holds on programs that answer known calls as the reference does, and all others as
# programs that know nothing: it then checks no call that is new, whatever it is made to look like.
_KNOWING = """
import inspect
own, known = {{}}, set()
exec({code!r}, own)
space, reference = dict(own), own[{name!r}]

def call(given, named):
    try:
        bound = inspect.signature(reference).bind(*given, **named)
    except TypeError:
        return repr((given, named))
    bound.apply_defaults()
    return repr(bound.arguments)

def learning(*given, **named):
    known.add(call(given, named))
    return reference(*given, **named)

def knowing(answer):
    def stub(*given, **named):
        return reference(*given, **named) if call(given, named) in known else answer
    return stub

def holds(test, function):
    try:
        exec(test, {{**space, {name!r}: function}})
    except Exception:
        return False
    return True

for test in {earlier!r}:
    holds(test, learning)
print([holds({test!r}, knowing(answer)) for answer in ({stubs})])
"""


@dataclass(frozen=True, slots=True)
class Ruled:
    """One written test and what it is: `valid`, or the reason why it is not."""

    text: str
    kind: str


@dataclass
class Examiner:
    """Rules on the tests written for problems; rulings are cached."""

    judge: Judge
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    verdicts: dict[tuple[str, str, str], Verdict] = field(default_factory=dict)

    async def __aenter__(self) -> Examiner:
        await self.judge.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.judge.__aexit__()

    async def rule(self, problem: Problem, code: str, test: str) -> Verdict:
        """A program on one test. Players repeat themselves, and programs do the same each time."""
        key = (problem.id, code, test)
        if key not in self.verdicts:
            verdict = fair(await self.judge.tests(code, [test], setup=problem.setup))
            if len(self.verdicts) >= _MOST_KNOWN:
                self.verdicts.clear()
            self.verdicts[key] = verdict
        return self.verdicts[key]

    async def examine(self, problem: Problem, tests: Sequence[str]) -> list[Ruled]:
        """Each test's kind, in order. Of equal tests the first one counts."""
        name, names = function_name(problem.signature), parameters(problem.signature)
        defaults = _defaults(problem.code, name)
        known = (calls(test, name, names, defaults) for test in problem.tests)
        earlier = {key for key in known if key}
        kinds: list[str] = []
        for test in tests:
            kind = refusal(test, name)
            key = calls(test, name, names, defaults)
            if not kind and key <= frozenset().union(*earlier):
                kind = "duplicate"  # every call of it is made by a test that is there already
            if not kind:
                earlier.add(key)
            kinds.append(kind)
        ruled = await asyncio.gather(
            *(self._rule(problem, test, kind) for test, kind in zip(tests, kinds, strict=True))
        )
        own = [test for test, kind in zip(tests, kinds, strict=True) if not kind]
        kinds = await asyncio.gather(
            *(
                self._new(problem, test, kind, own[: own.index(test)] if kind == VALID else [])
                for test, kind in zip(tests, ruled, strict=True)
            )
        )
        return [Ruled(test, kind) for test, kind in zip(tests, kinds, strict=True)]

    async def completed(self, problem: Problem, inputs: Sequence[str]) -> list[str]:
        """Tests from inputs alone: what is to be expected, the reference says. For players that
        can name an input and nothing more."""
        return [await self._completed(problem, given.strip()) for given in inputs]

    async def _completed(self, problem: Problem, given: str) -> str:
        name = function_name(problem.signature)
        bare = f"assert {name}({given})"
        key = (problem.id, f"expected: {given}")
        if not refusal(bare, name) and key not in self.known:
            done = await self.judge.run(f"{problem.code}\nprint(repr({name}({given})))\n")
            if done.status == "void":
                raise VoidGame(f"the judge could not rule ({done.kind}): {done.detail}")
            self.known[key] = done.stdout.strip() if done.status == "ok" else ""
        expected = self.known.get(key, "")
        return f"{bare} == {expected}" if expected else bare

    async def _rule(self, problem: Problem, test: str, kind: str) -> str:
        if kind:
            return kind
        key = (problem.id, test)
        if key not in self.known:
            self.known[key] = await self._try(problem, test)
        return self.known[key]

    async def _new(self, problem: Problem, test: str, kind: str, own: Sequence[str]) -> str:
        """A valid test's kind, after the baseline tests and earlier ones of its writer. Where each
        makes one call of plain data, its words have told already whether it is a new one."""
        name, earlier = function_name(problem.signature), [*problem.tests, *own]
        if kind != VALID or all(_is_plain(each, name) for each in (test, *earlier)):
            return kind
        program = _KNOWING.format(
            code=f"{problem.code}\n{problem.setup}\n", name=name, earlier=earlier, test=test,
            stubs=", ".join(STUBS),
        )  # fmt: skip
        key = (problem.id, program)
        if key not in self.known:
            done = await self.judge.run(program)
            if done.status == "void":
                raise VoidGame(f"the judge could not rule ({done.kind}): {done.detail}")
            new = done.status == "ok" and "False" in done.stdout.rpartition("[")[2]
            self.known[key] = VALID if new else "duplicate"
        return self.known[key]

    async def _try(self, problem: Problem, test: str) -> str:
        """Against the reference, against programs that know nothing, and once more elsewhere."""
        verdict = fair(await self.judge.tests(problem.code, [test], setup=problem.setup))
        if not verdict.passed:
            return "wrong"
        name = function_name(problem.signature)
        for value in STUBS:
            stub = f"def {name}(*args, **named):\n    return {value}\n"
            if not fair(await self.judge.tests(stub, [test])).passed:
                break
        else:
            return "checks nothing"
        program = f"{problem.code}\n{problem.setup}\n{test}\nprint({_HELD!r})\n"
        for seed in (*_HASH_SEEDS, *(_MORE_SEEDS if _has_sets(program) else ())):
            done = await self.judge.run(program, hash_seed=seed)
            if done.status == "void":
                raise VoidGame(f"the judge could not rule ({done.kind}): {done.detail}")
            if done.status != "ok" or not done.stdout.rstrip().endswith(_HELD):
                return "not deterministic"
        return VALID


def _has_sets(program: str) -> bool:
    """Whether there may be sets, whose order hangs on the hash seed."""
    return any(
        isinstance(node, ast.Set | ast.SetComp)
        or (isinstance(node, ast.Name) and node.id in ("set", "frozenset"))
        for node in ast.walk(parsed(program) or ast.Module([], []))
    )


def fair(verdict: Verdict) -> Verdict:
    """A broken jail voids the game. Tests that do not end are the writer's."""
    if verdict.status == "void" and verdict.kind != "tests":
        raise VoidGame(f"the judge could not rule ({verdict.kind}): {verdict.detail}")
    return verdict


def read_tests(reply: str, most: int) -> list[str]:
    """The first asserts of a reply, whatever stands between them; one that does not parse too."""
    text = extract_code(reply)
    tree = parsed(text)
    if tree is not None:
        asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
        return [ast.unparse(node) for node in sorted(asserts, key=lambda n: n.lineno)][:most]
    lines = (_ASSERT.match(line) for line in text.splitlines())
    return [_normal(match[1]) for match in lines if match][:most]


def read_inputs(reply: str, name: str, most: int) -> list[str]:
    """The arguments of the first calls of a function in a reply, line by line; what a line says to
    expect is left out, and one that cannot be read stays as it is, to be counted as such."""
    inputs: list[str] = []
    for line in map(str.strip, extract_code(reply).splitlines()):
        tree = parsed(line)
        nodes = ast.walk(tree) if tree is not None else iter(())
        call = next((n for n in nodes if isinstance(n, ast.Call) and _calls(n, name)), None)
        if call is not None:
            inputs.append(", ".join(map(ast.unparse, [*call.args, *call.keywords])))
        elif f"{name}(" in line:
            inputs.append(line)
    return inputs[:most]


def _calls(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def refusal(test: str, name: str) -> str:
    """Why a test is none, as far as that shows without running it, or nothing."""
    tree = parsed(test)
    if tree is None or [type(node) for node in tree.body] != [ast.Assert] or len(test) > MOST_CHARS:
        return "unreadable"
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    own = _own_names(tree)
    asked = False
    for node in ast.walk(tree):
        if id(node) in own:
            continue
        if isinstance(node, ast.Name) and node.id == name and id(node) in called:
            asked = True
        elif _reaches(node):
            return "not allowed"
    return "" if asked else "no call"


def _reaches(node: ast.AST) -> bool:
    """Whether this looks at more than values: another name, the function itself, a hidden part."""
    if isinstance(node, ast.Name):
        return node.id not in ALLOWED
    if isinstance(node, ast.Attribute):
        return node.attr.startswith("_")
    if isinstance(node, ast.Compare):  # which equal values are one object is nobody's mistake
        sides = zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False)
        return any(
            isinstance(op, ast.Is | ast.IsNot) and not (_single(a) or _single(b))
            for op, a, b in sides
        )
    return isinstance(node, ast.NamedExpr | ast.Lambda | ast.Await | ast.Yield | ast.YieldFrom)


def _single(node: ast.expr) -> bool:
    """Whether this is None, True, False or `type(…)`, of which there is one each."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) == "type" and len(node.args) == 1 and not node.keywords
    return isinstance(node, ast.Constant) and (node.value is None or type(node.value) is bool)


def _own_names(tree: ast.Module) -> set[int]:
    """Where a comprehension names what it made itself. Outside of it the same word is another's:
    `[math for math in [1]] and math.pi` would only hold where the program imports `math`."""
    own: set[int] = set()
    for made in ast.walk(tree):
        if not isinstance(made, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            continue
        names = [node for node in ast.walk(made) if isinstance(node, ast.Name)]
        targets = [node for part in made.generators for node in ast.walk(part.target)]
        bound = {n.id for n in targets if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        first = {id(node) for node in ast.walk(made.generators[0].iter)}  # looked up outside
        own |= {id(name) for name in names if name.id in bound and id(name) not in first}
    return own


def calls(
    test: str, name: str, parameters: Sequence[str], defaults: Mapping[object, str] | None = None
) -> frozenset[str]:
    """The calls that a test makes of a function, each with its arguments worked out, so that
    f(2), f(1 + 1), f(n=2) and, with a default of 0, f(2, 0) are the same call."""
    tree = parsed(test)
    return frozenset(
        _call(node, parameters, defaults or {})
        for node in ast.walk(tree or ast.Module([], []))
        if isinstance(node, ast.Call) and _calls(node, name)
    )


def _defaults(code: str, name: str) -> dict[object, str]:
    """What a function's arguments are where they are not given, by place or, without one, name."""
    function = (definitions(code) or {}).get(name)
    if function is None:
        return {}
    own = function.args
    first = len(own.posonlyargs) + len(own.args) - len(own.defaults)
    named = zip(own.kwonlyargs, own.kw_defaults, strict=True)
    given: dict[object, str] = {first + i: _worth(value) for i, value in enumerate(own.defaults)}
    return given | {arg.arg: _worth(value) for arg, value in named if value is not None}


def _call(call: ast.Call, parameters: Sequence[str], defaults: Mapping[object, str]) -> str:
    positions = dict(zip(parameters, range(len(parameters)), strict=True))
    given = dict(defaults)
    given.update(enumerate(map(_worth, call.args)))
    for keyword in call.keywords:
        given[positions.get(keyword.arg or "", keyword.arg)] = _worth(keyword.value)
    return repr(sorted(given.items(), key=repr))


def _worth(argument: ast.expr) -> str:
    value = _plain_value(argument)
    return ast.unparse(argument) if value is None else value  # it is what it says


def _plain_value(argument: ast.expr) -> str | None:
    """An argument worked out, or None where it is not plain data, or too much of it."""
    try:
        return repr(evaluate(argument, []))
    except Exception:
        return None


def _is_plain(test: str, name: str) -> bool:
    """Whether a test makes one call and its arguments are plain data: what it calls then shows."""
    nodes = ast.walk(parsed(test) or ast.Module([], []))
    made = [node for node in nodes if isinstance(node, ast.Call) and _calls(node, name)]
    return (
        len(made) == 1
        and all(
            _plain_value(argument) is not None
            for argument in (*made[0].args, *(keyword.value for keyword in made[0].keywords))
        )
        and all(keyword.arg for keyword in made[0].keywords)
    )


def _normal(test: str) -> str:
    tree = parsed(test)
    return ast.unparse(tree) if tree is not None else test

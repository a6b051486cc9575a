"""Checks claims about two Python functions, that they are equivalent or that an input tells them
apart, by running both in the jail."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, ParamSpec

from sparring.core.types import Verdict
from sparring.judge.python.judge import Judge
from sparring.pipelines.equivalence.judge.checkers import INCIDENT, NOT_REFUTED
from sparring.pipelines.equivalence.judge.crosshair import CrossHair, SearchResult
from sparring.pipelines.equivalence.judge.inputs import ToolMissing, inputs_for
from sparring.pipelines.equivalence.judge.purity import impure, parse, unordered
from sparring.pipelines.equivalence.judge.same import (
    NOT_REACHED,
    NoOutcomes,
    Outcome,
    Plan,
    differ,
    outcomes,
    same,
)
from sparring.pipelines.equivalence.judge.search import Pair, search
from sparring.pipelines.equivalence.judge.signature import (
    BadInput,
    BadSignature,
    Signature,
    read_input,
    signature_of,
)

EXHAUSTED = "exhausted"
STEPS_PER_S = 2_000_000  # a call's steps for each second of `timeout_s`
_SEEDS = (1, 2)  # hash seeds of the runs that must agree with the first, whose seed is 0
_MORE_SEEDS = (3, 4, 5, 6)  # where there are sets: two words in one have one of two orders
_INCIDENT_PATHS = 40
_MOST_LATE = 4  # inputs that P does not answer soon and is asked again
_ALL_CALLS = 5.0  # times a call's steps that all inputs may take; P has half of that, so that a Q
#                   which takes twice as long is tried on all of them


class Refused(Exception):
    """A program or an input that is not even tried; the verdict says why."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.verdict = Verdict("fail", kind, detail)


Given = ParamSpec("Given")
Check = Callable[Given, Coroutine[Any, Any, Verdict]]


def _ruled(check: Check[Given]) -> Check[Given]:
    """What stops a check is its verdict."""

    @wraps(check)
    async def rule(*given: Given.args, **words: Given.kwargs) -> Verdict:
        try:
            return await check(*given, **words)
        except (Refused, NoOutcomes) as error:
            return error.verdict
        except ToolMissing as error:
            return Verdict("void", "tool", str(error))

    return rule


class PythonChecker:
    """The verbs of a checker, for Python. `HaskellChecker` has the same.

        async with PythonChecker() as checker:
            verdict = await checker.diverges(p, q, "f", "[3, 'a']")

    A call has `timeout_s` times two million steps, so that what comes of it does not hang on how
    busy the machine is; seconds of a processor end only what counts no steps. `work` is the steps
    that the search for a difference may take; 0 leaves it out. `crosshair_paths` paths
    of symbolic search follow an attack without a difference; 0 leaves it out.
    """

    def __init__(
        self,
        sandbox: str = "bubblewrap",
        *,
        timeout_s: float = 2.0,
        inputs: int = 100,
        work: int = 20_000_000,
        crosshair_paths: int = 100,
        seed: int = 0,
        workers: int | None = None,
    ) -> None:
        self.timeout_s, self.inputs, self.seed = timeout_s, inputs, seed
        self.steps, self.work = int(timeout_s * STEPS_PER_S), work
        self.judge = Judge(workers, timeout_s=3 * timeout_s + 2, sandbox=sandbox)
        self.crosshair = CrossHair(sandbox, crosshair_paths) if crosshair_paths > 0 else None

    async def __aenter__(self) -> PythonChecker:
        await self.judge.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.judge.__aexit__()
        if self.crosshair is not None:
            await self.crosshair.close()

    @_ruled
    async def compiles(self, p: str, function: str) -> Verdict:
        """Whether a program may be used at all: it parses, is pure and typed, and runs."""
        tree, signature = _accept(p, function, "P")
        some = _spread(inputs_for(signature, [tree], 0, self.seed))
        results = await self._steady(p, function, some, "P", 0.2, 3)
        if some and not any(outcome.counts for outcome in results):
            return Verdict("fail", "no outcome", f"P came to nothing on {len(some)} inputs")
        return Verdict("pass", "compiles", str(signature))

    @_ruled
    async def diverges(self, p: str, q: str, function: str, input: Any) -> Verdict:
        """Whether an input tells P and Q apart."""
        pair = accept_pair(p, q, function)
        try:
            values = read_input(input, pair.signature)
        except BadInput as error:
            return Verdict("fail", "input", str(error))
        [a], [b] = await asyncio.gather(
            self._steady(p, function, [values], "P"), self._steady(q, function, [values], "Q")
        )
        verdict = _compare(values, a, b)
        if verdict.passed:  # a difference that hangs on hashes or state is none
            some = _spread(inputs_for(pair.signature, pair.trees, 0, self.seed))
            for source, name in ((p, "P"), (q, "Q")):
                await self._steady(source, function, some, name, 0.1, 3)
        return verdict

    @_ruled
    async def attack(self, p: str, q: str, function: str) -> Verdict:
        """Try to tell P and Q apart with edge cases and random inputs."""
        return await self._attack(accept_pair(p, q, function))

    async def equivalent(self, p: str, q: str, function: str, proof: str | None = None) -> Verdict:
        """Attack and CrossHair, both, whatever either says: an exhausted search that an input
        refutes is a soundness incident. Python has no proofs; one that is given is not read."""
        attacked = await self.attack(p, q, function)
        if attacked.status == "void" or attacked.kind not in ("refuted", NOT_REFUTED):
            return attacked
        if self.crosshair is None:
            return attacked
        pair = accept_pair(p, q, function)
        refuted = attacked.kind == "refuted"
        # What is refuted already is searched only for the record, and not for long.
        paths = min(_INCIDENT_PATHS, self.crosshair.paths) if refuted else None
        try:
            searched = await self.crosshair.search(pair.p, pair.q, function, paths)
        except ToolMissing as error:
            return attacked if refuted else Verdict("void", "tool", str(error))
        if refuted:
            if searched.kind == EXHAUSTED:
                why = f"all paths were exhausted, and yet: {attacked.detail}"
                return Verdict("fail", INCIDENT, why)
            return attacked
        if searched.kind == "broken":
            return Verdict("void", "crosshair", searched.detail)
        if searched.kind == "counterexample":
            confirmed = await self.diverges(p, q, function, searched.detail)
            if confirmed.passed:
                return Verdict("fail", "refuted", f"{confirmed.detail} (found by CrossHair)")
            if confirmed.status == "void":
                return confirmed
            searched = SearchResult(
                NOT_REFUTED, f"CrossHair's {searched.detail} shows nothing when it is run"
            )
        if searched.kind == EXHAUSTED:
            detail = f"all paths exhausted, and {attacked.detail}"
            return Verdict("pass", EXHAUSTED, detail)
        return Verdict("pass", NOT_REFUTED, f"{attacked.detail}; {searched.detail}")

    async def seek(self, p: str, q: str, function: str) -> str | None:
        """An input of CrossHair's own finding that tells P and Q apart, if it has one."""
        if self.crosshair is None:
            return None
        try:
            pair = accept_pair(p, q, function)
            searched = await self.crosshair.search(pair.p, pair.q, function)
        except (Refused, ToolMissing):
            return None
        if searched.kind != "counterexample":
            return None
        confirmed = await self.diverges(p, q, function, searched.detail)
        return searched.detail if confirmed.passed else None

    async def _attack(self, pair: Pair) -> Verdict:
        tried = inputs_for(pair.signature, pair.trees, self.inputs, self.seed)
        # Compared is what P answers soon; Q has forty times as many steps for it.
        of_p = await self._steady(pair.p, pair.function, tried, "P", 1 / 40, 8, _ALL_CALLS / 2)
        fair = [i for i, outcome in enumerate(of_p) if outcome.counts]
        if not fair:
            return Verdict("fail", "no outcome", f"P came to nothing on {len(tried)} inputs")
        late = [values for values, a in zip(tried, of_p, strict=True) if not a.counts][:_MOST_LATE]
        tried, of_p = [tried[i] for i in fair], [of_p[i] for i in fair]
        of_q = await self._steady(pair.q, pair.function, tried, "Q")
        for values, a, b in zip(tried, of_p, of_q, strict=True):
            if differ(a, b):
                return Verdict("fail", "refuted", _difference(values, a, b))
        for values, a, b in zip(tried, of_p, of_q, strict=True):
            if not b.counts and b.form != NOT_REACHED:
                why = f"Q came to nothing ({b.form}) on {values!r:.200}, where P {_result(a)}"
                return Verdict("fail", "no outcome", why)
        compared = sum(map(same, of_p, of_q))
        if compared < len(tried):  # or a slow Q would be the same as P on the few it is tried on
            why = f"Q took all steps there are for {compared} of {len(tried)} inputs"
            return Verdict("fail", "no outcome", why)
        different = await self._late(pair, late) if late else None
        if different or self.work <= 0 or not pair.signature.types:
            return different or Verdict("pass", NOT_REFUTED, f"the same on {compared} inputs")
        return await self._searched(pair, tried, compared)

    async def _late(self, pair: Pair, inputs: list[list[Any]]) -> Verdict | None:
        """The plainest inputs that P does not answer soon, with more steps: a Q that differs from
        just there on names the place. Only a difference is made of them."""
        of_p = await self._steady(pair.p, pair.function, inputs, "P", 1 / 4, 4, 1.0)
        ended = [i for i, outcome in enumerate(of_p) if outcome.counts]
        inputs = [inputs[i] for i in ended]
        of_q = await self._steady(pair.q, pair.function, inputs, "Q", 1 / 4, 4, 1.0)
        for values, a, b in zip(inputs, [of_p[i] for i in ended], of_q, strict=True):
            if differ(a, b):
                return Verdict("fail", "refuted", _difference(values, a, b))
        return None

    async def _searched(self, pair: Pair, tried: list[list[Any]], compared: int) -> Verdict:
        """Thousands of inputs more. A difference counts when it is reproduced."""
        searched = await search(self.judge, pair, tried, self.work, self.steps // 40, self.seed)
        for text in searched.different:
            confirmed = await self.diverges(pair.p, pair.q, pair.function, text)
            if confirmed.passed:
                return Verdict("fail", "refuted", confirmed.detail)
            if confirmed.status == "void":
                return confirmed
        for text in searched.lost[:1]:
            values = read_input(text, pair.signature)
            [a] = await self._steady(pair.p, pair.function, [values], "P")
            [b] = await self._steady(pair.q, pair.function, [values], "Q")
            if a.counts and not b.counts:
                why = f"Q came to nothing ({b.form}) on {values!r:.200}, where P {_result(a)}"
                return Verdict("fail", "no outcome", why)
        whole = f", {searched.whole} among them" if searched.whole else ""
        return Verdict(
            "pass", NOT_REFUTED, f"the same on {compared + searched.compared} inputs{whole}"
        )

    async def _steady(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Any]],
        name: str,
        share: float = 1.0,
        patience: int = 1,
        calls: float = _ALL_CALLS,
    ) -> list[Outcome]:
        """The outcomes, which must not hang on hash seeds, on what was called before, or on
        anything else that another run brings along. `share`: of the steps that a call may take;
        `calls`: how many times a call's steps all of them may take together."""
        steps, seconds = int(share * self.steps), max(share, 0.25) * self.timeout_s
        plan = Plan(0, True, steps, seconds, int(calls * self.steps), patience)
        first = await outcomes(self.judge, source, function, inputs, plan)
        ended = [i for i, outcome in enumerate(first) if outcome.counts]
        for outcome, values in zip(first, inputs, strict=True):
            if outcome.kind == "not data":
                why = f"{name} gives a {outcome.form} on {list(values)!r:.200}, which is no data"
                raise Refused("not data", why)
        order = list(reversed(ended))
        tree = parse(source)
        sets = isinstance(tree, ast.Module) and unordered(tree)
        again = await asyncio.gather(
            *(
                outcomes(
                    self.judge,
                    source,
                    function,
                    [inputs[i] for i in order],
                    Plan(hash_seed, False, 5 * steps, 5 * seconds, 25 * self.steps, 1),
                )
                for hash_seed in (*_SEEDS, *(_MORE_SEEDS if sets else ()))
            )
        )
        for results in again:
            for i, outcome in zip(order, results, strict=True):
                if differ(first[i], outcome):
                    both = f"{first[i].text:.100}, then {outcome.text:.100}"
                    why = f"{name} on {list(inputs[i])!r:.200}: {both}"
                    raise NoOutcomes(Verdict("void", "not deterministic", why))
        return first


def accept_pair(p: str, q: str, function: str) -> Pair:
    """P and Q as a pair, or Refused: what may not be compared at all."""
    tree_p, of_p = _accept(p, function, "P")
    tree_q, of_q = _accept(q, function, "Q")
    if of_p.types != of_q.types or of_p.returns != of_q.returns:
        raise Refused("type", f"Q is of type {of_q}, and P of type {of_p}")
    if of_p.defaults != of_q.defaults:
        raise Refused("type", "Q has other defaults than P")
    return Pair(p, q, function, of_p, (tree_p, tree_q))


def _accept(source: str, function: str, name: str) -> tuple[ast.Module, Signature]:
    tree = parse(source)
    if isinstance(tree, str):
        raise Refused("syntax", f"{name}: {tree}")
    try:
        signature = signature_of(tree, function)
    except BadSignature as error:
        raise Refused("type", f"{name}: {error}") from None
    reason = impure(tree)
    if reason:
        raise Refused("not pure", f"{name} contains {reason}")
    return tree, signature


def _spread(inputs: list[list[Any]], most: int = 40) -> list[list[Any]]:
    """Some of the inputs, of all lengths: what hangs on hashes shows only in longer ones."""
    return inputs[:: max(1, len(inputs) // most)]


def _compare(values: list[Any], a: Outcome, b: Outcome) -> Verdict:
    for name, outcome in (("P", a), ("Q", b)):
        if not outcome.counts:
            why = f"{name} comes to nothing ({outcome.form}) on {values!r:.500}"
            return Verdict("fail", "no outcome", why)
    if differ(a, b):
        return Verdict("pass", "differ", _difference(values, a, b))
    return Verdict("fail", "same", f"on {values!r:.500} both: {a.text}")


def _difference(values: Sequence[Any], a: Outcome, b: Outcome) -> str:
    return f"input {list(values)!r}: P {_result(a)}, Q {_result(b)}"


def _result(outcome: Outcome) -> str:
    return outcome.text if outcome.kind == "raises" else f"gives {outcome.text}"

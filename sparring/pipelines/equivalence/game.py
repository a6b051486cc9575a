"""Equivalence: Alice rewrites a program and either proves that nothing has changed or shows an
input that tells; a machine checks her, and Bob is asked many times whether anything has changed."""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sparring.core.answers import check_style
from sparring.core.errors import nearest
from sparring.core.game import Game, Outcome
from sparring.core.scripted import STRONG
from sparring.core.table import Table
from sparring.core.types import Task, Verdict, View, VoidGame, derive
from sparring.judge.python.programs import shipped_task
from sparring.pipelines.equivalence import prompts as words
from sparring.pipelines.equivalence.judge.checkers import (
    INCIDENT,
    LANGUAGES,
    NOT_REFUTED,
    Checker,
    counterexample,
    make_checker,
)
from sparring.pipelines.equivalence.judge.inputs import need_tool
from sparring.pipelines.equivalence.judge.signature import BadSignature
from sparring.pipelines.equivalence.programs import (
    code_of,
    need_proofs,
    program_of,
    unchanged,
    unusable,
)
from sparring.pipelines.equivalence.prompts import SEQ, SINQ
from sparring.run.games import Count, Seconds, Share, Tokens
from sparring.tasks.code import one_return

ACCEPTED, REJECTED = "accepted", "rejected"
# A program's own fault, whatever its verdict is called.
_FAULTS = ("not deterministic",)

Targets = Annotated[tuple[Annotated[float, Field(ge=0, le=10)], ...], Field(min_length=1)]


@dataclass
class Equivalence(Game):
    """Alice is paid by how hard the pair is for Bob, Bob by how often he is right."""

    seats: ClassVar[tuple[str, ...]] = ("alice", "bob")
    runs_code: ClassVar[bool] = True

    language: str = "python"
    style: str = "short"  # of Bob's answers
    samples: Count = 10  # independent judgements of Bob
    tries: Count = 3  # of Alice, for Q
    proof_tries: Count = 3  # of Alice, for the proof
    share: Share = 0.5  # of games that are of the equivalent branch
    targets: Targets = (2, 4, 6, 8, 10)  # difficulties that Alice is asked for
    prove: bool = True  # Haskell only; without, an attack that finds nothing has to do
    allow_unrefuted: bool = False  # whether "not refuted within the budget" will do
    timeout_s: Seconds = 2.0  # of one call
    inputs: Annotated[int, Field(ge=0)] = 100  # random ones of an attack, beside the edge cases
    work: Annotated[int, Field(ge=0)] = 20_000_000  # Python: steps of the search; 0: no search
    crosshair_paths: Annotated[int, Field(ge=0)] = 100  # Python: 0 leaves CrossHair out
    alice_tokens: Tokens = None  # None: as the recipe's sampling says
    bob_tokens: Tokens = None
    provable: frozenset[str] | None = field(default=None, init=False, repr=False)  # tasks
    known: dict[tuple[str, ...], Verdict] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_style(self.style)
        if self.language not in LANGUAGES:
            raise ValueError(f"no language {self.language!r}; {nearest(self.language, LANGUAGES)}")

    @property
    def proved(self) -> bool:
        """Whether an equivalence needs a proof; Python has none, and CrossHair's word instead."""
        return self.language == "haskell" and self.prove

    @property
    def problems(self) -> str:  # type: ignore[override]  # the shipped set hangs on the language
        return f"equivalence_{self.language}"

    def make_judge(self, sandbox: str) -> Checker:
        return make_checker(
            self.language,
            sandbox,
            timeout_s=self.timeout_s,
            inputs=self.inputs,
            work=self.work,
            crosshair_paths=self.crosshair_paths,
        )

    def branch(self, seed: int) -> tuple[str, float]:
        """The branch of a game, by its seed, and the difficulty that Alice is asked for."""
        rng = random.Random(derive(seed, "branch"))
        branch = SEQ if rng.random() < self.share else SINQ
        return branch, rng.choice(self.targets)

    def check_all(self, tasks: Sequence[Task], sandbox: str) -> None:
        super().check_all(tasks, sandbox)
        if self.proved and self.share > 0:
            self.provable = need_proofs(tasks, sandbox)

    def suited(self, tasks: Sequence[Task], seed: int) -> Sequence[Task]:
        """Where proofs are asked for, the programs that can be proved about, for both branches:
        others could only ever be inequivalent, and their shape would give the answer away."""
        if self.provable is None:
            return tasks
        return [task for task in tasks if task.id in self.provable] or tasks

    def check(self, task: Task) -> None:
        code_of(task)
        if self.language == "python":  # missed now, and not in every game of the first round
            if self.inputs > 0:
                need_tool("hypothesis", "random inputs are made")
            if self.crosshair_paths > 0:
                need_tool("crosshair", "programs are searched symbolically")

    def unusable(self, task: Task) -> str:
        return unusable(task, self.language)

    def task(self, seed: int) -> Task:
        return shipped_task(self.problems, seed)

    async def play(self, task: Task, table: Table) -> Outcome:
        function, p = await self._usable(task, table)
        branch, target = self.branch(table.seed)
        if self.proved and self.share > 0:
            verdict = _not_broken(await table.judge(self._quietly("provable", p, function)))
            if not verdict.passed:
                raise VoidGame(
                    f"P of task {task.id} cannot be proved about, so that it could only ever be "
                    f"inequivalent: {verdict.detail}"
                )
        facts: dict[str, Any] = {
            "language": self.language,
            "branch": branch,
            "function": function,
            "p": p,
            "target": target,
            "rejected": [],
        }
        made = await self._propose(p, function, branch, target, table, facts)
        if not made:
            return Outcome(alice=-1, bob=0, facts={**facts, "end": REJECTED})
        if branch == SINQ and self.language == "python" and self.crosshair_paths > 0:
            facts["crosshair_input"] = await table.judge(self._seek(p, facts["q"], function))
        truth = branch == SEQ
        answers = await self._ask(p, facts["q"], truth, table)
        right = sum(answer is truth for _, answer, _ in answers)
        # In this order a whole number of ten samples is a whole number: 1 - 0.9 is less than 0.1.
        difficulty = 10 * (len(answers) - right) / len(answers)
        facts |= {
            "end": ACCEPTED,
            "difficulty": difficulty,
            "successes": right,
            "unparseable": sum(answer is None for _, answer, _ in answers),
            "answers": [
                {"swapped": swapped, "answer": answer, "text": text}
                for swapped, answer, text in answers
            ],
        }
        return Outcome(alice=difficulty / 10, bob=right / len(answers), facts=facts)

    async def _usable(self, task: Task, table: Table) -> tuple[str, str]:
        """The function to judge, and its program. One that cannot be used voids its game alone."""
        try:
            function, p = program_of(task, self.language)
        except BadSignature as error:
            raise VoidGame(f"P of task {task.id} cannot be used (type): {error}") from error
        verdict = await table.judge(self._ruled("compiles", p, function))
        if not verdict.passed:
            raise VoidGame(f"P of task {task.id} cannot be used ({verdict.kind}): {verdict.detail}")
        return function, p

    async def _ruled(self, verb: str, *given: str) -> Verdict:
        """A checker's verdict, worked out once for the same programs."""
        key = (verb, *given)
        if key not in self.known:
            verdict: Verdict = await getattr(self.judge, verb)(*given)
            if verdict.status == "void" and verdict.kind not in _FAULTS:
                return verdict
            self.known[key] = verdict
        return self.known[key]

    async def _seek(self, p: str, q: str, function: str) -> str | None:
        """What CrossHair finds by itself, to be compared with Alice's."""
        from sparring.pipelines.equivalence.judge.python import PythonChecker

        checker = self.judge
        return await checker.seek(p, q, function) if isinstance(checker, PythonChecker) else None

    async def _propose(
        self,
        p: str,
        function: str,
        branch: str,
        target: float,
        table: Table,
        facts: dict[str, Any],
    ) -> bool:
        """Alice's tries for Q, each with what was wrong with the last; true when one was taken."""
        alice = table["alice"]
        prompt = words.alice_prompt(self.language, branch, p, function, target, self.style)
        facts["alice_prompt"] = prompt
        line = words.terse_line(p, self.style)
        most = self.alice_tokens
        why = Verdict("fail")
        for number in range(1, self.tries + 1):
            tried = {row["q"].strip() for row in facts["rejected"]}
            view = await self._view(alice.policy, p, function, branch, table, number, tried)
            if number == 1:
                system = words.system_of("alice", self.style)
                turn = await alice.act(prompt, system=system, view=view, max_tokens=most)
            else:
                turn = await alice.reply(
                    words.refusal(why.kind, why.detail), view=view, max_tokens=most
                )
            proposal = words.read_proposal(turn.text, self.language, branch, line)
            facts["tries"] = number
            why = await self._rule(p, function, branch, proposal, table)
            if why.passed and branch == SEQ and self.proved:
                why = await self._prove(p, function, proposal.q, table, facts)
            if why.passed:
                facts |= {"q": proposal.q, "input": proposal.input, "alice_output": turn.text}
                facts |= {"evidence": why.kind, "detail": why.detail}
                if view is not None:
                    facts["rule"] = view.state["rule"]
                return True
            facts["rejected"].append(
                {
                    "q": proposal.q,
                    "input": proposal.input,
                    "kind": why.kind,
                    "reason": why.detail,
                    "text": turn.text,
                }
            )
        return False

    async def _rule(
        self, p: str, function: str, branch: str, proposal: words.Proposal, table: Table
    ) -> Verdict:
        if proposal.wrong or unchanged(p, proposal.q, self.language):
            wrong = Verdict("fail", "form", proposal.wrong)
            verdict = wrong if proposal.wrong else Verdict("fail", "unchanged", "Q is P")
            table.verdicts.append(verdict)
            return verdict
        if branch == SINQ:
            asked = self._ruled("diverges", p, proposal.q, function, proposal.input or "")
        elif self.proved:
            asked = self._ruled("compiles", proposal.q, function)
        elif self.language == "haskell":
            asked = self._ruled("attack", p, proposal.q, function)
        else:
            asked = self._ruled("equivalent", p, proposal.q, function, "")
        verdict = _not_broken(await table.judge(asked))
        if verdict.passed and verdict.kind == NOT_REFUTED and not self.allow_unrefuted:
            return Verdict("fail", NOT_REFUTED, f"{verdict.detail}, but that is no proof")
        return verdict

    async def _prove(
        self,
        p: str,
        function: str,
        q: str,
        table: Table,
        facts: dict[str, Any],
    ) -> Verdict:
        """Alice's tries for the proof, with the prover's messages."""
        alice = table["alice"]
        message = words.proof_prompt(function)
        verdict = Verdict("fail", "proof", "there was no try")
        script = _scripted_proofs(p, q, function) if alice.policy in STRONG else None
        for number in range(self.proof_tries):
            if script is not None and number >= len(script):
                break  # nothing else to try: a proof that has failed fails again
            view = script[number] if script is not None else None
            turn = await alice.reply(message, view=view, max_tokens=self.alice_tokens)
            proof = words.block(turn.text, "haskell")
            if proof is None:
                verdict = Verdict("fail", "form", "there is no closed ```haskell block")
                table.verdicts.append(verdict)
            else:
                verdict = _not_broken(
                    await table.judge(self._ruled("equivalent", p, q, function, proof))
                )
            if verdict.passed:
                facts |= {"proof": proof, "proof_output": turn.text}
                return verdict
            facts["rejected"].append(
                {"q": q, "proof": proof, "kind": verdict.kind, "reason": verdict.detail}
            )
            message = words.refusal(verdict.kind, verdict.detail)
        return verdict

    async def _ask(
        self, p: str, q: str, truth: bool, table: Table
    ) -> list[tuple[bool, bool | None, str]]:
        """Bob's judgements, each on its own, in either order of the programs by turns."""
        first = derive(table.seed, "order") % 2
        answers = tuple(words.bob_output(each, self.style) for each in (True, False))
        right = words.bob_output(truth, self.style)

        async def judged(number: int) -> tuple[bool, bool | None, str]:
            swapped = (number + first) % 2 == 1
            pair = (q, p) if swapped else (p, q)
            prompt = words.bob_prompt(self.language, self.style, *pair)
            view = View({"pair": pair, "right": right}, answers)
            bob = table["bob"].fork()
            system = words.system_of("bob", self.style)
            turn = await bob.act(prompt, system=system, view=view, max_tokens=self.bob_tokens)
            return swapped, words.read_answer(turn.text, self.style), turn.text

        return list(await asyncio.gather(*(judged(n) for n in range(self.samples))))

    async def _view(
        self,
        policy: str,
        p: str,
        function: str,
        branch: str,
        table: Table,
        number: int,
        tried: set[str],
    ) -> View | None:
        """What a scripted Alice says: a rewrite by rule that was not refused before, with an input
        of the attack."""
        if policy not in STRONG:
            return None
        rng = random.Random(derive(table.seed, "script", number))
        rewrites = script(self.language, p, function, branch == SEQ, rng)
        line = words.terse_line(p, self.style)
        for rule, q in [r for r in rewrites if _sayable(r[1], line, tried)][:6]:
            if branch == SEQ:
                return _scripted(rule, words.written(self.language, q, line=line))
            verdict = _not_broken(await table.judge(self._quietly("attack", p, q, function)))
            input = counterexample(verdict, function)
            if input is not None:
                return _scripted(rule, words.written(self.language, q, input, line))
        return _scripted("none", "no rule fits")

    async def _quietly(self, verb: str, *given: str) -> _Ruling:
        """A verdict that is looked at while a proposal is made, and is not on record."""
        return _Ruling(await self._ruled(verb, *given))

    def scripted(self, view: View, seed: int) -> str:
        """Alice's rewrite by rule. There is no rule to judge by: Bob's answer is drawn."""
        return view.state.get("text") or random.Random(seed).choice(view.actions)

    def perfect(self, view: View, seed: int) -> str:
        """The same Alice, and a Bob who has been told what the checker said."""
        return str(view.state.get("text") or view.state["right"])


@dataclass(frozen=True, slots=True)
class _Ruling:
    verdict: Verdict


def _scripted_proofs(p: str, q: str, function: str) -> list[View]:
    from sparring.pipelines.equivalence.proofs_haskell import proofs

    return [_scripted("proof", words.fenced("haskell", proof)) for proof in proofs(p, q, function)]


def _sayable(q: str, line: tuple[str, str] | None, tried: set[str]) -> bool:
    """Whether a rewrite is new, and where Alice is terse of one line, as P is."""
    return q.strip() not in tried and (line is None or (one_return(q) or ("",))[0] == line[0])


def _scripted(rule: str, text: str) -> View:
    return View({"rule": rule, "text": text}, ("rewrite",))


def _not_broken(ruling: Verdict | _Ruling) -> Verdict:
    """A checker that broke voids the game; a program that is not steady is only refused. Two
    checkers that contradict each other void it as well: neither is learned from."""
    verdict = ruling.verdict if isinstance(ruling, _Ruling) else ruling
    if verdict.kind == INCIDENT:
        raise VoidGame(f"{INCIDENT}: {verdict.detail}")
    if verdict.status == "void" and verdict.kind not in _FAULTS:
        raise VoidGame(f"the checker could not rule ({verdict.kind}): {verdict.detail}")
    return verdict


def script(
    language: str, p: str, function: str, keeps: bool, rng: random.Random
) -> list[tuple[str, str]]:
    """Rewrites by rule, as (rule, program), in the order to try them."""
    rules = importlib.import_module(f"sparring.pipelines.equivalence.rewrites_{language}")
    return [(rewrite.rule, rewrite.code) for rewrite in rules.choose(p, function, keeps, rng)]

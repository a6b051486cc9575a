"""The teacher of the game of equivalence: what a round showed becomes records to be fitted to,
which add up over the rounds, and the files of the round."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Sample, derive
from sparring.credit.credit import Credit
from sparring.models.chat import Chat
from sparring.pipelines.equivalence import prompts as words
from sparring.pipelines.equivalence.config import EquivalenceConfig
from sparring.pipelines.equivalence.game import ACCEPTED, Equivalence
from sparring.pipelines.equivalence.judge.checkers import INCIDENT
from sparring.run.config import Config
from sparring.run.games import make_games
from sparring.run.players import frozen
from sparring.run.rundir import write_whole
from sparring.tasks import load_tasks
from sparring.training.lessons import Teacher

ALICE, BOB = "alice", "bob"
Record = dict[str, Any]  # system_prompt, user_prompt, output, and what it is known by


class EquivalenceTeacher(Teacher):
    """Rounds of expert iteration: hard pairs always, easy ones in part, all of it kept."""

    def __init__(self, config: Config, credit: Credit, chat: Chat) -> None:
        games = [g for g in make_games(config.games).values() if isinstance(g, Equivalence)]
        if len(games) != 1:
            raise ConfigError("teach.kind: equivalence needs the game `equivalence`, once")
        super().__init__(config, credit, chat)
        self.game = games[0]
        self.policies = {seat: config.players.get(seat, "main") for seat in (ALICE, BOB)}
        self.keep = config.section(EquivalenceConfig)
        given = {ALICE: self.keep.alice_data, BOB: self.keep.bob_data}
        self.records = {seat: earlier(source) for seat, source in given.items()}

    def lessons(
        self, episodes: list[Episode], iteration: int, run: Path
    ) -> tuple[list[Sample], dict[str, float]]:
        accepted = [e for e in episodes if e.void is None and e.facts.get("end") == ACCEPTED]
        taken = keep(
            accepted,
            lambda e: float(e.facts["difficulty"]),
            lambda e: (e.facts["branch"], int(e.facts["difficulty"])),
            threshold=self.keep.threshold,
            easy=self.keep.easy,
            seed=derive(self.config.seed, "buffer", iteration),
        )
        for episode in taken:
            self.records[ALICE] += alice_records(
                episode, self.game.style, predict=self.keep.predict
            )
            self.records[BOB] += bob_records(episode, self.game.style)
        stats = round_stats(episodes, accepted, taken)
        stats |= {f"{seat}_records": len(records) for seat, records in self.records.items()}
        self._write(run / f"iteration_{iteration}", episodes, taken, iteration, stats)
        return self._samples(), _metrics(stats)

    def _samples(self) -> list[Sample]:
        """All records so far, as lessons of the policy that learns in the seat."""
        from sparring.learn.demonstrations import Demonstration, to_samples

        made: list[Sample] = []
        for seat, records in self.records.items():
            if frozen(self.policies[seat], self.config):
                continue
            weights = balanced(records) if self.keep.balance else [1.0] * len(records)
            demonstrations = [
                Demonstration.of(r["system_prompt"], r["user_prompt"], r["output"], weight)
                for r, weight in zip(records, weights, strict=True)
            ]
            made += to_samples(self.chat, demonstrations, self.policies[seat])
        return made

    def _write(
        self,
        folder: Path,
        episodes: Sequence[Episode],
        taken: Sequence[Episode],
        iteration: int,
        stats: dict[str, Any],
    ) -> None:
        folder.mkdir(exist_ok=True)
        chosen = {e.id for e in taken}
        rows = [row_of(e, e.id in chosen) for e in episodes]
        write_lines(folder / "iteration_data.jsonl", (r for r in rows if r["status"] == ACCEPTED))
        write_lines(folder / "rejected.jsonl", rejections(episodes))
        for seat, records in self.records.items():
            write_lines(folder / f"{seat}_training_data.jsonl", records)
        write_lines(folder / "seq_summary.jsonl", [{"iteration": iteration, **stats}])

    def learned(self, policies: Any, iteration: int, run: Path) -> None:
        """Leave both adapters in the round's folder, as peft saves them."""
        from sparring.training.finetune import export_adapter

        for seat, policy in self.policies.items():
            if policy in policies.names() and self.records[seat]:
                folder = run / f"iteration_{iteration}" / f"{seat}_adapters"
                export_adapter(policies, policy, self.config, folder)

    def state(self) -> dict[str, Any]:
        return {"records": self.records}

    def load(self, state: dict[str, Any]) -> None:
        self.records = {seat: list(records) for seat, records in state["records"].items()}


def earlier(source: str | None) -> list[Record]:
    """Records that other rounds left, to be added to."""
    if source is None:
        return []
    from sparring.learn.demonstrations import Demonstration

    records = []
    for number, task in enumerate(load_tasks(source, None), 1):
        Demonstration.from_record(task.data, f"record {number} of {source}")
        records.append({"system_prompt": "", "task": "given", "branch": "", **task.data})
    return records


def alice_records(episode: Episode, style: str, *, predict: bool = False) -> list[Record]:
    """Alice's corrected prompt and her reply: her prompt with the difficulty that was
    measured in the place of the one that was wished for."""
    facts = episode.facts
    language, branch = facts["language"], facts["branch"]
    prompt = words.alice_prompt(
        language, branch, facts["p"], facts["function"], facts["difficulty"], style
    )
    known = {"id": episode.id, "branch": branch, "difficulty": facts["difficulty"]}
    output = words.written(
        language, facts["q"], facts["input"], words.terse_line(facts["p"], style)
    )
    records = [_record(words.system_of(ALICE, style), prompt, output, task="rewrite", **known)]
    if facts.get("proof"):
        # A conversation of one message: the proof is learned as the answer to P, Q and the wish.
        asked = f"{prompt}\n{output}\n{words.proof_prompt(facts['function'])}"
        proof = words.fenced(language, facts["proof"])
        records.append(_record(words.ALICE_SYSTEM, asked, proof, task="prove", **known))
    if predict:
        asked = words.difficulty_prompt(language, facts["p"], facts["q"], branch)
        answer = f"{facts['difficulty']:g}"
        records.append(_record(words.ALICE_SYSTEM, asked, answer, task="predict", **known))
    return records


def bob_records(episode: Episode, style: str) -> list[Record]:
    """The right answer in both orders: Bob's own words where they came to it, else the bare one."""
    facts = episode.facts
    truth = facts["branch"] == words.SEQ
    records = []
    for swapped in (False, True):
        own = [
            a["text"] for a in facts["answers"] if a["swapped"] is swapped and a["answer"] is truth
        ]
        pair = (facts["q"], facts["p"]) if swapped else (facts["p"], facts["q"])
        prompt = words.bob_prompt(facts["language"], style, *pair)
        output = own[0] if own and style == "reason" else words.bob_output(truth, style)
        known = {"id": episode.id, "branch": facts["branch"], "difficulty": facts["difficulty"]}
        records.append(_record(words.system_of(BOB, style), prompt, output, task="judge", **known))
    return records


def _record(system: str | None, user: str, output: str, **known: Any) -> Record:
    return {"system_prompt": system or "", "user_prompt": user, "output": output, **known}


def balanced(records: Sequence[Record]) -> list[float]:
    """Weights by which both branches of a task count the same, and all of it as before: when all
    that is hard is of one kind, Bob would otherwise learn no more than to say its name."""
    counts = Counter((r["task"], r["branch"]) for r in records)
    of_task = Counter(task for task, _ in counts)
    sizes = Counter(r["task"] for r in records)
    return [
        sizes[r["task"]] / (of_task[r["task"]] * counts[r["task"], r["branch"]]) for r in records
    ]


def row_of(episode: Episode, kept: bool) -> Record:
    """One game as a line of `iteration_data.jsonl`."""
    facts = episode.facts
    status = "void" if episode.void is not None else str(facts.get("end", "void"))
    wanted = (
        *("language", "branch", "function", "p", "q", "input", "proof", "rule", "evidence"),
        *("detail", "difficulty", "target", "successes", "unparseable", "tries"),
        "crosshair_input",
    )
    fields = {key: facts[key] for key in wanted if facts.get(key) is not None}
    return {"id": episode.id, "task": episode.task.id, "status": status, "kept": kept, **fields}


def rejections(episodes: Iterable[Episode]) -> list[Record]:
    """Every proposal that was not taken, with the reason, and every game that could not be had."""
    rows: list[Record] = []
    for episode in episodes:
        known = {"id": episode.id, "task": episode.task.id}
        if episode.void is not None:
            kind = INCIDENT if episode.void.startswith(INCIDENT) else "void"
            rows.append({**known, "kind": kind, "reason": episode.void})
        for number, refused in enumerate(episode.facts.get("rejected", []), 1):
            branch = episode.facts["branch"]
            rows.append({**known, "branch": branch, "number": number, **refused})
    return rows


def round_stats(
    episodes: Sequence[Episode], accepted: Sequence[Episode], taken: Sequence[Episode]
) -> dict[str, Any]:
    """The round in numbers; `confusion` counts Bob's single judgements by truth and answer."""
    confusion = {"seq": [0, 0, 0], "sinq": [0, 0, 0]}  # answered yes, no, neither
    for episode in accepted:
        for answer in episode.facts["answers"]:
            column = {True: 0, False: 1, None: 2}[answer["answer"]]
            confusion[episode.facts["branch"]][column] += 1
    refused = Counter(r["kind"] for r in rejections(episodes))
    searched = [e.facts for e in accepted if "crosshair_input" in e.facts]
    with_input = [f for f in searched if f["crosshair_input"] is not None]
    right = confusion["seq"][0] + confusion["sinq"][1]
    asked = sum(map(sum, confusion.values()))
    difficulties = [e.facts["difficulty"] for e in accepted]
    return {
        "games": len(episodes),
        "accepted": len(accepted),
        "accepted_seq": sum(e.facts["branch"] == words.SEQ for e in accepted),
        "accepted_sinq": sum(e.facts["branch"] == words.SINQ for e in accepted),
        "kept": len(taken),
        "void": sum(e.void is not None for e in episodes),
        "incidents": refused[INCIDENT],
        "rejections": dict(sorted(refused.items())),
        "evidence": dict(sorted(Counter(e.facts["evidence"] for e in accepted).items())),
        "crosshair_searched": len(searched),
        "crosshair_found": len(with_input),
        "crosshair_shorter": sum(len(f["crosshair_input"]) < len(f["input"]) for f in with_input),
        "mean_difficulty": fmean(difficulties) if difficulties else None,
        "difficulties": histogram(difficulties),
        "bob_accuracy": right / asked if asked else None,
        "confusion": confusion,
    }


def _metrics(stats: dict[str, Any]) -> dict[str, float]:
    """The numbers of a summary; its tables stay in its file, where the report finds them."""
    plain = {k: float(v) for k, v in stats.items() if isinstance(v, int | float)}
    return {f"equivalence/{key}": value for key, value in plain.items()}


def write_lines(path: Path, rows: Iterable[Record]) -> None:
    write_whole(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


T = TypeVar("T")


def keep(
    items: Sequence[T],
    difficulty: Callable[[T], float],
    stratum: Callable[[T], Hashable],
    *,
    threshold: float = 5.0,
    easy: float = 0.2,
    seed: int = 0,
) -> list[T]:
    """The items above the threshold, and of each stratum of the others a share `easy`, rounded up
    so that none is forgotten. The order stays, and the choice hangs on the seed alone."""
    kept = {i for i, item in enumerate(items) if difficulty(item) > threshold}
    strata: dict[Hashable, list[int]] = defaultdict(list)
    for i, item in enumerate(items):
        if i not in kept:
            strata[stratum(item)].append(i)
    for name, indices in strata.items():
        count = math.ceil(easy * len(indices) - 1e-9)
        kept |= set(random.Random(derive(seed, repr(name))).sample(indices, count))
    return [item for i, item in enumerate(items) if i in kept]


def histogram(values: Sequence[float], bins: int = 10, top: float = 10.0) -> list[int]:
    """How many values lie in each of `bins` equal parts of 0 … top; the last one holds top."""
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(value / top * bins))] += 1
    return counts

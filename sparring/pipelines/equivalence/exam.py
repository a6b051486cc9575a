"""Bob's exam: pairs of programs whose truth is known and which no training saw, in both orders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparring.core.errors import ConfigError
from sparring.core.types import MAIN, Request, Sampling, derive
from sparring.evaluation.periodic import Evaluation, due, write_details
from sparring.pipelines.equivalence import prompts as words
from sparring.pipelines.equivalence.config import PairsConfig
from sparring.run.config import Config
from sparring.run.games import make_games
from sparring.tasks import load_tasks

if TYPE_CHECKING:
    from sparring.engines.engine import OwnEngine
    from sparring.pipelines.equivalence.game import Equivalence


@dataclass(frozen=True, slots=True)
class Known:
    """A pair, and whether its programs are equivalent."""

    id: str
    language: str
    p: str
    q: str
    equivalent: bool


def load_pairs(source: str, language: str, limit: int | None = None) -> list[Known]:
    """The pairs that are for testing, as many of either truth as there are of the rarer."""
    name = f"shipped:pairs_{language}" if source == "shipped" else source
    pairs = []
    for task in load_tasks(name, "test"):
        row = task.data
        for key in ("p", "q", "claim"):
            if not isinstance(row.get(key), str):
                raise ConfigError(f"pair {task.id} of {source} has no text under {key!r}")
        pairs.append(Known(task.id, language, row["p"], row["q"], row["claim"] == "equivalent"))
    both = [[k for k in pairs if k.equivalent is truth] for truth in (True, False)]
    most = min(len(both[0]), len(both[1]), *([limit // 2] if limit else []))
    if most == 0:
        raise ConfigError(f"{source} has no test pairs of both truths")
    return [k for of_truth in both for k in of_truth[:most]]


async def examine(
    pairs: Sequence[Known],
    engine: OwnEngine,
    policy: str,
    style: str,
    *,
    max_tokens: int,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """What Bob says of each pair in each order, at his likeliest."""

    async def ask(index: int, pair: Known, swapped: bool) -> dict[str, Any]:
        programs = (pair.q, pair.p) if swapped else (pair.p, pair.q)
        prompt = words.bob_prompt(pair.language, style, *programs)
        system = words.system_of("bob", style)
        before = [] if system is None else [{"role": "system", "content": system}]
        request = Request(
            seat="bob",
            policy=policy,
            messages=[*before, {"role": "user", "content": prompt}],
            sampling=Sampling(temperature=0.0, max_tokens=max_tokens),
            seed=derive(seed, pair.id, swapped),
            order=(index, int(swapped)),
        )
        turn = await engine.act(request)
        answer = words.read_answer(turn.text, style)
        return {"id": pair.id, "equivalent": pair.equivalent, "swapped": swapped, "answer": answer}

    asked = [ask(i, pair, swapped) for i, pair in enumerate(pairs) for swapped in (False, True)]
    return list(await asyncio.gather(*asked))


def exam_stats(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The confusion matrix, by truth and by yes, no and neither, and what it comes to."""
    confusion = {"equivalent": [0, 0, 0], "inequivalent": [0, 0, 0]}
    for answer in answers:
        truth = "equivalent" if answer["equivalent"] else "inequivalent"
        confusion[truth][{True: 0, False: 1, None: 2}[answer["answer"]]] += 1
    right = confusion["equivalent"][0] + confusion["inequivalent"][1]
    return {
        "pairs": len(answers) // 2,
        "accuracy": right / max(1, len(answers)),
        "confusion": confusion,
    }


async def examine_run(
    config: Config, engine: OwnEngine, run: Path, iteration: int
) -> dict[str, float]:
    """The metrics of one exam; its answers go into a file of the run."""

    wanted, game = config.section(PairsConfig), _game(config)
    if wanted.data is None or not due(wanted.every, config, iteration):
        return {}
    answers = await examine(
        load_pairs(wanted.data, game.language, wanted.limit),
        engine,
        config.players.get("bob", MAIN),
        game.style,
        max_tokens=game.bob_tokens or config.sampling.max_tokens,
        seed=config.seed,
    )
    stats = exam_stats(answers)
    record = {"iteration": iteration, "data": wanted.data, **stats}
    write_details(run / "evaluations" / f"pairs_{iteration:06d}.json", record, answers)
    return {"pairs_eval/accuracy": stats["accuracy"], "pairs_eval/pairs": stats["pairs"]}


def prepare(config: Config) -> bool:
    """Find the pairs now, not after the first round."""
    data = config.section(PairsConfig).data
    if data is not None:
        load_pairs(data, _game(config).language)
    return data is not None


def _game(config: Config) -> Equivalence:
    from sparring.pipelines.equivalence.game import Equivalence

    if "equivalence" not in config.games:
        raise ConfigError("pairs.data is for runs of the game `equivalence`; this one has none")
    game = make_games(config.games)["equivalence"]
    assert isinstance(game, Equivalence)
    return game


evaluation = Evaluation(prepare, examine_run)

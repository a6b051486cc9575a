"""A run directory as training leaves it: real games by scripted players, metrics with events."""

import asyncio
import gzip
import json
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparring.core.collect import Job, play
from sparring.core.game import Game, Outcome
from sparring.core.scripted import play_random
from sparring.core.table import Table
from sparring.core.types import Episode, Request, Task, Turn, Verdict, derive, episode_to_json
from sparring.games.negotiation import SimpleNegotiation
from sparring.run.config import dump, make_config
from sparring.run.games import load_game

HOSTILE = "</script></pre><img src=x onerror=alert(1)><script>alert('\"&amp;')</script> \ud800"
GAMES = {"tictactoe": {"style": "short", "opening": 2}, "kuhn": {}, "negotiation": {}}
ITERATIONS = 120


class Riddle(Game):
    """A game nobody draws: it must still be readable."""

    seats = ("asks", "answers", "judges")

    async def play(self, task: Task, table: Table) -> Outcome:
        await table["asks"].act("Ask a riddle.", system="You are the sphinx.")
        await table["answers"].act("What goes on four legs in the morning?")
        await table.judge(_ruling())
        return Outcome(asks=-1, answers=1, judges=0, facts={"riddle": HOSTILE})


async def _ruling() -> Verdict:
    return Verdict("pass", "exact", f"the answer is {HOSTILE}")


def speak(game: Game, voices: dict[str, Callable[[Request], str]]) -> Any:
    """Policies that are programs; the learner's turns carry ids and logprobs as a model's do."""

    async def said(request: Request) -> Turn:
        text = voices[request.policy](request)
        turn = Turn(request.seat, request.policy, request.messages[-1]["content"], text)
        if request.policy == "main":
            turn.token_ids, turn.logprobs = [5, 6, 7], [-0.05, -0.2, -0.01]
        return turn

    return said


def think(action: str) -> str:
    return f"The other player may take a line next, so this cell matters most.\n\\boxed{{{action}}}"


def voices(game: Game) -> dict[str, Callable[[Request], str]]:
    def perfect(request: Request) -> str:
        assert request.view is not None
        strong = game.scripted if isinstance(game, SimpleNegotiation) else game.perfect
        return strong(request.view, request.seed)

    return {
        "main": lambda request: think(perfect(request)),
        "random": play_random,
        "perfect": perfect,
        "broken": lambda request: f"I would rather not. {HOSTILE}",
    }


def episode(name: str, seating: Iterable[str], seed: int) -> Episode:
    game = Riddle() if name == "riddle" else load_game(name, **GAMES[name])
    talk = voices(game)
    if name == "riddle":
        talk = dict.fromkeys(talk, lambda request: f"Man. {HOSTILE} http://example.org/x.js")
    seats = dict(zip(game.seats, seating, strict=True))
    job = Job(f"{name}-{seed}", name, game, game.task(seed), derive(seed), seats)
    return asyncio.run(play(job, speak(game, talk)))


def pack(path: Path, episodes: Iterable[Episode]) -> None:
    path.parent.mkdir(exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for one in episodes:
            file.write(json.dumps(episode_to_json(one)) + "\n")


def metrics_line(i: int, rng: random.Random) -> dict[str, float]:
    """Curves with the shapes of a run that learns, noise included."""
    left = math.exp(-i / 30)
    noise = rng.uniform(-0.05, 0.05)
    line: dict[str, float] = {"iteration": i, "episodes": 128, "turns": 900 + rng.randint(-40, 40)}
    line |= {"tokens": 9 * line["turns"], **({"guard/rollbacks": 1} if i == 71 else {})}
    line |= {"rate/invalid": max(0.0, 0.6 * left + noise / 5), "rate/void": 0.0}
    for game, seats in {"tictactoe": "x o", "kuhn": "first second"}.items():
        for sign, seat in zip((1, -1), seats.split(), strict=True):
            line[f"reward/{game}/{seat}"] = sign * (0.3 * left + 2 * noise) - 0.4 * left
            line[f"baseline/{game}/{seat}"] = sign * 0.2 * left - 0.3 * left
    line |= {"length/tokens": 14 - 6 * left + 10 * noise, "length/turns": 7 - 3 * left + 4 * noise}
    line |= {"learn/loss": noise / 3, "learn/entropy": 0.2 + 1.6 * left + noise}
    line |= {"learn/kl": 0.02 * (1 - left) + abs(noise) / 9, "learn/clip_rate": 0.03 + noise / 3}
    line |= {"learn/canary": 2.4e-7 + abs(noise) * 1e-7, "learn/grad_norm": 0.8 + 4 * noise}
    line |= {"learn/lr": 3e-4 * (1 - i / 130), "learn/steps": 4.0}
    line |= {"time/collect_s": 1.2 + noise, "time/learn_s": 0.6 + noise, "time/judge_s": 0.0}
    line |= {"time/total_s": 2.1 + 2 * noise, "turns_per_s": 700 + 900 * noise}
    line |= {"tokens_per_s": 9100 + 9000 * noise, "reward/avg_batch_reward": 0.2 - left}
    line |= {"verdicts/pass": 40 + i / 2, "verdicts/wrong_value": 20 * left, "verdicts/void": 0}
    if i % 10 == 0:
        for opponent, ceiling in {"random": 0.99, "perfect": 0.93, "main@40": 0.8}.items():
            kept = ceiling * (1 - 0.7 * left)
            ends = {"wins": 0.7 * kept, "draws": 0.3 * kept, "losses": 1 - kept}
            ends |= {"invalid": 0.4 * left, "not_lost": kept, "games": 200}
            line |= {f"eval/tictactoe/{opponent}/{k}": v for k, v in ends.items()}
        line |= {"eval/tictactoe/regret": 0.6 * left + 0.02, "eval/kuhn/exploitability": 0.4 * left}
        line |= {"eval/kuhn/illegal_mass": 0.5 * left**2}
        line |= {"eval/kuhn/nash_conv": 0.2 * left, "eval/negotiation/surplus": 0.6 - 0.9 * left}
        line |= {"eval/score": 1 - left, "time/evaluate_s": 3.0, "mbpp_eval/pass_rate": 0.2 * i}
    return line


def write_run(run: Path) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    config = make_config({"recipe": "spiral", "iterations": ITERATIONS, "seed": 7, "games": GAMES})
    (run / "config.yaml").write_text(dump(config))
    rng = random.Random(3)
    lines = [json.dumps(metrics_line(i, rng)) for i in range(ITERATIONS)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    for i in (0, 60, 119):
        games = [replace(one, group=f"{i}-{n // 2}") for n, one in enumerate(training_games(i))]
        pack(run / "episodes" / f"{i:06d}.jsonl.gz", games)
    games = [episode("tictactoe", s, 50 + n) for n in range(6) for s in (("main", "random"),)]
    games += [episode("tictactoe", ("perfect", "main"), 9), episode("kuhn", ("random", "main"), 3)]
    pack(run / "evaluation_games.jsonl.gz", games)
    (run / "ladder.json").write_text(json.dumps(LADDER))
    (run / "evaluation.json").write_text(json.dumps(EVALUATION))
    (run / "events.jsonl").write_text("\n".join(json.dumps(event) for event in EVENTS) + "\n")
    return run


def training_games(i: int) -> list[Episode]:
    own = ("main", "main")
    first = [episode("tictactoe", ("main", "broken"), i)] if i == 0 else []
    last = [episode("riddle", ("main", "broken", "main"), i)] if i == 119 else []
    drawn = [episode(name, own, i + n) for n in range(3) for name in GAMES]
    return first + drawn[:3] + last + drawn[3:]


LADDER = {
    "model": "Bradley-Terry",
    "ratings": [
        {"name": name, "elo": elo, "low": elo - wide, "high": elo + wide, "games": 500, "pool": 0}
        for name, elo, wide in (
            ("perfect", 412, 61),
            ("main@119", 356, 58),
            ("main@80", 201, 55),
            ("main@40", -61, 52),
            ("main@0", -402, 57),
            ("random", -506, 62),
        )
    ],
}
EVALUATION = {
    "tictactoe": {
        "random": {"games": 500, "wins": 431, "draws": 62, "losses": 7, "invalid": 1},
        "perfect": {"games": 500, "wins": 0, "draws": 468, "losses": 32, "invalid": 0},
        "exact": {"regret": 0.021},
        "score": 0.7,
        "style": "short",
        "sampling": [{"temperature": 0.0, "top_p": 0.9, "max_tokens": 4}],
    },
    "kuhn": {
        "random": {"games": 500, "wins": 290, "draws": 0, "losses": 210, "invalid": 0},
        "exact": {"exploitability": 0.031, "nash_conv": 0.004},
        "method": "estimated from 100 replies",
    },
    "untrained": {
        "tictactoe": {
            "random": {"games": 500, "wins": 31, "draws": 4, "losses": 465, "invalid": 440},
            "perfect": {"games": 500, "wins": 0, "draws": 0, "losses": 500, "invalid": 420},
            "exact": {"regret": 1.62},
        },
        "kuhn": {
            "random": {"games": 500, "wins": 120, "draws": 0, "losses": 380, "invalid": 210},
            "exact": {"exploitability": 0.458, "nash_conv": 0.21},
        },
    },
}
EVENTS = [
    {"iteration": 34, "event": "resumed", "detail": "from checkpoint 30"},
    {"iteration": 71, "event": "rollback", "detail": f"entropy fell to 0.01 {HOSTILE}"},
]

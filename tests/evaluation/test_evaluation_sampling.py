"""Evaluation plays the policy that was trained: with its limits, in its style, and says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparring.core.game import Game, Outcome
from sparring.core.types import Episode, Request, Sampling, Task, Turn
from sparring.engines.engine import OwnEngine
from sparring.evaluation import policy_match
from sparring.evaluation.held_out import _numbers, evaluate_held_out, play_held_out
from sparring.evaluation.sampling import as_trained
from sparring.evaluation.standard import evaluate
from sparring.models import trained as trained_policies
from sparring.run.config import Config, make_config
from sparring.run.games import load_game
from sparring.training.loop import _evaluate

LONG: dict[str, Any] = {
    "sampling": {"max_tokens": 2048, "top_p": 0.9, "top_k": 40},
    "games": {"tictactoe": {"style": "reason"}},
    "evaluate": {"games": 4},
}


class Listening(OwnEngine):
    """An engine that notes what it is asked with, and takes the first action."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.policies = SimpleNamespace(names=lambda: ["base", "main"])

    async def act(self, request: Request) -> Turn:
        self.asked.append(request)
        word = request.view.actions[0] if request.view else "?"
        return Turn(request.seat, request.policy, "", word, token_ids=[1], logprobs=[0.0])

    def probabilities(self, policy: str, asked: Any, sampling: Sampling) -> list[list[float]]:
        return [[1.0] + [0.0] * (len(infoset.actions) - 1) for infoset in asked]


def used(engine: Listening) -> set[Sampling]:
    return {request.sampling for request in engine.asked}


TRAINED = Sampling(1.0, 0.9, 40, 2048)
GREEDY = replace(TRAINED, temperature=0.0)  # the evaluation's own; the limits are not
BOTH = [asdict(GREEDY), asdict(TRAINED)]


@pytest.mark.parametrize(("name", "style"), [("tictactoe", "reason"), ("matching", "reason")])
def test_matches_and_games_with_itself_have_the_recipes_limits(name: str, style: str) -> None:
    engine, config = Listening(), make_config(LONG)
    games: dict[str, Game] = {name: load_game(name, style=style)}
    found, episodes = asyncio.run(
        evaluate(games, engine, count=4, sampling=as_trained(config))  # type: ignore[arg-type]
    )
    assert episodes and used(engine) == {GREEDY, TRAINED}
    assert found[name]["style"] == style
    assert found[name]["sampling"] == BOTH


def test_what_is_said_is_what_the_game_asked_with() -> None:
    """The terse style answers in one token, whatever the recipe allows."""
    engine = Listening()
    games = {"tictactoe": load_game("tictactoe", style="terse")}
    sampling = as_trained(make_config(LONG))
    found, _ = asyncio.run(
        evaluate(games, engine, count=2, sampling=sampling, temperature=0.5)  # type: ignore[arg-type]
    )
    asked = [(how["max_tokens"], how["temperature"]) for how in found["tictactoe"]["sampling"]]
    assert asked == [(1, 0.5), (1, 1.0)]
    assert used(engine) == {Sampling(0.5, 0.9, 40, 1), Sampling(1.0, 0.9, 40, 1)}


def test_the_loop_evaluates_as_it_trains() -> None:
    config, engine = make_config(LONG), Listening()
    learner = SimpleNamespace(policies=engine.policies)
    games = {"tictactoe": load_game("tictactoe", style="reason")}
    parts: Any = SimpleNamespace(config=config, engine=engine, learner=learner, games=games)
    metrics = asyncio.run(_evaluate(parts))
    wins = {"eval/tictactoe/random/wins", "eval/tictactoe/random_sampled/wins"}
    assert wins <= set(metrics) and used(engine) == {GREEDY, TRAINED}


class Decided(Listening):
    """Plays well at one temperature alone, and forfeits at others."""

    def __init__(self, well_at: float) -> None:
        super().__init__()
        self.well_at = well_at

    async def act(self, request: Request) -> Turn:
        turn = await super().act(request)
        well = request.sampling.temperature == self.well_at
        return turn if well else replace(turn, text="I resign")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_score_that_picks_the_best_is_of_the_policy_as_it_was_trained(
    temperature: float,
) -> None:
    """Greedy results stand beside it and rank nobody, whatever the evaluation's temperature."""
    games = {"tictactoe": load_game("tictactoe", style="reason")}
    scores = {}
    for well_at in (0.0, 1.0):
        plan: dict[str, Any] = {"sampling": TRAINED, "temperature": temperature, "count": 4}
        results, _ = asyncio.run(evaluate(games, Decided(well_at), **plan))
        scores[well_at] = results["tictactoe"]["score"]
        sampled = results["tictactoe"].get("random_sampled")
        assert (sampled is None) == (temperature == TRAINED.temperature)
    assert scores[0.0] == 0 < scores[1.0]


def test_held_out_tasks_rank_by_sampled_games_too(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n".join(f'{{"id": "{i}"}}' for i in range(4)))
    source = {"source": str(tmp_path / "tasks.jsonl"), "holdout": 0.5}
    config, engine = make_config({**LONG, "tasks": source}), Listening()
    engine.outside = None  # type: ignore[attr-defined]

    class Scored(Asking):
        problems = "tasks"

        def score(self, episodes: Sequence[Episode]) -> float:
            return float(len(engine.asked))

    games: dict[str, Game] = {"g": Scored()}
    metrics = asyncio.run(evaluate_held_out(config, games, engine))  # type: ignore[arg-type]
    assert [request.sampling for request in engine.asked] == [GREEDY] * 4 + [TRAINED] * 4
    assert metrics["eval/score"] == 8  # scored after the sampled games


@pytest.mark.parametrize("void", [False, True])
def test_the_score_of_several_games_is_their_mean(tmp_path: Path, void: bool) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n".join(f'{{"id": "{i}"}}' for i in range(4)))
    source = {"source": str(tmp_path / "tasks.jsonl"), "holdout": 0.5}
    config, engine = make_config({**LONG, "tasks": source}), Listening()
    engine.outside = None  # type: ignore[attr-defined]

    @dataclass
    class Scored(Asking):
        problems = "tasks"
        worth: float = 0.0

        async def play(self, task: Any, table: Any) -> Any:
            return Outcome(void="cannot be judged") if void and self.worth else Outcome(a=0.0)

        def score(self, episodes: Sequence[Episode]) -> float:
            return self.worth

    games: dict[str, Game] = {"one": Scored(1.0), "other": Scored(0.0)}
    metrics = asyncio.run(evaluate_held_out(config, games, engine))  # type: ignore[arg-type]
    assert metrics.get("eval/score") == (None if void else 0.5)


class Asking(Game):
    seats = ("a",)

    async def play(self, task: Any, table: Any) -> Any:
        await table["a"].act("?")
        return Outcome(a=0.0)


def test_tasks_held_out_too(tmp_path: Path) -> None:
    tasks = "\n".join(f'{{"id": "{i}"}}' for i in range(4))
    (tmp_path / "tasks.jsonl").write_text(tasks)
    source = {"source": str(tmp_path / "tasks.jsonl"), "holdout": 0.5}
    config, engine = make_config({**LONG, "tasks": source}), Listening()
    engine.outside = None  # type: ignore[attr-defined]
    played = asyncio.run(play_held_out(config, "g", Asking(), engine, TRAINED))  # type: ignore[arg-type]
    assert len(played) == 4 and used(engine) == {TRAINED}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> dict[str, Config]:
    """Runs by name, without their weights; whoever plays is `Listening`."""
    runs = {"long": make_config(LONG)}
    engine = Listening()

    def find(policy: str) -> Any:
        found = runs.get(policy)
        return SimpleNamespace(config=found.model_copy(deep=True)) if found else None

    for module in (trained_policies, policy_match):
        monkeypatch.setattr(module, "find_trained", find)
    monkeypatch.setattr(policy_match, "load_player", lambda policy: (engine, "main"))
    monkeypatch.setattr(policy_match, "load_opponent", lambda engine, policy: (engine.act, "other"))
    return runs


def test_the_arena_plays_with_the_limits_of_the_run(trained: dict[str, Config]) -> None:
    found = policy_match.play_match("long", "random", 4)
    assert found["games"] == 4 and found["style"] == "reason"
    assert found["sampling"] == [asdict(GREEDY)]
    trained["long"].evaluate.temperature = 0.7
    assert policy_match.play_match("long", "random", 2)["sampling"][0]["temperature"] == 0.7
    asked = policy_match.play_match("long", "random", 2, temperature=1.0, max_tokens=7)
    assert (asked["sampling"][0]["temperature"], asked["sampling"][0]["max_tokens"]) == (1.0, 7)


def test_the_arena_says_when_the_other_was_trained_otherwise(
    trained: dict[str, Config], caplog: pytest.LogCaptureFixture
) -> None:
    trained["brief"] = make_config({"games": {"tictactoe": {"style": "short"}}})
    trained["same"] = make_config(LONG)
    with caplog.at_level(logging.WARNING):
        policy_match.play_match("long", "same", 2)
        assert caplog.messages == []
        policy_match.play_match("long", "brief", 2)
    assert caplog.messages == [
        "brief was trained with max_tokens of a reply=256 and plays here with 2048, as long was",
        "brief was trained with style=short and plays here with reason, as long was",
    ]


@pytest.mark.parametrize(("most", "measured"), [(None, True), (12, True), (11, False)])
def test_games_with_more_information_states_than_asked_for_are_not_measured_exactly(
    most: int | None, measured: bool
) -> None:
    """Kuhn poker has twelve: exact measures of large games are for the end of a run."""
    games: dict[str, Game] = {"kuhn": load_game("kuhn")}
    sampling = Sampling(max_tokens=1)
    results, _ = asyncio.run(
        evaluate(games, Listening(), sampling=sampling, count=2, most_states=most)
    )
    assert ("exploitability" in results["kuhn"]["exact"]) is measured


def test_a_summary_keeps_its_names_with_and_without_a_group() -> None:
    class Summed(Game):
        seats = ("main",)

        def summary(self, episodes: Sequence[Episode]) -> dict[str, float]:
            return {"plain": 1.0, "other": 2.0, "group/named": 3.0}

    episode = Episode("e", "summed", Task("t"), 0, rewards={"main": 0.5})
    numbers = _numbers(Summed(), [episode])
    assert numbers == {"games": 1, "reward/main": 0.5, "plain": 1, "other": 2, "named": 3}
    unasked = Episode("e", "summed", Task("t"), 0)  # a seat that a game's options leave out
    assert "reward/main" not in _numbers(Summed(), [unasked])

"""What is learned from was drawn from the distribution that the learner computes, or is refused."""

from pathlib import Path
from typing import Any

import pytest

from sparring.cli.app import main
from sparring.core.errors import ConfigError
from sparring.core.types import Episode, Task, Turn
from sparring.run.config import load_recipe, make_config
from sparring.training.loop import train
from sparring.training.requirements import need_whole_draws

CUTS = ["sampling.top_p=0.9", "sampling.top_k=5", "sampling.temperature=0"]


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_run_that_learns_from_logprobs_refuses_truncated_sampling(
    tmp_path: Path, cut: str, engine: str
) -> None:
    config = load_recipe("kuhn", [cut, f"engine.kind={engine}"], smoke=True)
    with pytest.raises(ConfigError, match="top_p, top_k or temperature 0"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_command_ends_with_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(tmp_path / "run")
    monkeypatch.setattr("sys.argv", ["sparring", "train", "kuhn", "--run", run, CUTS[0]])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "Leave them out" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_whoever_learns_from_texts_may_truncate() -> None:
    recipe = load_recipe("equivalence")
    assert recipe.sampling.top_p < 1 and recipe.sampling.top_k
    need_whole_draws(recipe)
    for objective in ("likelihood", "preference"):
        need_whole_draws(
            make_config({"learn": {"objective": objective}, "sampling": {"top_p": 0.5}})
        )
    need_whole_draws(make_config({"sampling": {"temperature": 0.7}}))


GREEDY_GAME = """
from sparring import Game, Outcome

class Cut(Game):
    seats = ("a",)

    async def play(self, task, table):
        await table["a"].act("say a letter", max_tokens=1, top_k=3)
        return Outcome(a=1)
"""


def test_a_game_that_truncates_by_itself_is_noticed(tmp_path: Path) -> None:
    """No config says so: the turn does."""
    (tmp_path / "cut.py").write_text(GREEDY_GAME)
    games: dict[str, Any] = {f"{tmp_path}/cut.py:Cut": {}}
    data = {"policy": "nano", "iterations": 1, "games": games, "collect": {"episodes": 2}}
    with pytest.raises(ConfigError, match="a player that learns with top_p, top_k"):
        train(make_config(data), tmp_path / "run")


def test_turns_of_those_who_do_not_learn_may_be_truncated() -> None:
    turn = Turn("a", "rival", "", "x", token_ids=[5], truncated=True)
    episode = Episode("1", "g", Task("1", "g", {}), 0, turns=[turn])
    config = make_config({})
    need_whole_draws(config, [episode])
    turn.trainable = True
    with pytest.raises(ConfigError, match="the game g"):
        need_whole_draws(config, [episode])

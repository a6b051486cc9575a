"""Players that are programs play by the view they are shown, and by their seed."""

import asyncio

import pytest

from sparring.core.scripted import ScriptedEngine, play_random, programs
from sparring.core.types import Request, Sampling, View
from sparring.run.games import load_game


def ask(policy: str, view: View | None, seed: int = 0) -> Request:
    return Request("x", policy, [{"role": "user", "content": "?"}], Sampling(), seed, view=view)


def test_a_script_answers_at_once_and_leaves_no_tokens():
    engine = ScriptedEngine({"echo": lambda request: request.messages[-1]["content"] + "!"})
    turn = asyncio.run(engine.act(ask("echo", None)))
    assert (turn.text, turn.prompt, turn.finish, turn.policy) == ("?!", "?", "scripted", "echo")
    assert turn.token_ids == [] and not turn.trainable


def test_random_chooses_among_what_is_legal_by_its_seed_alone():
    view = View(None, ("a", "b", "c"))
    said = [play_random(ask("random", view, seed)) for seed in range(300)]
    assert {said.count(a) > 70 for a in "abc"} == {True}
    assert said == [play_random(ask("random", view, seed)) for seed in range(300)]


@pytest.mark.parametrize("view", [None, View(None, ())])
def test_random_without_actions_says_so(view):
    with pytest.raises(ValueError, match="shows seat 'x' no actions"):
        play_random(ask("random", view))


def test_the_programs_of_a_game_are_its_own():
    game = load_game("tictactoe")
    engine = programs(game)
    view = game.view("XX.OO....")  # X to move wins at 2
    turns = [asyncio.run(engine.act(ask("perfect", view, seed))) for seed in range(5)]
    assert {turn.text for turn in turns} == {"2"}

"""A person sees what there is to see, and says what is to be said."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from terminal import on_terminal

from sparring.cli.person import PERSON, closing, picture, with_person
from sparring.core.game import Game
from sparring.core.types import Episode, Request, Sampling, Task, Turn, View
from sparring.games.kuhn import KuhnPoker


def test_pictures() -> None:
    assert picture("X...O....") == "X . .\n. O .\n. . ."
    assert picture("Kpb") == "Kpb"
    assert picture("abcd") == "abcd"
    assert picture("Your card: a Jack, and no bet so far") == "Your card: a Jack, and no bet so far"
    assert picture({"offer": None, "left": 3}) == "offer: None\nleft: 3"


def request(policy: str, prompt: str, view: View | None) -> Request:
    return Request("x", policy, [{"role": "user", "content": prompt}], Sampling(), 0, view=view)


def test_requests_go_to_whoever_they_are_for() -> None:
    asked: list[str] = []
    said: list[str] = []
    typed = iter(["9", " 2 ", "1", "free words"])

    async def engine(wanted: Request) -> Turn:
        return Turn(wanted.seat, wanted.policy, "", "engine's word")

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return next(typed)

    speak = with_person(engine, ask, said.append, Game())
    view = View("X...O....", ("1", "2"))

    def act(*args: Any) -> Turn:
        return asyncio.run(speak(request(*args)))  # type: ignore[arg-type]

    mine = act(PERSON, "-", view)
    assert (mine.text, mine.policy, mine.trainable, mine.token_ids) == ("2", PERSON, False, [])
    assert asked == ["X . .\n. O .\n. . .\n[1, 2]\nx> ", "'9' is not one of: 1, 2\nx> "]
    act(PERSON, "Read this long prompt, which says it all in words.", view)
    assert asked[2].splitlines()[1:] == ["[1, 2]", "x> "]
    act(PERSON, "Speak freely.", None)
    assert asked[3] == "Speak freely.\nx> "
    assert act("main", "-", view).text == "engine's word"
    assert said == ["(x has moved)"] and len(asked) == 4


def test_codes_for_actions_are_explained_and_may_be_typed_as_words() -> None:
    typed, asked = iter(["raise", "call"]), list[str]()

    async def nobody(wanted: Request) -> Turn:
        raise AssertionError("it is the person's turn")

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return next(typed)

    game = KuhnPoker(style="terse")
    speak = with_person(nobody, ask, print, game)
    turn: Turn = asyncio.run(speak(request(PERSON, "Qb", game.view("Qb"))))  # type: ignore[arg-type]
    assert asked[0] == "Your card: Queen. The other player bet.\n[p: fold, b: call]\nx> "
    assert asked[1] == "'raise' is not one of: p: fold, b: call\nx> "
    assert turn.text == "b"


@pytest.mark.parametrize(
    ("rewards", "facts", "sentence"),
    [
        ({"x": 1, "o": -1}, {"end": "line"}, "You won: +1 for you, o -1 (line)."),
        ({"x": -1.5, "o": 0.5}, {"reason": "no move"}, "You lost: -1.5 for you, o +0.5 (no move)."),
        ({"x": 0, "o": 0}, {}, "Nobody is ahead: you have +0, o +0."),
        ({"x": 0.25}, {}, "You got +0.25."),
    ],
)
def test_it_ends_with_a_sentence(rewards: Any, facts: Any, sentence: str) -> None:
    episode = Episode("play", "g", Task("0"), 0, rewards=rewards, facts=facts)
    assert closing(episode, "x") == sentence
    episode.void = "the judge is broken"
    assert closing(episode, "x") == "The game is void: the judge is broken."


def test_a_match_on_a_terminal(tmp_path: Path) -> None:
    """A typo is asked again, a hidden card stays hidden, and Ctrl-C needs no Enter."""
    words = ["sparring", "play", "tictactoe", "--policy", "nano"]
    with on_terminal(words, tmp_path) as terminal:
        terminal.wait_for("[0, 1, 2, 3, 4, 5, 6, 7, 8]")  # a match begins with an empty board
        terminal.type("42\n")
        terminal.wait_for("'42' is not one of")
        terminal.press_control_c()
        assert terminal.exit_code() == 130 and "Traceback" not in terminal.text

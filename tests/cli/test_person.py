"""A person sees what there is to see, and says what is to be said."""

import asyncio
from typing import Any

from sparring.cli.person import PERSON, picture, with_person
from sparring.core.types import Request, Sampling, Turn, View


def test_pictures() -> None:
    assert picture("X...O....") == "X . .\n. O .\n. . ."
    assert picture("Kpb") == "Kpb"
    assert picture("abcd") == "abcd"
    assert picture({"offer": None, "left": 3}) == "offer: None\nleft: 3"


def request(policy: str, prompt: str, view: View | None) -> Request:
    return Request("x", policy, [{"role": "user", "content": prompt}], Sampling(), 0, view=view)


def test_requests_go_to_whoever_they_are_for() -> None:
    asked: list[str] = []
    shown: list[Turn] = []

    async def engine(wanted: Request) -> Turn:
        return Turn(wanted.seat, wanted.policy, "", "engine's word")

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return "5"

    speak = with_person(engine, ask, shown.append)
    view = View("X...O....", ("1", "2"))

    def act(*args: Any) -> Turn:
        return asyncio.run(speak(request(*args)))  # type: ignore[arg-type]

    mine = act(PERSON, "-", view)
    assert (mine.text, mine.policy, mine.trainable, mine.token_ids) == ("5", PERSON, False, [])
    assert asked == ["-\nX . .\n. O .\n. . .\n[1, 2]\nx> "]
    act(PERSON, "Read this long prompt, which says it all in words.", view)
    assert asked[1].splitlines()[1:] == ["[1, 2]", "x> "]
    act(PERSON, "Speak freely.", None)
    assert asked[2] == "Speak freely.\nx> "
    assert act("main", "-", view).text == "engine's word"
    assert [turn.policy for turn in shown] == ["main"] and len(asked) == 3

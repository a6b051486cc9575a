"""Scripted players of matching, and tables and options that are refused."""

import random
from dataclasses import replace
from statistics import fmean

import pytest
from test_matching import PAIR, SEATS

from sparring.core.types import Task, VoidGame
from sparring.pipelines.matching.game import MatchingGame
from sparring.pipelines.matching.messages import (
    in_words,
    mentions,
    tell,
)
from sparring.run.games import load_game


@pytest.mark.parametrize(("size", "least"), [(2, 0.96), (3, 0.95), (4, 0.95)])
def test_scripted_players_pool_in_the_terse_style_as_well(play, size, least):
    """Good and poor is all they can tell: enough to beat what either sees alone."""
    game = MatchingGame(style="terse", size=size, hints=size * size, hard=1, scales=(1, 1))
    cut = replace(game, channel=False)
    scores: dict[bool, list[float]] = {True: [], False: []}
    greedy = []
    for seed in range(300):
        task = game.task(seed)
        for one in (game, cut):
            voices = {
                s: lambda request, one=one: one.scripted(request.view, request.seed) for s in SEATS
            }
            outcome, requests = play(one, voices, task)
            assert outcome.facts["errors"] == 0 and outcome.facts["agreed"]
            assert len(requests) <= 4
            scores[one.channel].append(outcome.facts["score"])
        greedy.append(outcome.facts["bounds"]["greedy"])
    assert fmean(scores[True]) > max(least, fmean(greedy))
    assert fmean(scores[False]) < fmean(greedy) + 0.005


def test_terse_letters_may_stand_apart(play):
    """A tokenizer of words would join them, each time otherwise."""
    game = MatchingGame(style="terse", size=3, hints=9, hard=1, spaced=True)
    together = replace(game, spaced=False)

    def told(one: MatchingGame) -> list[tuple[str, str]]:
        turns: list[tuple[str, str]] = []

        def voice(request):
            turns.append((request.messages[-1]["content"], one.scripted(request.view, 0)))
            return turns[-1][1]

        outcome, _ = play(one, dict.fromkeys(SEATS, voice), game.task(0))
        assert outcome.facts["errors"] == 0 and outcome.facts["agreed"]
        return turns

    joined, apart = told(together), told(game)
    assert apart == [(" ".join(prompt), " ".join(reply)) for prompt, reply in joined]
    assert len(apart[0][1]) > 3  # several cells, each a word of its own


def test_a_message_that_is_cut_off_looks_like_none(play):
    game = MatchingGame(style="terse", hints=4, channel=False)
    _, requests = play(game, {"first": ["A", "y"], "second": ["0"]}, PAIR)
    assert requests[1].messages[-1]["content"].endswith(":-")
    assert requests[1].view.state["heard"] == []
    _, requests = play(
        MatchingGame(size=2, style="short", channel=False),
        {"first": ["[message] Ada: Parsing 73", "[accept]"],
         "second": ["[propose] Ada: Vision, Ben: Parsing"]},
        PAIR,
    )  # fmt: skip
    assert "73" not in requests[1].messages[-1]["content"]
    assert "passed without an action" in requests[1].messages[-1]["content"]


def test_what_a_pooling_player_tells_is_heard_word_for_word():
    cells = {(0, 0): 73, (0, 2): 20, (2, 1): 5}
    assert tell(cells) == "Ada: Parsing 73, Speech 20; Cleo: Vision 5"
    assert {m.cell: m.value for m in mentions(tell(cells), 3)} == cells
    assert mentions(tell({}), 3) == []
    found = mentions("Parsing is best with Ada (88); our sum is 240, Ben 7.5 there", 3)
    assert [(m.cell, m.value) for m in found] == [((0, 0), 88.0), ((1, 0), 7.5)]


@pytest.mark.parametrize("worth", ["1000", "9" * 400, "1e5"])
def test_a_pooling_player_is_not_stopped_by_a_worth_that_none_can_have(play, worth):
    """Beyond what a float holds it was infinite, and the Hungarian method took no such table."""
    told = f"[message] Ada: Parsing {worth}"
    game = MatchingGame(style="short", size=2)
    outcome, requests = play(
        game,
        {"first": [told, "[accept]"], "second": lambda asked: game.scripted(asked.view, 0)},
        PAIR,
    )
    assert requests[1].view.state["heard"] == [told.removeprefix("[message] ")]
    assert outcome.rewards["first"] == 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seen": {s: [[0, 0], [0, 0]] for s in SEATS}}, "both players' tables are empty"),
        ({"table": [[1]]}, "two reviewers"),
        ({"table": [[1, 2], [3]]}, "not square"),
        ({"seen": {"first": [[1, 1], [1, 1]]}}, "which cells first and second see"),
        ({"scales": {"first": 0.5, "second": 2}}, "scale of 1 or more"),
        ({"optimum": 5}, "optimum"),
        ({"table": [[0, 0], [0, 0]], "optimum": 0}, "optimum"),
    ],
)
def test_a_table_that_cannot_be_played_is_refused_and_void(play, change, says):
    game = MatchingGame(size=2)
    broken = Task("broken", "matching", {**PAIR.data, **change})
    with pytest.raises(ValueError, match=says):
        game.check(broken)
    with pytest.raises(VoidGame, match=says):
        play(game, {}, broken)
    game.check(PAIR)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 1}, "from 2 to 16"),
        ({"size": 17}, "size: .*equal to 16"),
        ({"style": "terse", "size": 5}, "terse"),
        ({"see": 0}, "see: .*greater than 0"),
        ({"hard": 0.5}, "hard: .*equal to 1"),
        ({"scales": (0.5, 2)}, "scales"),
        ({"scales": (3, 2)}, "scales"),
    ],
)
def test_options_that_make_no_game_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        load_game("matching", **options)


def test_random_players_reach_what_chance_reaches(play):
    game = MatchingGame(style="short", size=4, hard=1)

    def chance(request):
        return random.Random(request.seed).choice(request.view.actions)

    found = [play(game, {"first": chance, "second": chance}, seed=seed)[0] for seed in range(300)]
    reached = sum(o.rewards["first"] for o in found) / 300
    expected = sum(o.facts["bounds"]["random"] for o in found) / 300
    assert reached == pytest.approx(expected, abs=0.03)
    assert in_words((1, 0)) == "Ada: Vision, Ben: Parsing"


def test_the_largest_table_is_played_in_words(play):
    """It has 16! matchings: whoever lists them never ends."""
    game = MatchingGame(style="short", size=16, hard=1, scales=(1, 1))
    voices = {s: lambda request: game.scripted(request.view, request.seed) for s in SEATS}
    outcome, _ = play(game, voices, game.task(0))
    assert outcome.rewards["first"] == 1.0

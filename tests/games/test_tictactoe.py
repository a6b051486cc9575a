import functools
import random

import pytest

from sparring.core.answers import named
from sparring.games.tictactoe import (
    EMPTY,
    TicTacToe,
    action_value,
    legal,
    mover,
    optimal,
    put,
    terse,
    value,
    winner,
)


def reachable():
    """All boards that play can reach, and how many games end on a line or a full board."""
    boards, games = set(), 0

    def walk(board):
        nonlocal games
        boards.add(board)
        if winner(board) or not legal(board):
            games += 1
            return
        for cell in legal(board):
            walk(put(board, cell))

    walk(EMPTY)
    return boards, games


@pytest.fixture(scope="module")
def boards():
    found, games = reachable()
    assert games == 255_168  # the known number of games
    assert len(found) == 5_478  # the known number of boards
    return found


def turned(board):
    return "".join(board[6 - 3 * (i % 3) + i // 3] for i in range(9))


def mirrored(board):
    return "".join(board[3 * (i // 3) + 2 - i % 3] for i in range(9))


def test_the_value_is_the_same_from_every_side(boards):
    assert value(EMPTY) == 0
    for board in boards:
        assert value(board) == value(turned(board)) == value(mirrored(board))


def test_first_moves_all_draw_and_only_the_right_replies_hold():
    assert optimal(EMPTY) == tuple(range(9))
    assert optimal("X........") == (4,)  # a corner is answered in the centre
    assert optimal("....X....") == (0, 2, 6, 8)  # the centre in a corner
    assert set(optimal(".X.......")) == {0, 2, 4, 7}  # an edge


@pytest.mark.parametrize(
    ("board", "best", "worth"),
    [
        ("XX.OO....", (2,), 1),  # win
        ("XX..O....", (2,), 0),  # block
        ("XOXXO.O..", (7,), 0),  # block the middle column
        ("X...O...X", (1, 3, 5, 7), 0),  # a corner would lose to the double threat
        ("X.O.O.X..", (3, 7, 8), 1),  # win at once, or threaten twice
        ("XX.O.....", (2, 4, 5, 6, 7, 8), -1),  # blocked or not, X threatens twice next
    ],
)
def test_known_positions(board, best, worth):
    assert optimal(board) == best
    assert value(board) == worth
    assert all(action_value(board, cell) < worth for cell in legal(board) if cell not in best)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("4", 4),
        (r"The centre. \boxed{4}", 4),
        (r"\boxed{3}… better: \boxed{8}", 8),
        ("0", None),  # taken
        (r"\boxed{0}", None),
        ("9", None),
        ("-1", None),
        ("44", None),
        ("⁴", None),
        ("4 or 5", None),
        ("", None),
        (r"4 \boxed{}", None),
    ],
)
def test_parsing_is_strict_outside_the_box(text, cell):
    actions = TicTacToe().view("X........").actions
    number = named(text, actions)
    assert (None if number is None else int(actions[number])) == cell


@pytest.mark.parametrize("style", ["reason", "short", "terse"])
def test_a_game_won_by_x(play, style):
    boxes = r"hm \boxed{%d}" if style != "terse" else "%d"
    voices = {"x": [boxes % c for c in (4, 0, 8)], "o": [boxes % c for c in (1, 2)]}
    outcome, asked = play(TicTacToe(style=style), voices)
    assert outcome.rewards == {"x": 1, "o": -1}
    assert outcome.facts == {"end": "win", "winner": "x", "moves": [4, 1, 0, 2, 8]}
    assert asked[2].view.state == ".O..X...." and asked[2].view.actions == tuple("0235678")
    assert asked[0].sampling.max_tokens == {"reason": 256, "short": 4, "terse": 1}[style]
    assert all(request.previous is None for request in asked)


def test_the_terse_prompt_names_each_mark_by_cell_and_owner(play):
    _, asked = play(TicTacToe(style="terse"), {"x": ["4", "x"], "o": ["0"]})
    assert [r.messages[0]["content"] for r in asked] == ["-", "E", "Ae"]


def test_no_two_boards_share_a_terse_prompt(boards):
    assert len({(terse(board), mover(board)) for board in boards}) == len(boards)


def test_training_may_begin_anywhere_and_matches_on_the_empty_board():
    game = TicTacToe(style="terse", opening=8)
    openings = [game.task(seed).data["opening"] for seed in range(200)]
    assert {len(moves) for moves in openings} == set(range(9))
    for moves in openings:
        assert len(set(moves)) == len(moves)
        board = functools.reduce(put, moves, EMPTY)
        assert winner(board) is None and legal(board)
    assert game.match_task(3).data["opening"] == []
    assert game.task(5) == game.task(5)


def test_o_can_win_and_nobody_can(play):
    outcome, _ = play(TicTacToe(), {"x": ["0", "1", "8"], "o": ["3", "4", "5"]})
    assert outcome.rewards == {"x": -1, "o": 1} and outcome.facts["winner"] == "o"
    outcome, _ = play(TicTacToe(), {"x": list("02457"), "o": list("1386")})
    assert outcome.rewards == {"x": 0, "o": 0}
    assert outcome.facts == {"end": "draw", "moves": [0, 1, 2, 3, 4, 8, 5, 6, 7]}


def test_an_invalid_move_costs_and_pays_what_the_options_say(play):
    outcome, _ = play(TicTacToe(), {"x": ["4"], "o": ["4"]})
    assert outcome.rewards == {"x": 0.5, "o": -1.5}
    assert outcome.facts["end"] == "invalid" and outcome.facts["invalid"] == "o"
    assert outcome.facts["moves"] == [4] and "winner" not in outcome.facts
    outcome, _ = play(TicTacToe(invalid=-3, invalid_other=0), {"x": ["none"], "o": []})
    assert outcome.rewards == {"x": -3, "o": 0}


def test_past_the_cap_nobody_scores(play):
    outcome, asked = play(TicTacToe(cap=2), {"x": ["0"], "o": ["1"]})
    assert outcome.rewards == {"x": 0, "o": 0} and outcome.facts["end"] == "cap"
    assert len(asked) == 2


@pytest.mark.parametrize("style", ["reason", "short", "terse"])
def test_a_perfect_player_never_loses_to_a_random_one_and_draws_itself(play, style):
    game = TicTacToe(style=style)

    def perfect(request):
        return game.perfect(request.view, request.seed)

    def chance(request):
        return random.Random(request.seed).choice(request.view.actions)

    won = 0
    for seed in range(100):
        seats = ("x", "o") if seed % 2 else ("o", "x")
        outcome, _ = play(game, {seats[0]: perfect, seats[1]: chance}, seed=seed)
        assert outcome.rewards[seats[0]] >= 0 and outcome.facts["end"] != "invalid"
        won += outcome.rewards[seats[0]] == 1
        outcome, _ = play(game, {"x": perfect, "o": perfect}, seed=seed)
        assert outcome.facts["end"] == "draw"
    assert won > 60


def test_perfect_play_varies_with_the_seed():
    game = TicTacToe()
    assert {game.perfect(game.view(EMPTY), seed) for seed in range(200)} == set("012345678")
    assert game.perfect(game.view(EMPTY), 7) == game.perfect(game.view(EMPTY), 7)
    assert mover("X........") == "O"

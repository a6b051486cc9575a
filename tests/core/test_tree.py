"""A game that is too large to look at: what is said of its size."""

import re

import pytest

from sparring.core.game import Game
from sparring.core.tree import Branch, Infoset, Tree, TreeTooLarge, estimate_size, grow
from sparring.games.tictactoe import EMPTY, legal, put, winner


def test_where_all_branches_are_alike_the_estimate_is_exact() -> None:
    def expand(depth: int) -> Branch:
        return Branch(children=[depth + 1] * 3 if depth < 5 else [])

    assert "about 364 histories" in estimate_size(0, expand)  # 1 + 3 + 9 + … + 243


def test_the_histories_of_tic_tac_toe() -> None:
    """549,946 of them, counted by many."""

    def expand(board: str) -> Branch:
        over = winner(board) or not legal(board)
        return Branch(children=[] if over else [put(board, cell) for cell in legal(board)])

    (size,) = re.findall(r"about ([\d,]+) histories", estimate_size(EMPTY, expand))
    assert int(size.replace(",", "")) == pytest.approx(549_946, rel=0.05)


def test_a_game_without_an_end_says_where_the_estimate_stops() -> None:
    said = estimate_size(0, lambda depth: Branch(children=[depth + 1] * 10))
    assert "about 10^249 histories" in said and "without what follows after 250 moves" in said


def test_a_strangers_game_that_is_too_large_is_refused_with_its_size() -> None:
    class Long(Game):
        seats = ("one", "two")

        def tree(self) -> Tree:
            def expand(moves: str) -> Branch:
                if len(moves) == 20:
                    return Branch(rewards=(0.0, 0.0))
                at = Infoset(moves, self.seats[len(moves) % 2], moves, ("a", "b"))
                return Branch(at, [moves + "a", moves + "b"])

            return grow(Tree(self.seats, ((0.0, 0.0),) * 2), "", expand, name="long", most=500)

    with pytest.raises(TreeTooLarge, match=r"more than 500 inf.*--game long.*about 2,097,151 his"):
        Long().need_tree()

"""Tic-tac-toe: small enough to solve, so that every move's regret is known exactly."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sparring.core.answers import ask, check_style, limit, named
from sparring.core.game import Forfeit, Frame, Game, Outcome
from sparring.core.table import Table
from sparring.core.tree import Branch, Infoset, Tree, cost_of_forfeit, grow
from sparring.core.types import Episode, Task, View
from sparring.run.games import Count, Tokens

# A board is nine characters, row by row: "X", "O", or "." for a free cell. X moves first.
EMPTY = "." * 9
LINES = (
    *((0, 1, 2), (3, 4, 5), (6, 7, 8)),
    *((0, 3, 6), (1, 4, 7), (2, 5, 8)),
    *((0, 4, 8), (2, 4, 6)),
)


@functools.cache
def mover(board: str) -> str:
    return "X" if board.count("X") == board.count("O") else "O"


@functools.cache
def legal(board: str) -> tuple[int, ...]:
    return tuple(cell for cell in range(9) if board[cell] == ".")


@functools.cache
def put(board: str, cell: int) -> str:
    """The board after the player to move takes a cell."""
    return board[:cell] + mover(board) + board[cell + 1 :]


@functools.cache
def winner(board: str) -> str | None:
    for a, b, c in LINES:
        if board[a] != "." and board[a] == board[b] == board[c]:
            return board[a]
    return None


@functools.cache
def value(board: str) -> int:
    """What perfect play brings the player to move: +1, 0 or -1."""
    if winner(board) is not None:
        return -1  # only the player who has just moved can have completed a line
    return max((-value(put(board, cell)) for cell in legal(board)), default=0)


def action_value(board: str, cell: int) -> int:
    """What a move brings the player who makes it, both being perfect afterwards."""
    return -value(put(board, cell))


def optimal(board: str) -> tuple[int, ...]:
    """All moves that keep the value of the board."""
    return tuple(cell for cell in legal(board) if action_value(board, cell) == value(board))


def regret(board: str, cell: int | None, invalid: float = -1.5) -> float:
    """Game value a move gives away: 0 for a perfect move, up to 2 for throwing a win to a loss.

    No legal move at all (None) gives away what the forfeit costs: value(board) - invalid, so
    up to 2.5, always more than any legal move.
    """
    if cell is None:
        return value(board) - invalid
    return float(value(board) - action_value(board, cell))


def regrets(episode: Episode, policy: str | None = None) -> list[float]:
    """The regret of every move of a tic-tac-toe game, or of one policy's moves only."""
    board, lost = EMPTY, []
    moves: list[int | None] = list(episode.facts.get("moves", []))
    offender = episode.facts.get("invalid")
    given = len(episode.task.data.get("opening", ()))  # moves that nobody chose
    for number, cell in enumerate([*moves, None] if offender else moves):
        seat = mover(board).lower()
        if number >= given and (policy is None or episode.seating.get(seat) == policy):
            forfeit = episode.rewards[seat] if cell is None else 0.0
            lost.append(regret(board, cell, forfeit))
        if cell is not None:
            board = put(board, cell)
    return lost


def mean_regret(episodes: Iterable[Episode], policy: str | None = None) -> float:
    """Mean regret per move over all games that are not void; NaN where nobody moved."""
    lost = [r for e in episodes if e.void is None for r in regrets(e, policy)]
    return sum(lost) / len(lost) if lost else math.nan


def terse(board: str) -> str:
    """One character per mark, saying both which cell and whose it is: mine a to i, theirs A to I.
    A tiny model then need not learn to count places first; what is not named is free."""
    mine = ord("a") if mover(board) == "X" else ord("A")
    start = {"X": mine, "O": ord("a") + ord("A") - mine}
    return "".join(chr(start[mark] + cell) for cell, mark in enumerate(board) if mark != ".") or "-"


@functools.cache
def view_of(board: str) -> View:
    return View(state=board, actions=tuple(map(str, legal(board))))


@functools.cache
def prompt_of(board: str, style: str) -> str:
    """The prompt of the player to move."""
    me = mover(board)
    if style == "terse":
        return terse(board)
    cells = [str(i) if mark == "." else mark for i, mark in enumerate(board)]
    rows = "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))
    free = ", ".join(map(str, legal(board)))
    if style == "short":
        rules = f"Tic-tac-toe. You are {me}. Three {me} in a line win."
    else:
        rules = (
            f"You are playing tic-tac-toe as {me}; X begins. The cells of the board are "
            "numbered 0 to 8, row by row; a free cell shows its number. Players take turns "
            "to mark a free cell. Whoever first has three marks in one row, column or "
            "diagonal wins; a full board without such a line is a draw. Naming anything but "
            "a free cell loses the game at once."
        )
    closing = ask(style, "the number of a free cell")
    return f"{rules}\nBoard:\n{rows}\nFree cells: {free}\n{closing}"


@dataclass
class TicTacToe(Game):
    """Three in a row wins. X begins."""

    title: ClassVar[str] = "Tic-tac-toe"
    glyph: ClassVar[str] = ""
    seats: ClassVar[tuple[str, ...]] = ("x", "o")
    zero_sum: ClassVar[bool] = True

    style: str = "reason"
    invalid: float = -1.5  # to whoever names no free cell
    invalid_other: float = 0.5
    cap: Count = 9  # moves in all; a game cut short by it scores 0/0
    # Up to so many random moves stand on the board before play begins.
    opening: Annotated[int, Field(ge=0, le=8)] = 0
    max_tokens: Tokens = None  # None: as the style needs

    def __post_init__(self) -> None:
        check_style(self.style)

    async def play(self, task: Task, table: Table) -> Outcome:
        moves: list[int] = list(task.data.get("opening", ()))
        board = functools.reduce(put, moves, EMPTY)
        while not winner(board) and legal(board):
            if len(moves) >= self.cap:
                return Outcome(x=0, o=0, facts={"end": "cap", "moves": moves})
            seat = mover(board).lower()
            turn = await table[seat].act(
                self.prompt(board),
                view=self.view(board),
                **self.limits(),
            )
            number = named(turn.text, self.view(board).actions)
            if number is None:
                forfeit = Forfeit(self.invalid, self.invalid_other)
                return forfeit.outcome(self.seats, seat, "not a free cell", moves=moves)
            moves.append(legal(board)[number])
            board = put(board, moves[-1])
        won = winner(board)
        if won is None:
            return Outcome(x=0, o=0, facts={"end": "draw", "moves": moves})
        facts = {"end": "win", "winner": won.lower(), "moves": moves}
        return Outcome({s: 1 if s == won.lower() else -1 for s in self.seats}, facts=facts)

    def limits(self) -> dict[str, Any]:
        """The sampling the game asks for; what it leaves open is the recipe's."""
        return limit(self.style, 1, 4, self.max_tokens)

    def tree(self) -> Tree:
        """All boards; however one came about, it is one position."""

        def expand(board: str) -> Branch:
            if winner(board) or not legal(board) or 9 - len(legal(board)) >= self.cap:
                x = {"X": 1, "O": -1, None: 0}[winner(board)]
                return Branch(rewards=(x, -x))
            seat, view = mover(board).lower(), self.view(board)
            infoset = Infoset(board, seat, self.prompt(board), view.actions, board)
            return Branch(infoset, [put(board, cell) for cell in legal(board)])

        forfeits = cost_of_forfeit(2, self.invalid, self.invalid_other)
        return grow(Tree(self.seats, forfeits, self.limits()), EMPTY, expand, same=str)

    def view(self, board: str) -> View:
        return view_of(board)

    def measures(self, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
        against = [e for e in episodes if "perfect" in e.seating.values()]
        return {"regret": mean_regret(against, policy)}

    def board(self, episode: Episode) -> list[Frame]:
        from sparring.games.boards import tictactoe_frames

        return tictactoe_frames(episode)

    def scene(self, view: View, seat: str) -> str:
        from sparring.games.boards import tictactoe_position

        return tictactoe_position(view.state)

    def perfect(self, view: View, seed: int) -> str:
        """One of the moves that keep the value of the board, picked by the seed."""
        return str(random.Random(seed).choice(optimal(view.state)))

    def task(self, seed: int) -> Task:
        """A seed's board: self-play alone soon sees only its own few favourite lines."""
        rng = random.Random(seed)
        board, moves = EMPTY, list[int]()
        for _ in range(rng.randint(0, self.opening)):
            cell = rng.choice(legal(board))
            if winner(put(board, cell)):
                break
            board = put(board, cell)
            moves.append(cell)
        return Task(id=str(seed), game="tictactoe", data={"seed": seed, "opening": moves})

    def match_task(self, seed: int) -> Task:
        """Matches begin on the empty board."""
        return Task(id=str(seed), game="tictactoe", data={"seed": seed, "opening": []})

    def prompt(self, board: str) -> str:
        return prompt_of(board, self.style)

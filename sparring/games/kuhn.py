"""Kuhn poker: the smallest poker with bluffing, solved, so that a policy's weakness is a number."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

from sparring.core.answers import ask, check_style, limit, named
from sparring.core.game import Forfeit, Frame, Game, Outcome
from sparring.core.table import Table
from sparring.core.tree import Branch, Infoset, Tree, cost_of_forfeit, grow
from sparring.core.types import Episode, Task, View
from sparring.run.games import Tokens

# A history is a string of "p" (check or fold) and "b" (bet or call). An information set is
# the mover's own card and the history: "Qpb" holds the queen, checked, and was bet at.
CARDS = "JQK"
WORDS = {"": ("check", "bet"), "p": ("check", "bet"), "b": ("fold", "call"), "pb": ("fold", "call")}
INFOSETS = tuple(card + history for history in WORDS for card in CARDS)
VALUE = -1 / 18  # of the game to the first player
NAMES = {"J": "Jack", "Q": "Queen", "K": "King"}
SO_FAR = {
    "": "You act first.",
    "p": "The other player checked.",
    "b": "The other player bet.",
    "pb": "You checked, the other player bet.",
}


def to_move(history: str) -> int:
    """0 when the first player is to move, 1 when the second is."""
    return len(history) % 2


def payoff(cards: str, history: str) -> int | None:
    """Chips the first player wins (the second loses them), or None while the hand goes on."""
    if history in WORDS:
        return None
    higher = 1 if CARDS.index(cards[0]) > CARDS.index(cards[1]) else -1
    if history.endswith("bp"):  # whoever bet wins the other's ante
        return 1 if to_move(history) == 0 else -1
    return 2 * higher if history.endswith("bb") else higher


def nash(alpha: float = 1 / 3) -> dict[str, float]:
    """The equilibrium for any alpha in [0, 1/3]: probability of bet or call per information set."""
    if not 0 <= alpha <= 1 / 3:
        raise ValueError(f"alpha must be between 0 and 1/3, not {alpha}")
    first = {"J": alpha, "Q": 0.0, "K": 3 * alpha, "Jpb": 0.0, "Qpb": alpha + 1 / 3, "Kpb": 1.0}
    second = {"Jp": 1 / 3, "Qp": 0.0, "Kp": 1.0, "Jb": 0.0, "Qb": 1 / 3, "Kb": 1.0}
    return first | second


@dataclass
class KuhnPoker(Game):
    """One hand of Kuhn poker for real chips: ±1 or ±2.

    A forfeit of -1.5 is cheaper than losing a called bet, yet never worth it: check and fold
    cost at most the ante.
    """

    title: ClassVar[str] = "Kuhn poker"
    glyph: ClassVar[str] = "♠"
    seats: ClassVar[tuple[str, ...]] = ("first", "second")
    zero_sum: ClassVar[bool] = True

    style: str = "reason"
    invalid: float = -1.5  # to whoever names no legal action
    invalid_other: float = 0.5
    max_tokens: Tokens = None  # None: as the style needs

    def __post_init__(self) -> None:
        check_style(self.style)

    async def play(self, task: Task, table: Table) -> Outcome:
        cards, history = "".join(task.data["cards"]), ""
        while (chips := payoff(cards, history)) is None:
            mover = to_move(history)
            seat, infoset = self.seats[mover], cards[mover] + history
            turn = await table[seat].act(
                self.prompt(infoset),
                view=self.view(infoset),
                **self.limits(),
            )
            action = named(turn.text, self.actions(infoset))
            if action is None:
                return Forfeit(self.invalid, self.invalid_other).outcome(
                    self.seats, seat, "not a legal action", cards=cards, history=history
                )
            history += "pb"[action]
        facts = {
            "end": "fold" if history.endswith("bp") else "showdown",
            "winner": self.seats[0 if chips > 0 else 1],
            "cards": cards,
            "history": history,
        }
        return Outcome(first=chips, second=-chips, facts=facts)

    def limits(self) -> dict[str, Any]:
        """The sampling the game asks for; what it leaves open is the recipe's."""
        return limit(self.style, 1, 4, self.max_tokens)

    def view(self, infoset: str) -> View:
        return View(state=infoset, actions=self.actions(infoset))

    def actions(self, infoset: str) -> tuple[str, str]:
        """The two legal actions, the passive one first, in the words of the style."""
        check, bet = WORDS[infoset[1:]]
        return ("p", "b") if self.style == "terse" else (check, bet)

    def action_names(self, view: View) -> tuple[str, ...]:
        return WORDS[view.state[1:]]

    def in_words(self, view: View) -> str:
        return f"Your card: {NAMES[view.state[0]]}. {SO_FAR[view.state[1:]]}"

    def board(self, episode: Episode) -> list[Frame]:
        from sparring.games.boards import kuhn_frames

        return kuhn_frames(episode)

    def scene(self, view: View, seat: str) -> str:
        from sparring.games.boards import kuhn_position

        return kuhn_position(view.state, self.seats.index(seat))

    def tree(self) -> Tree:
        forfeits = cost_of_forfeit(2, self.invalid, self.invalid_other)
        deals = [(a + b, "") for a in CARDS for b in CARDS if a != b]

        def expand(state: tuple[str, str] | None) -> Branch:
            if state is None:
                return Branch(children=deals, chances=[1 / len(deals)] * len(deals))
            cards, history = state
            chips = payoff(cards, history)
            if chips is not None:
                return Branch(rewards=(chips, -chips))
            key = cards[to_move(history)] + history
            seat = self.seats[to_move(history)]
            infoset = Infoset(key, seat, self.prompt(key), self.actions(key), key)
            return Branch(infoset, [(cards, history + action) for action in "pb"])

        return grow(Tree(self.seats, forfeits, self.limits()), None, expand)

    def perfect(self, view: View, seed: int) -> str:
        """The equilibrium with alpha = 1/3, its coins tossed by the seed."""
        return view.actions[random.Random(seed).random() < nash()[view.state]]

    def task(self, seed: int) -> Task:
        cards = "".join(random.Random(seed).sample(CARDS, 2))
        return Task(id=str(seed), game="kuhn", data={"seed": seed, "cards": cards})

    def prompt(self, infoset: str) -> str:
        if self.style == "terse":
            return infoset
        check, bet = WORDS[infoset[1:]]
        if self.style == "short":
            rules = "Kuhn poker with Jack < Queen < King. One chip each is in the pot."
        else:
            rules = (
                "You are playing one hand of Kuhn poker. The deck is Jack, Queen and King, the "
                "King being highest. Each of the two players has put one chip into the pot and "
                "holds one card. Without a bet you may check or bet one chip; facing a bet you "
                "may fold, which gives the pot away, or call for one chip. After two checks or "
                "a call the higher card takes the pot. Your score is the chips you win or lose. "
                "An illegal action ends the hand and costs you 1.5 chips."
            )
        closing = ask(self.style, f"{check} or {bet}")
        return f"{rules}\n{self.in_words(self.view(infoset))}\n{closing}"

"""What a player of an OpenSpiel game reads: our own words for well-known games, OpenSpiel's for all
others, and a few characters for models that learn from random weights."""

from __future__ import annotations

import re
import string
from typing import Any

from sparring.core.answers import answer

CODES = string.ascii_lowercase + string.ascii_uppercase + string.digits
CARDS = ("Jack", "Queen", "King")

RULES = {
    "kuhn_poker": (
        "Kuhn poker: Jack < Queen < King, one card and one chip in the pot each. Without a bet you "
        "may check or bet one chip; facing one you may fold or call. The higher card wins the pot."
    ),
    "leduc_poker": (
        "Leduc poker: a deck of two Jacks, two Queens and two Kings, one card and one chip in the "
        "pot each. Two rounds of betting with at most two raises each, of 2 chips in the first and "
        "4 in the second, before which a public card is shown. A pair with the public card wins, "
        "otherwise the higher card."
    ),
    "liars_dice": (
        "Liar's dice: everyone rolls in secret. A bid such as 2-5 says that at least two of all "
        "dice show a five; the highest face is wild. Each bid is higher than the last, until "
        "someone calls liar: the bidder loses if the bid was too high, and wins otherwise."
    ),
    "tic_tac_toe": (
        "Tic-tac-toe, x begins. The cells are numbered 0 to 8, row by row; three in a line win."
    ),
    "connect_four": (
        "Connect four, x begins. A piece falls to the lowest free cell of its column, numbered 0 "
        "to 6 from the left; four in a row, column or diagonal win."
    ),
}


def action_names(game: Any, state: Any, player: int, terse: bool) -> tuple[str, ...]:
    """The legal actions by name, all different."""
    actions, kind = state.legal_actions(player), game.get_type().short_name
    if terse:
        return tuple(code(game, action) for action in actions)
    if kind == "tic_tac_toe" or kind == "connect_four":
        return tuple(map(str, actions))
    names = [_plain(state.action_to_string(player, action)) for action in actions]
    if kind == "kuhn_poker":
        faced = "b" in state.information_state_string(player)[1:]  # of three, one may have folded
        names = [{"pass": "fold" if faced else "check", "bet": "call" if faced else "bet"}[n]
                 for n in names]  # fmt: skip
    elif kind == "leduc_poker" and "fold" not in names:
        names = ["check" if name == "call" else name for name in names]
    if len(set(names)) < len(names) or "" in names:
        names = [f"{name} #{action}".strip() for name, action in zip(names, actions, strict=True)]
    return tuple(names)


def _plain(name: str) -> str:
    text = answer(" ".join(name.split()))  # as a reply that says it is read
    return text.lower() if text.isalpha() else text


def code(game: Any, action: int) -> str:
    """An action in as few characters as all of the game's actions need."""
    kind = game.get_type().short_name
    known = {"kuhn_poker": "pb", "leduc_poker": "fcr", "tic_tac_toe": string.digits}.get(kind)
    if known:
        return known[action]
    digits = ""
    count = game.num_distinct_actions()
    while not digits or count > 1:
        digits = CODES[action % len(CODES)] + digits
        action, count = action // len(CODES), -(-count // len(CODES))
    return digits


def code_length(game: Any) -> int:
    return len(code(game, 0))


def terse_state(game: Any, state: Any, player: int) -> str:
    """What the player knows in a handful of characters."""
    kind = game.get_type().short_name
    if kind == "tic_tac_toe":
        mine = "x" if player == 0 else "o"
        marks = str(state).replace("\n", "")
        return "".join(
            chr(ord("a" if mark == mine else "A") + cell)
            for cell, mark in enumerate(marks)
            if mark != "."
        ) or "-"  # fmt: skip
    if kind == "leduc_poker" and game.num_players() == 2:
        private, public, first, second = _leduc(state.information_state_string(player))
        card = "" if public is None else "jqk"[public // 2]
        rounds = ("".join("fcr"[int(a)] for a in actions) for actions in (first, second))
        return f"{'JQK'[private // 2]}{next(rounds)}{card}{next(rounds)}"
    if kind == "liars_dice":
        dice, *bids = state.information_state_string(player).split(" ")
        made = state.history()[-len(bids) :] if bids else []
        return dice + "".join(code(game, action) for action in made)
    if kind == "connect_four":
        return "".join(map(str, state.history())) or "-"
    return "".join(known_text(game, state, player).split()) or "-"


def state_in_words(game: Any, state: Any, player: int) -> str:
    """What the player knows, in sentences where the game is well known."""
    kind, seats = game.get_type().short_name, game.num_players()
    if kind == "kuhn_poker" and seats == 2:
        text = state.information_state_string(player)
        so_far = {
            "": "You act first.",
            "p": "The other player checked.",
            "b": "The other player bet.",
            "pb": "You checked, the other player bet.",
        }[text[1:]]
        return f"Your card: {CARDS[int(text[0])]}. {so_far}"
    if kind == "leduc_poker" and seats == 2:
        private, public, first, second = _leduc(state.information_state_string(player))
        words = [f"Your card: {CARDS[private // 2]}.", f"First round: {_betting(first, player)}."]
        if public is not None:
            words += [f"Public card: {CARDS[public // 2]}."]
            words += [f"Second round: {_betting(second, player)}."]
        return " ".join(words)
    if kind == "liars_dice":
        dice, *bids = state.information_state_string(player).split(" ")
        return f"Your dice: {', '.join(dice)}. Bids so far: {', '.join(bids) or 'none'}."
    text = known_text(game, state, player)
    who = f"You are {'xo'[player]}." if kind in ("tic_tac_toe", "connect_four") else ""
    return "\n".join(part for part in (who, text) if part)


def _betting(actions: list[str], player: int) -> str:
    """A round of Leduc poker; in each the first player begins."""
    parts, raised = [], False
    for number, action in enumerate(actions):
        verb = ("fold", "call" if raised else "check", "raise")[int(action)]
        raised = raised or action == "2"
        mine = number % 2 == player
        parts.append(f"you {verb}" if mine else f"the other player {verb}s")
    return ", ".join(parts) or "nobody has acted yet"


def _leduc(text: str) -> tuple[int, int | None, list[str], list[str]]:
    """Private card, public card, and the actions of both rounds."""

    def field(name: str) -> str | None:
        match = re.search(rf"\[{name}: ?([^\]]*)\]", text)
        return match[1] if match else None

    public = field("Public")
    card = int(public) if public and int(public) >= 0 else None
    first, second = ((field(name) or "").split() for name in ("Round1", "Round2"))
    return int(field("Private") or 0), card, first, second


def known_text(game: Any, state: Any, player: int) -> str:
    """OpenSpiel's own text of what a player knows; a board, where all see it."""
    kind = game.get_type()
    board = kind.information == type(kind.information).PERFECT_INFORMATION
    if kind.provides_observation_string and (board or not kind.provides_information_state_string):
        return str(state.observation_string(player)).strip()
    if kind.provides_information_state_string:
        return str(state.information_state_string(player)).strip()
    return str(state).strip()

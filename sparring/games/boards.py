"""Draws the games of this folder: a board, two cards and a pot, two heaps of goods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparring.core.formatting import esc, number, signed
from sparring.core.game import Frame
from sparring.core.types import Episode
from sparring.games import kuhn, negotiation, tictactoe

# Tic-tac-toe

KEEPS = {1: "Keeps the win", 0: "Keeps the draw", -1: "Already lost against perfect play"}
VALUES = {1: "win", 0: "draw"}


def tictactoe_frames(episode: Episode) -> list[Frame]:
    opening = list(episode.task.data.get("opening", ()))
    moves: list[int] = list(episode.facts["moves"])
    board = tictactoe.EMPTY
    for cell in opening:
        board = tictactoe.put(board, cell)
    start = (
        f"{len(opening)} random {'move stands' if len(opening) == 1 else 'moves stand'} on the "
        "board before play begins, shown pale."
        if opening
        else "The board is empty; X begins."
    )
    frames = [Frame("Start", draw_board(opening, len(opening)), note=start)]
    for at, turn in enumerate(episode.turns):
        played = len(opening) + at + 1
        if played > len(moves):  # the forfeit: said, but never on the board
            reason = str(episode.facts.get("reason", "no legal move"))
            stage = draw_board(moves, len(opening))
            frames.append(Frame(str(at + 1), stage, turn, f"Forfeits: {reason}", "bad"))
            break
        cell = moves[played - 1]
        note, mood = _remark(board, cell)
        board = tictactoe.put(board, cell)
        stage = draw_board(moves[:played], len(opening))
        frames.append(Frame(str(at + 1), stage, turn, note, mood))
    return frames


def _remark(board: str, cell: int) -> tuple[str, str]:
    """What a move is worth, by perfect play: known exactly."""
    before, after = tictactoe.value(board), tictactoe.action_value(board, cell)
    if tictactoe.winner(tictactoe.put(board, cell)):
        return "Wins", "good"
    if after == before:
        return KEEPS[before], "" if before < 0 else "good"
    return f"Gives away a {VALUES[before]}: now a {VALUES.get(after, 'loss')}", "bad"


def draw_board(moves: list[int], given: int) -> str:
    """A board after some moves; those that nobody chose are pale, the latest stands out."""
    parts = []
    latest = moves[-1] if len(moves) > given else None
    for cell in range(9):
        x, y = 100 * (cell % 3), 100 * (cell // 3)
        if cell == latest:
            parts.append(f'<rect class="latest" x="{x + 5}" y="{y + 5}" width="90" height="90"/>')
        if cell not in moves:
            parts.append(f'<text class="cell" x="{x + 50}" y="{y + 57}">{cell}</text>')
            continue
        order = moves.index(cell)
        parts.append(_mark(cell, order % 2, " pale" if order < given else ""))
    return _framed("".join(parts) + _won(moves))


def tictactoe_position(board: str) -> str:
    """A board to play on: a free cell is a move."""
    parts = []
    for cell, mark in enumerate(board):
        x, y = 100 * (cell % 3), 100 * (cell // 3)
        if mark == ".":
            parts.append(
                f'<g data-action="{cell}" role="button" tabindex="0" aria-label="cell {cell}">'
                f'<rect class="free" x="{x + 5}" y="{y + 5}" width="90" height="90" rx="14"/>'
                f'<text class="cell" x="{x + 50}" y="{y + 57}">{cell}</text></g>'
            )
        else:
            parts.append(_mark(cell, "XO".index(mark)))
    return _framed("".join(parts))


def _mark(cell: int, seat: int, pale: str = "") -> str:
    x, y = 100 * (cell % 3), 100 * (cell // 3)
    if seat == 0:
        shape = f"M{x + 28},{y + 28}l44,44m0,-44l-44,44"
        return f'<path class="mark seat-0{pale}" d="{shape}"/>'
    return f'<circle class="mark seat-1{pale}" cx="{x + 50}" cy="{y + 50}" r="24"/>'


def _framed(inner: str) -> str:
    lines = "M100,8v284M200,8v284M8,100h284M8,200h284"
    return (
        '<svg class="board" viewBox="0 0 300 300" role="img" aria-label="board">'
        f'<path class="rules" d="{lines}"/>{inner}</svg>'
    )


def _won(moves: list[int]) -> str:
    board = tictactoe.EMPTY
    for cell in moves:
        board = tictactoe.put(board, cell)
    for a, b, c in tictactoe.LINES:
        if board[a] != "." and board[a] == board[b] == board[c]:
            (x1, y1), (x2, y2) = ((100 * (k % 3) + 50, 100 * (k // 3) + 50) for k in (a, c))
            dx, dy = (x2 - x1) * 0.19, (y2 - y1) * 0.19
            ends = f'x1="{x1 - dx:.0f}" y1="{y1 - dy:.0f}" x2="{x2 + dx:.0f}" y2="{y2 + dy:.0f}"'
            return f'<line class="won seat-{"XO".index(board[a])}" {ends}/>'
    return ""


# Kuhn poker


def kuhn_frames(episode: Episode) -> list[Frame]:
    cards, history = str(episode.facts["cards"]), str(episode.facts["history"])
    start = "Each player holds one card and has put one chip into the pot."
    frames = [Frame("Deal", draw_hand(cards, "", None), note=start)]
    for at, turn in enumerate(episode.turns):
        so_far = history[:at]
        label = str(at + 1)
        if at >= len(history):
            reason = str(episode.facts.get("reason", "no legal action"))
            stage = draw_hand(cards, so_far, None)
            frames.append(Frame(label, stage, turn, f"Forfeits: {reason}", "bad"))
            break
        after = history[: at + 1]
        word = kuhn.WORDS[so_far]["pb".index(history[at])].capitalize()
        chips = kuhn.payoff(cards, after)
        note, mood = word, ""
        if chips is not None:
            note = f"{word}. {kuhn_seat(0 if chips > 0 else 1)} takes the pot: {signed(abs(chips))}"
            mood = "good"
        frames.append(Frame(label, draw_hand(cards, after, chips), turn, note, mood))
    return frames


def kuhn_seat(at: int) -> str:
    return kuhn.KuhnPoker.seats[at].capitalize()


def draw_hand(cards: str, history: str, chips: int | None) -> str:
    """Both cards and the pot; the spectator sees what the players do not."""
    paid = [1, 1]
    last = ["", ""]
    for at, action in enumerate(history):
        paid[at % 2] += action == "b"
        last[at % 2] = kuhn.WORDS[history[:at]]["pb".index(action)]
    parts = []
    for at in (0, 1):
        won = chips is not None and (chips > 0) == (at == 0)
        parts.append(_card(cards[at], 24 + 260 * at, kuhn_seat(at), last[at], at, won))
        # Chips lie between the cards, each player's on the own side.
        for chip in range(paid[at]):
            x, y = 152 + 76 * at, 150 - 12 * chip
            parts.append(f'<ellipse class="chip seat-{at}" cx="{x}" cy="{y}" rx="22" ry="9"/>')
    pot = f'<text class="pot" x="190" y="196">Pot {sum(paid)}</text>'
    return (
        '<svg class="hand" viewBox="0 0 380 230" role="img" aria-label="cards and pot">'
        f"{''.join(parts)}{pot}</svg>"
    )


def kuhn_position(infoset: str, seat: int) -> str:
    """The own card and the pot; the other player's card stays face down."""
    card, history = infoset[0], infoset[1:]
    return draw_hand(card + "?" if seat == 0 else "?" + card, history, None)


def _card(card: str, x: int, name: str, said: str, at: int, won: bool) -> str:
    said = f'<text class="said" x="{x + 36}" y="26">{esc(said.capitalize())}</text>' if said else ""
    return (
        f'<g class="player seat-{at}{" winner" if won else ""}">{said}'
        f'<rect class="card-face" x="{x}" y="42" width="72" height="108" rx="9"/>'
        f'<text class="card-rank" x="{x + 36}" y="110">{esc(card)}</text>'
        f'<text class="card-suit" x="{x + 14}" y="63">♠</text>'
        f'<text class="card-name" x="{x + 36}" y="180">{esc(name)}</text></g>'
    )


# Negotiation


def negotiation_frames(episode: Episode) -> list[Frame]:
    facts = episode.facts
    values: dict[str, dict[str, int]] = facts["values"]
    start = {seat: dict(held) for seat, held in facts["start"].items()}
    seats = list(start)
    goods = tuple(start[seats[0]])
    moves: list[dict[str, str]] = facts["moves"]
    held, offer = start, None
    note = "Each player holds goods and values them in private. Whoever gains more wins."
    frames = [Frame("Start", draw_goods(start, start, start, values), note=note)]
    for at, turn in enumerate(episode.turns):
        before, label = held, str(at + 1)
        if at >= len(moves):
            reason = str(facts.get("reason", "no legal action"))
            stage = draw_goods(start, held, held, values)
            frames.append(Frame(label, stage, turn, f"Forfeits: {reason}", "bad"))
            break
        seat = moves[at]["seat"]
        other = next(s for s in seats if s != seat)
        action = negotiation.parse(moves[at]["action"], goods)
        mood = ""
        if isinstance(action, negotiation.Trade):
            note, offer = f"Offers {_bundle(action.give)} for {_bundle(action.take)}", action
        elif action == "accept" and offer is not None:
            gave, took = negotiation.exchange(held[other], held[seat], offer)
            held, offer, note, mood = {other: gave, seat: took}, None, "Accepts the offer", "good"
        else:
            note, offer = ("Passes" if offer is None else "Turns the offer down"), None
        stage = draw_goods(start, before, held, values)
        frames.append(Frame(label, stage, turn, note, mood))
    return frames


def draw_goods(
    start: Mapping[str, Mapping[str, int]],
    before: Mapping[str, Mapping[str, int]],
    held: Mapping[str, Mapping[str, int]],
    values: Mapping[str, Mapping[str, int]],
) -> str:
    """Who holds what, what it is worth to each, and what both have gained so far."""
    seats = list(start)
    heads = "".join(
        f'<th colspan="2" class="seat-{at}">{esc(seat.capitalize())}</th>'
        for at, seat in enumerate(seats)
    )
    rows = ""
    for good in start[seats[0]]:
        cells = ""
        for seat in seats:
            change = held[seat][good] - before[seat][good]
            mark = f'<sup class="{"up" if change > 0 else "down"}">{signed(change)}</sup>'
            cells += f'<td class="num">{held[seat][good]}{mark if change else ""}</td>'
            cells += f'<td class="worth">at {values[seat][good]}</td>'
        rows += f"<tr><th>{esc(good)}</th>{cells}</tr>"
    gains = ""
    for seat in seats:
        gain = negotiation.worth(held[seat], values[seat])
        gain -= negotiation.worth(start[seat], values[seat])
        gains += f'<td class="num" colspan="2">{signed(gain) if gain else "0"}</td>'
    return (
        f'<table class="goods"><thead><tr><td></td>{heads}</tr></thead><tbody>{rows}</tbody>'
        f"<tfoot><tr><th>Gained</th>{gains}</tr></tfoot></table>"
    )


def negotiation_position(state: Mapping[str, Any], seat: int) -> str:
    """The own goods, what each is worth to their holder, and the offer on the table."""
    rows = "".join(
        f'<tr><th>{esc(good)}</th><td class="num">{count}</td>'
        f'<td class="worth">at {state["values"][good]}</td></tr>'
        for good, count in state["holding"].items()
    )
    offer = "No offer is on the table."
    if state["offer"] is not None:
        give, take = state["offer"]
        offer = f"You are offered {_bundle(give)} for {_bundle(take)}."
    return (
        f'<div class="seat-{seat}"><table class="goods"><thead><tr><td></td>'
        f'<th colspan="2">You hold</th></tr></thead><tbody>{rows}</tbody></table>'
        f'<p class="note">{esc(offer)} {state["left"]} moves are left.</p></div>'
    )


def _bundle(bundle: Mapping[str, int]) -> str:
    return ", ".join(f"{number(count)} {good}" for good, count in bundle.items())

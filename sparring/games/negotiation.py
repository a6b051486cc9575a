"""SimpleNegotiation: two traders with private values; the larger gain wins, so talk has a price."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, ClassVar

from pydantic import Field

from sparring.core.answers import answer, ask, check_style, limit
from sparring.core.game import Forfeit, Frame, Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Episode, Task, View
from sparring.run.games import Tokens

Bundle = dict[str, int]  # good -> how many

# What each good is worth on average; a player's own value lies within a fifth of it.
GOODS = {"Wheat": 5, "Wood": 10, "Sheep": 15, "Brick": 25, "Gold": 30, "Ore": 40}
FIVE = ("Wheat", "Wood", "Sheep", "Brick", "Ore")
TWO = ("Wood", "Gold")  # enough for the terse form
LEAST, MOST = 5, 40  # no value lies outside
MENU = 5  # the terse form swaps one of the dear good for 1 to MENU of the cheap one


@dataclass(frozen=True)
class Trade:
    """An offer as its maker sees it."""

    give: Bundle
    take: Bundle

    def words(self) -> str:
        return f"Offer: {_list(self.give)} -> {_list(self.take)}"


@dataclass
class Deal:
    """Where a game stands. `offer` is the one on the table, made by the player not to move."""

    holdings: dict[str, Bundle]
    values: dict[str, dict[str, int]]
    offer: Trade | None = None
    moves: list[dict[str, str]] = field(default_factory=list)
    trades: int = 0


def worth(bundle: Mapping[str, int], values: Mapping[str, int]) -> int:
    return sum(count * values[good] for good, count in bundle.items())


def covers(holding: Mapping[str, int], bundle: Mapping[str, int]) -> bool:
    return all(holding.get(good, 0) >= count for good, count in bundle.items())


def exchange(giver: Bundle, taker: Bundle, trade: Trade) -> tuple[Bundle, Bundle]:
    """Both holdings after the giver's trade with the taker."""
    flow = {good: trade.take.get(good, 0) - trade.give.get(good, 0) for good in giver}
    return (
        {good: count + flow[good] for good, count in giver.items()},
        {good: count - flow[good] for good, count in taker.items()},
    )


@cache
def menu(goods: tuple[str, ...]) -> dict[str, Trade]:
    """The terse form's offers: "3" gives 3 of the cheap good for 1 dear one, "c" the reverse."""
    cheap, dear = sorted(goods, key=GOODS.__getitem__)
    up = {str(k): Trade({cheap: k}, {dear: 1}) for k in range(1, MENU + 1)}
    down = {"abcde"[k - 1]: Trade({dear: 1}, {cheap: k}) for k in range(1, MENU + 1)}
    return up | down


def parse_bundle(text: str, goods: tuple[str, ...]) -> Bundle | None:
    """ "2 Wood, 1 Ore" as counts, or None where it is not a list of known goods."""
    names = {good.lower(): good for good in goods}
    bundle: Bundle = {}
    for part in re.split(r",|\band\b", text):
        match = re.fullmatch(r"\s*([0-9]{1,4})\s+([A-Za-z]+)\s*", part)
        good = names.get(match[2].lower()) if match else None
        if match is None or good is None or int(match[1]) == 0:
            return None
        bundle[good] = bundle.get(good, 0) + int(match[1])
    return bundle


def parse(text: str, goods: tuple[str, ...]) -> str | Trade | None:
    """ "accept", "deny", a Trade, or None for anything else."""
    reply = answer(text)
    if len(goods) == 2 and reply in menu(goods):
        return menu(goods)[reply]
    word = {"y": "accept", "n": "deny"}.get(reply, reply.lower())
    if word in ("accept", "deny"):
        return word
    match = re.fullmatch(r"offer:?\s*([^<>]+?)\s*->\s*([^<>]+)", reply, re.IGNORECASE | re.DOTALL)
    if match is None:
        return None
    give, take = (parse_bundle(side, goods) for side in match.groups())
    return Trade(give, take) if give and take else None


def surplus(facts: Mapping[str, Any]) -> dict[str, float]:
    """What trading gained both players together, against the most it could have.

    The most is the Pareto optimum with the largest total: every good with whoever values it
    more. `share` is gained / most, and 1 where there was nothing to gain and nothing was lost.
    """
    (one, start), (two, other) = facts["start"].items()
    gained = float(sum(facts["gains"].values()))
    most = 0.0
    for good in start:
        gap = facts["values"][one][good] - facts["values"][two][good]
        most += max(gap, 0) * other[good] + max(-gap, 0) * start[good]
    if most == 0:
        return {"gained": gained, "most": 0.0, "share": 1.0 if gained == 0 else -math.inf}
    return {"gained": gained, "most": most, "share": gained / most}


def mean_surplus(episodes: Iterable[Episode]) -> float:
    """Mean share of the optimum over all negotiations that are not void; NaN without any."""
    shares = [surplus(e.facts)["share"] for e in episodes if e.void is None]
    return sum(shares) / len(shares) if shares else math.nan


@dataclass
class SimpleNegotiation(Game):
    """Trade goods by offers; after the last turn whoever gained more by own values wins.

    A turn accepts the offer on the table, denies it (or passes), or makes an offer, which
    denies the one before. Holdings and values are private. Without any trade it is 0/0.
    """

    title: ClassVar[str] = "Negotiation"
    glyph: ClassVar[str] = "⇄"
    seats: ClassVar[tuple[str, ...]] = ("first", "second")
    zero_sum: ClassVar[bool] = True

    style: str = "reason"
    invalid: float = -1.5  # to whoever says no legal action
    invalid_other: float = 0.5
    cap: Annotated[int, Field(ge=0)] = 0  # turns in all; 0: 10, and 4 when terse
    goods: tuple[str, ...] = ()  # none: TextArena's five, and Wood and Gold when terse
    max_tokens: Tokens = None  # None: as the style needs

    def __post_init__(self) -> None:
        check_style(self.style)
        terse = self.style == "terse"
        self.cap = self.cap or (4 if terse else 10)
        self.goods = tuple(self.goods or (TWO if terse else FIVE))
        unknown = [good for good in self.goods if good not in GOODS]
        if unknown:
            raise ValueError(f"there is no good {unknown[0]!r}; there are: {', '.join(GOODS)}")
        if len(set(self.goods)) != len(self.goods) or len(self.goods) < 2:
            raise ValueError("a negotiation needs two different goods or more")
        if terse and len(self.goods) != 2:
            raise ValueError(f"the terse form trades exactly two goods, not {len(self.goods)}")

    def task(self, seed: int) -> Task:
        rng = random.Random(seed)
        # The terse form does not show holdings, so no offer of its menu may ever exceed them:
        # a trade takes two turns and moves at most MENU of a good.
        few = max(5, MENU * (self.cap // 2)) if self.style == "terse" else 5
        holdings = {s: {g: rng.randint(few, few + 20) for g in self.goods} for s in self.seats}
        values = {s: {g: _draw_value(g, rng) for g in self.goods} for s in self.seats}
        data = {"seed": seed, "holdings": holdings, "values": values}
        return Task(id=str(seed), game="negotiation", data=data)

    async def play(self, task: Task, table: Table) -> Outcome:
        start = {seat: dict(held) for seat, held in task.data["holdings"].items()}
        deal = Deal(holdings=dict(start), values=task.data["values"])
        for number in range(self.cap):
            seat, other = self.seats[number % 2], self.seats[1 - number % 2]
            turn = await table[seat].reply(
                self.prompt(deal, seat, number),
                view=self.view(deal, seat, number),
                **limit(self.style, 1, 48, self.max_tokens),
            )
            action = parse(turn.text, self.goods)
            reason = _broken(action, deal, seat)
            if reason:
                facts = self._facts(start, deal)
                forfeit = Forfeit(self.invalid, self.invalid_other)
                return forfeit.outcome(self.seats, seat, reason, **facts)
            if action == "accept" and deal.offer is not None:
                giver, taker = exchange(deal.holdings[other], deal.holdings[seat], deal.offer)
                deal.holdings = {other: giver, seat: taker}
                deal.trades += 1
            deal.offer = action if isinstance(action, Trade) else None
            name = action.words() if isinstance(action, Trade) else str(action)
            deal.moves.append({"seat": seat, "action": name})
        return self._score(start, deal)

    def _score(self, start: dict[str, Bundle], deal: Deal) -> Outcome:
        facts = self._facts(start, deal)
        if not deal.trades:
            return Outcome(first=0, second=0, facts={"end": "cap", **facts})
        first, second = (facts["gains"][seat] for seat in self.seats)
        if first == second:
            return Outcome(first=0, second=0, facts={"end": "draw", **facts})
        winner = self.seats[0 if first > second else 1]
        rewards = {seat: 1 if seat == winner else -1 for seat in self.seats}
        return Outcome(rewards, facts={"end": "deal", "winner": winner, **facts})

    def _facts(self, start: dict[str, Bundle], deal: Deal) -> dict[str, Any]:
        gains = {
            seat: worth(deal.holdings[seat], deal.values[seat])
            - worth(start[seat], deal.values[seat])
            for seat in self.seats
        }
        return {
            "moves": deal.moves,
            "trades": deal.trades,
            "values": deal.values,
            "start": start,
            "holdings": {seat: deal.holdings[seat] for seat in self.seats},
            "gains": gains,
        }

    def view(self, deal: Deal, seat: str, number: int) -> View:
        """What the player to move may know, and moves to draw from; in words, any other offer
        the player can pay is legal too."""
        holding = deal.holdings[seat]
        offers = menu(self.goods) if self.style == "terse" else _even_swaps(self.goods)
        actions = [name for name, trade in offers.items() if covers(holding, trade.give)]
        terse = self.style == "terse"
        if deal.offer is not None and covers(holding, deal.offer.take):
            actions.append("y" if terse else "Accept")
        actions.append("n" if terse else "Deny")
        state = {
            "holding": holding,
            "values": deal.values[seat],
            "offer": None if deal.offer is None else (deal.offer.give, deal.offer.take),
            "left": self.cap - number,
        }
        return View(state=state, actions=tuple(actions))

    def measures(self, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
        return {"surplus": mean_surplus(episodes)}

    def board(self, episode: Episode) -> list[Frame]:
        from sparring.games.boards import negotiation_frames

        return negotiation_frames(episode)

    def scene(self, view: View, seat: str) -> str:
        from sparring.games.boards import negotiation_position

        return negotiation_position(view.state, self.seats.index(seat))

    def scripted(self, view: View, seed: int) -> str:
        """A strong player, not a perfect one: it takes the other's values for the average ones,
        accepts what brings it more than it brings the other, and offers what should gain both
        something and itself the most."""
        terse = self.style == "terse"
        values, holding = view.state["values"], view.state["holding"]
        if view.state["offer"] is not None:
            give, take = view.state["offer"]
            mine = worth(give, values) - worth(take, values)
            theirs = worth(take, GOODS) - worth(give, GOODS)
            if mine > 0 and mine > theirs and covers(holding, take):
                return "y" if terse else "Accept"
        offers = menu(self.goods) if terse else _swaps(self.goods)
        rated = []
        for name, trade in offers.items():
            mine = worth(trade.take, values) - worth(trade.give, values)
            theirs = worth(trade.give, GOODS) - worth(trade.take, GOODS)
            if mine > theirs >= 0 and mine > 0 and covers(holding, trade.give):
                rated.append((mine - theirs, name))
        if not rated or view.state["left"] < 2:  # nobody is left to accept the last offer
            return "n" if terse else "Deny"
        # Asking for the same again after a denial gets nowhere, so it varies among the best.
        return random.Random(seed).choice(sorted(rated, reverse=True)[:4])[1]

    def prompt(self, deal: Deal, seat: str, number: int) -> str:
        """What the player is told this turn; the conversation holds what was told before."""
        last = deal.moves[-1]["action"] if deal.moves else None
        if self.style == "terse":
            codes = {trade.words(): letter for letter, trade in menu(self.goods).items()}
            # Only the menu has letters; an offer in words by a program is shown as it is.
            code = {"accept": "y", "deny": "n", None: "-"}.get(last) or codes.get(str(last), last)
            values = " ".join(str(deal.values[seat][good]) for good in self.goods)
            return f"{values}:{code}" if number < 2 else str(code)
        happened = {
            None: "You open.",
            "accept": "The other player accepted your offer.",
            "deny": "The other player makes no offer.",
        }.get(last)
        if deal.offer is not None:
            happened = (
                f"The other player offers {_list(deal.offer.give)} "
                f"for your {_list(deal.offer.take)}."
            )
        rules = [self._rules()] if number < 2 else []
        goods = [f"{deal.holdings[seat][g]} {g} at {deal.values[seat][g]}" for g in self.goods]
        stand = f"You hold: {', '.join(goods)}. Turns left, this one included: {self.cap - number}."
        what = (
            "Accept, Deny or an offer" if deal.offer is not None else "Deny (to pass) or an offer"
        )
        form = f"\\boxed{{Offer: 1 {self.goods[1]} -> 1 {self.goods[0]}}}"
        closing = ask(self.style, what, f"for example {form}")
        return "\n".join([*rules, str(happened), stand, closing])

    def _rules(self) -> str:
        if self.style == "short":
            return (
                "You trade goods. Whoever gains more value by the end wins. "
                "Offer what you give -> what you get."
            )
        a, b = self.goods[0], self.goods[-1]
        return (
            "You are negotiating with one other player. Both of you hold goods, and each has "
            "private values for them, which differ a little. You take turns. On your turn you "
            "accept the offer on the table (Accept), turn it down or pass (Deny), or make an "
            f"offer, which turns down the one before: 'Offer: 1 {b} -> 3 {a}' gives 1 {b} for "
            f"3 {a}; several goods are separated by commas. You can give only what you hold. "
            "After the last turn "
            "whoever has raised the value of the own goods more wins. Anything that is not one "
            "of these actions, an offer you cannot pay, or accepting what you cannot pay loses "
            "the game at once. The other player sees your action, not your reasoning."
        )


def _broken(action: str | Trade | None, deal: Deal, seat: str) -> str:
    """Which rule an action breaks, or nothing."""
    if action is None:
        return "not an action"
    if isinstance(action, Trade):
        return "" if covers(deal.holdings[seat], action.give) else "offers more than it holds"
    if action == "accept" and deal.offer is None:
        return "accepts where there is no offer"
    if action == "accept" and deal.offer and not covers(deal.holdings[seat], deal.offer.take):
        return "accepts more than it can pay"
    return ""


def _draw_value(good: str, rng: random.Random) -> int:
    base = GOODS[good]
    return rng.randint(max(base - base // 5, LEAST), min(base + base // 5, MOST))


@cache
def _swaps(goods: tuple[str, ...], most: int = 6) -> dict[str, Trade]:
    """All swaps of up to `most` of one good for up to `most` of another."""
    counts = range(1, most + 1)
    pairs = ((a, b) for a in goods for b in goods if a != b)
    trades = [Trade({a: m}, {b: n}) for a, b in pairs for m in counts for n in counts]
    return {trade.words(): trade for trade in trades}


@cache
def _even_swaps(goods: tuple[str, ...]) -> dict[str, Trade]:
    """One swap per pair of goods, about even by average value."""
    trades = []
    for a in goods:
        for b in (good for good in goods if good != a):
            m, n = max(1, round(GOODS[b] / GOODS[a])), max(1, round(GOODS[a] / GOODS[b]))
            trades.append(Trade({a: m}, {b: n}))
    return {trade.words(): trade for trade in trades}


def _list(bundle: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {good}" for good, count in bundle.items())

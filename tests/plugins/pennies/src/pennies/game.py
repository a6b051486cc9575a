"""The game: even wins if both say the same."""

from __future__ import annotations

from asyncio import gather
from dataclasses import dataclass
from typing import ClassVar

from sparring import Episode, Frame, Game, Outcome, Table, Task, View


@dataclass
class MatchingPennies(Game):
    seats: ClassVar[tuple[str, ...]] = ("even", "odd")
    zero_sum: ClassVar[bool] = True
    title: ClassVar[str] = "Matching pennies"
    stake: float = 1.0

    async def play(self, task: Task, table: Table) -> Outcome:
        view = View(state="", actions=("h", "t"))
        turns = await gather(
            *(table[seat].act("h or t?", view=view, max_tokens=1) for seat in self.seats)
        )
        even, odd = (turn.text.strip()[:1] for turn in turns)
        won = self.stake if even == odd else -self.stake
        return Outcome(even=won, odd=-won, facts={"coins": even + odd})

    def measures(self, episodes: list[Episode], policy: str) -> dict[str, float]:
        return {"heads": sum(e.facts["coins"].count("h") for e in episodes) / len(episodes)}

    def board(self, episode: Episode) -> list[Frame]:
        coins = "".join(
            f'<text x="{20 + 40 * i}" y="30">{coin}</text>'
            for i, coin in enumerate(episode.facts["coins"])
            if coin in "ht"
        )
        return [Frame("Flip", f'<svg class="two-coins" viewBox="0 0 90 40">{coins}</svg>')]

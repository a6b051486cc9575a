"""A game whose rules are another package's environment in a worker process: what it shows is the
prompt, the whole reply is the action, its rewards are the outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import fmean
from typing import Any, ClassVar

from sparring.bridges.host import Environment, EnvironmentFailed
from sparring.core.errors import UnknownName, nearest
from sparring.core.game import Game, Outcome
from sparring.core.table import Player, Table
from sparring.core.types import Episode, Message, Task, Turn, VoidGame
from sparring.run.games import Count, Seconds

PATIENCE = 300.0  # seconds for what is asked before anything is played
_SEEDS = 2**31  # NumPy's old generators take no larger seed


@dataclass
class Hosted(Game):
    """The worker answers `open` and `step` with a player's number and an observation, as text or as
    messages, or with the rewards and what there is to say of them."""

    worker: ClassVar[str] = ""  # the module that is run
    env_id: ClassVar[str] = ""
    conversation: ClassVar[bool] = False  # whether an observation holds only what is new

    settings: dict[str, Any] = field(default_factory=dict)  # arguments of the environment
    turns: Count = 500  # a game that is not over by then is void
    answer_within: Seconds = 60.0  # a step that takes longer counts as a hang

    async def play(self, task: Task, table: Table) -> Outcome:
        environment = Environment(self.worker, self.answer_within)
        spoken: dict[str, list[Message]] = {}  # seat -> its conversation so far
        try:
            answer = await table.judge(
                environment.call(
                    "open", game=self.env_id, players=len(self.seats), settings=self.settings,
                    seed=int(task.data["seed"]) % _SEEDS,
                )
            )  # fmt: skip
            for _ in range(self.turns):
                seat = self.seats[answer["player"]]
                turn = await self._speak(table[seat], answer["observation"], spoken)
                answer = await table.judge(environment.call("step", action=turn.text))
                if "rewards" in answer:
                    return self._outcome(answer)
            raise VoidGame(f"{self.env_id} was not over after {self.turns} turns")
        except EnvironmentFailed as error:
            raise VoidGame(f"{self.env_id}: {error}") from error
        finally:
            environment.close()

    async def _speak(
        self, player: Player, seen: str | list[Message], spoken: dict[str, list[Message]]
    ) -> Turn:
        """A whole conversation that goes on from the last one is replied to, so that what was
        sampled stays as it is, id for id."""
        messages = [{"role": "user", "content": seen}] if isinstance(seen, str) else seen
        past = spoken.get(player.seat, [])
        new = messages if self.conversation else messages[len(past) :]
        goes_on = bool(past) and bool(new) and (self.conversation or messages[: len(past)] == past)
        turn = await (player.reply(new) if goes_on else player.act(messages))
        spoken[player.seat] = [*messages, {"role": "assistant", "content": turn.text}]
        return turn

    def measures(self, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
        """The mean reward, of environments with one seat."""
        if len(self.seats) > 1:
            return {}
        return {"score": fmean(episode.rewards[self.seats[0]] for episode in episodes)}

    def _outcome(self, answer: dict[str, Any]) -> Outcome:
        if answer["rewards"] is None:
            raise VoidGame(f"{self.env_id} ended without rewards")
        # JSON has turned player numbers into text.
        rewards = {seat: answer["rewards"][str(i)] for i, seat in enumerate(self.seats)}
        info = {seat: answer["info"].get(str(i), {}) for i, seat in enumerate(self.seats)}
        invalid = [seat for seat in self.seats if info[seat].get("invalid_move")]
        facts: dict[str, Any] = {"end": "invalid" if invalid else "played", "info": info}
        reasons = [about["reason"] for about in info.values() if about.get("reason")]
        facts |= {"invalid": invalid[0]} if invalid else {}
        facts |= {"reason": reasons[0]} if reasons else {}
        return Outcome(rewards, facts=facts)


@cache
def ids(worker: str) -> dict[str, str]:
    """Every id that a worker knows, with a line on each."""
    known: dict[str, str] = Environment(worker, PATIENCE, worker=0).call_now("ids")
    return known


def class_of(base: type[Hosted], env_id: str, package: str, **attributes: Any) -> type[Game]:
    """The game of an id; an id that is unknown is answered with the nearest one."""
    known = ids(base.worker)
    if env_id not in known:
        raise UnknownName(f"{package} has no {env_id!r}; {nearest(env_id, known)}")
    return type(env_id, (base,), {"env_id": env_id, "title": env_id, **attributes})

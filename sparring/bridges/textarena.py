"""TextArena's environments as games: `textarena:ID`. Observations, errors and rewards are the
package's own; a player is shown what it shows, and its whole reply is the action."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from sparring.bridges.host import Environment, EnvironmentFailed
from sparring.core.errors import ConfigError, UnknownName
from sparring.core.game import Game, Outcome
from sparring.core.nearest import nearest
from sparring.core.table import Table
from sparring.core.types import Episode, Task, VoidGame
from sparring.run.game_options import Count, Seconds

_WORKER = "sparring.bridges.textarena_worker"
_SEEDS = 2**31  # NumPy's old generators take no larger seed


@dataclass
class TextArena(Game):
    """One environment, given by its id; `game` makes the class."""

    env_id: ClassVar[str] = ""

    players: Count | None = None  # None: the least that can play, two or more where possible
    settings: dict[str, Any] = field(default_factory=dict)  # arguments of `textarena.make`
    turns: Count = 500  # a game that is not over by then is void
    answer_within: Seconds = 60.0  # a step that takes longer counts as a hang

    def __post_init__(self) -> None:
        settings = json.dumps(self.settings, sort_keys=True)
        if self.players is None:
            self.players = _player_counts(self.env_id, settings)[0]
        elif self.players not in (able := _player_counts(self.env_id, settings, first=False)):
            raise ValueError(f"players: {self.players} cannot play it; there can be {able}")
        vars(self)["seats"] = tuple(f"player_{i}" for i in range(self.players))
        vars(self)["cooperative"] = self.players == 1

    async def play(self, task: Task, table: Table) -> Outcome:
        environment = Environment(_WORKER, self.answer_within)
        conversation = self.env_id.endswith("-raw")  # only what is new is shown
        spoken: set[str] = set()
        try:
            answer = await table.judge(
                environment.call(
                    "open", game=self.env_id, players=self.players, settings=self.settings,
                    seed=int(task.data["seed"]) % _SEEDS,
                )
            )  # fmt: skip
            for _ in range(self.turns):
                seat = self.seats[answer["player"]]
                goes_on = conversation and seat in spoken
                speak = table[seat].reply if goes_on else table[seat].act
                spoken.add(seat)
                turn = await speak(answer["observation"])
                answer = await table.judge(environment.call("step", action=turn.text))
                if "rewards" in answer:
                    return self._outcome(answer)
            raise VoidGame(f"{self.env_id} was not over after {self.turns} turns")
        except EnvironmentFailed as error:
            raise VoidGame(f"{self.env_id}: {error}") from error
        finally:
            environment.close()

    def _outcome(self, answer: dict[str, Any]) -> Outcome:
        if answer["rewards"] is None:
            raise VoidGame(f"{self.env_id} ended without rewards")
        info = {seat: answer["info"].get(str(i), {}) for i, seat in enumerate(self.seats)}
        invalid = [seat for seat in self.seats if info[seat].get("invalid_move")]
        facts: dict[str, Any] = {"end": "invalid" if invalid else "played", "info": info}
        reasons = [about["reason"] for about in info.values() if about.get("reason")]
        facts |= {"invalid": invalid[0]} if invalid else {}
        facts |= {"reason": reasons[0]} if reasons else {}
        # JSON has turned player numbers into text.
        return Outcome(
            {seat: answer["rewards"][str(i)] for i, seat in enumerate(self.seats)}, facts=facts
        )

    def measures(self, episodes: Sequence[Episode], policy: str) -> dict[str, float]:
        """The mean reward, of games for one player."""
        if len(self.seats) > 1:
            return {}
        return {"score": sum(e.rewards[self.seats[0]] for e in episodes) / len(episodes)}


def game(env_id: str) -> type[Game]:
    known = listing()
    if env_id not in known:
        raise UnknownName(f"TextArena has no environment {env_id!r}; {nearest(env_id, known)}")
    return type(env_id, (TextArena,), {"env_id": env_id, "title": env_id})


@cache
def listing() -> dict[str, str]:
    """Every id with its class and settings."""
    ids: dict[str, str] = Environment(_WORKER, 120.0, worker=0).call_now("ids")
    return ids


@cache
def _player_counts(env_id: str, settings: str, first: bool = True) -> list[int]:
    """With how many players it can be begun with these settings, which are JSON."""
    try:
        counts: list[int] = Environment(_WORKER, 120.0, worker=0).call_now(
            "players", game=env_id, settings=json.loads(settings), first=first
        )
        return counts
    except EnvironmentFailed as error:
        raise ConfigError(f"{env_id} cannot be begun here: {_advice(str(error))}") from None


def _advice(reason: str) -> str:
    """What to do about the reasons that TextArena's environments are known to have."""
    known = {
        "LookupError": "run `python -m nltk.downloader words averaged_perceptron_tagger_eng` once",
        "API key": "set OPENROUTER_API_KEY, since a model elsewhere is its referee",
        "SyntaxError": "use Python 3.12 or newer, which its source is written for",
    }
    advice = next((add for sign, add in known.items() if sign in reason), "")
    return f"{advice} ({' '.join(reason.split())[:120]})" if advice else reason

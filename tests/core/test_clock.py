"""The split of time adds up, whoever is at work beside whom."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest

from sparring.core.clock import Clock
from sparring.core.collect import Job, collect
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Sampling, Task, Verdict
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.players import Players


def test_every_second_is_counted_once_however_many_are_at_work() -> None:
    now = [0.0]
    clock = Clock(lambda: now[0])

    def pass_(seconds: float) -> None:
        now[0] += seconds

    pass_(1)
    with clock.generating():
        pass_(2)
        with clock.generating(), clock.judging():
            pass_(4)
        pass_(8)
    with clock.judging():
        pass_(16)
        with clock.judging():
            pass_(32)
    pass_(64)
    assert clock.lap() == {"generate": 14, "judge": 48, "wait": 65, "judge_meanwhile": 4}
    pass_(128)
    assert clock.lap() == {"generate": 0, "judge": 0, "wait": 128, "judge_meanwhile": 0}


def test_what_workers_did_takes_the_place_of_waiting_for_them() -> None:
    now = [0.0]
    clock = Clock(lambda: now[0])
    now[0] = 10.0
    lap = {"generate": 4.0, "judge": 1.0, "wait": 1.0, "judge_meanwhile": 2.0}
    clock.add_workers([lap, {**lap, "generate": 6.0, "wait": 3.0}])
    assert clock.lap() == {"generate": 5, "judge": 1, "wait": 4, "judge_meanwhile": 2}
    clock.add_workers([])
    assert set(clock.lap().values()) == {0}


RULING_S = 0.05


@dataclass
class Judged(Game):
    """Two questions with a slow judge between them."""

    seats: ClassVar[tuple[str, ...]] = ("writer",)

    async def play(self, task: Task, table: Table) -> Outcome:
        await table["writer"].act("a")
        await table.judge(self.rule())
        await table["writer"].act("b")
        return Outcome(writer=1)

    async def rule(self) -> Verdict:
        await asyncio.sleep(RULING_S)
        return Verdict("pass")


def play(
    policies, slow_s: float = 0.0, games: int = 4, every_round: bool = False, **options
) -> tuple[dict, list, float]:
    """The split, who was in which batch, and the whole time of some games with a judge. Slow are
    rounds that somebody joins, or all."""
    engine = TransformersEngine(policies, **options)
    batches: list[list] = []
    usual = engine._round

    def compute(new):
        if new:
            batches.append([waiting.request.order for waiting in new])
        if new or every_round:
            time.sleep(slow_s)
        return usual(new)

    engine._round = compute
    players = Players(engine)
    game = Judged()
    jobs = [Job(str(i), "judged", game, Task("t"), i, {"writer": "main"}) for i in range(games)]

    async def all_of_them() -> tuple[dict, float]:
        started, _ = time.perf_counter(), players.clock.lap()
        await collect(jobs, players.act, sampling=Sampling(max_tokens=2), outside=players.outside)
        return players.clock.lap(), time.perf_counter() - started

    split, whole = asyncio.run(all_of_them())
    return split, batches, whole


def sizes(batches: list[list]) -> list[int]:
    return [len(batch) for batch in batches]


def test_the_split_of_real_games_comes_to_their_time(policies) -> None:
    split, batches, whole = play(policies, slow_s=0.02)
    assert sizes(batches) == [4, 4]
    assert split["generate"] + split["judge"] + split["wait"] == pytest.approx(whole, abs=0.01)
    assert split["generate"] >= 2 * 0.02 and split["judge"] >= 0.9 * RULING_S


def test_in_lockstep_the_engine_waits_for_the_judge(policies) -> None:
    split, batches, _ = play(policies, slow_s=0.02, graphs=False)
    assert sizes(batches) == [4, 4] and split["judge_meanwhile"] == 0


def test_without_lockstep_judges_rule_while_others_are_generated(policies) -> None:
    """Two at a time: while the second two are spoken for, the first two are judged."""
    options = {"max_batch": 2, "lockstep": False, "graphs": False}
    split, batches, _ = play(policies, slow_s=0.06, every_round=True, **options)
    assert sum(sizes(batches)) == 8
    assert split["judge_meanwhile"] >= 0.5 * RULING_S


def test_in_lockstep_those_who_were_left_waiting_are_served_while_others_are_judged(
    policies,
) -> None:
    split, batches, _ = play(policies, slow_s=0.06, max_batch=2, graphs=False)
    assert sizes(batches) == [2, 2, 2, 2]
    assert split["judge_meanwhile"] >= 0.5 * RULING_S


@pytest.mark.parametrize("games", [3, 4, 7])
def test_in_lockstep_batches_do_not_depend_on_how_long_judges_take(
    policies, games: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for ruling_s, slow_s in ((0.0, 0.02), (0.02, 0.0), (0.05, 0.02)):
        monkeypatch.setitem(globals(), "RULING_S", ruling_s)
        found.append(play(policies, slow_s=slow_s, games=games, max_batch=2, graphs=False)[1])
    assert found[0] == found[1] == found[2]
    assert sum(sizes(found[0])) == 2 * games

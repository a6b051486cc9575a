"""The contract of a game: players, conversations, forks, judges, outcomes."""

import asyncio
from collections.abc import Awaitable
from contextlib import contextmanager

import pytest

from sparring.core.game import Forfeit, Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Request, Sampling, Turn, Verdict, View, derive


class Recorder:
    """Speaks for everyone and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def __call__(self, request: Request) -> Turn:
        self.asked.append(request)
        await asyncio.sleep(0)
        ids = [len(self.asked)] if request.policy != "program" else []
        return Turn(request.seat, request.policy, "", f"reply {len(self.asked)}", token_ids=ids)


@pytest.fixture
def speak() -> Recorder:
    return Recorder()


def make_table(speak: Recorder, **options) -> Table:
    seating = options.pop("seating", {"x": "main", "o": "rival"})
    return Table(("x", "o"), seating, speak, **options)


def run(awaitable: Awaitable):
    async def wait():
        return await awaitable

    return asyncio.run(wait())


def test_act_begins_anew_and_reply_goes_on(speak):
    table = make_table(speak)

    async def talk() -> list[Turn]:
        player = table["x"]
        first = await player.reply("hello")  # nothing was said yet, so this begins
        second = await player.reply("and?")
        third = await player.act("again", system="be brief")
        return [first, second, third, await player.reply([{"role": "tool", "content": "42"}])]

    first, _second, third, _ = run(talk())
    assert [r.previous for r in speak.asked] == [None, first, None, third]
    assert speak.asked[2].messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "again"},
    ]
    assert speak.asked[3].messages == [{"role": "tool", "content": "42"}]
    assert [t.text for t in table.turns] == [f"reply {i}" for i in (1, 2, 3, 4)]


def test_a_fork_goes_on_from_the_same_point_and_leaves_the_player_there(speak):
    table = make_table(speak)

    async def talk() -> Turn:
        player = table["x"]
        start = await player.act("start")
        forks = [player.fork() for _ in range(3)]
        await asyncio.gather(*(fork.reply("judge") for fork in forks))
        await forks[0].reply("sure?")
        await player.reply("next")
        return start

    start = run(talk())
    previous = [r.previous for r in speak.asked]
    assert previous[1:4] == [start] * 3
    assert previous[4] is table.turns[1]
    assert previous[5] is start
    assert len({r.seed for r in speak.asked}) == 6, "forks are asked independently"


def test_every_question_has_its_own_seed_and_its_place_in_the_order(speak):
    table = make_table(speak, seed=7, order=3)

    async def talk() -> None:
        await asyncio.gather(table["x"].act("a"), table["o"].act("b"))
        await table["x"].act("c")

    run(talk())
    assert [r.seed for r in speak.asked] == [derive(7, i) for i in range(3)]
    assert [r.order for r in speak.asked] == [(3, 0), (3, 1), (3, 2)]
    assert [(r.seat, r.policy) for r in speak.asked[:2]] == [("x", "main"), ("o", "rival")]


def test_sampling_is_the_runs_unless_the_game_says_otherwise(speak):
    table = make_table(speak, sampling=Sampling(temperature=0.5, max_tokens=9))
    run(table["x"].act("a", max_tokens=1, stop=("\n",)))
    assert speak.asked[0].sampling == Sampling(temperature=0.5, max_tokens=1, stop=("\n",))
    with pytest.raises(TypeError, match="max_token"):
        run(table["x"].act("a", max_token=1))


def test_the_view_reaches_whoever_plays_by_it(speak):
    view = View("board", ("1", "2"))
    run(make_table(speak)["x"].act("a", view=view))
    assert speak.asked[0].view is view


def test_only_sampled_turns_of_learned_policies_are_trainable(speak):
    table = make_table(
        speak,
        seating={"x": "main", "o": "program"},
        trainable=lambda seat, policy: policy in ("main", "program"),
    )
    run(table["x"].act("a"))
    run(table["o"].act("a"))
    assert [t.trainable for t in table.turns] == [True, False], "no tokens, nothing to learn"
    strangers = make_table(speak)
    run(strangers["x"].act("a"))
    assert [t.trainable for t in strangers.turns] == [False]


def test_a_judge_is_outside_while_it_rules_and_its_verdicts_are_kept(speak):
    depth: list[int] = [0]

    @contextmanager
    def outside():
        depth[0] += 1
        try:
            yield
        finally:
            depth[0] -= 1

    async def rule(result):
        assert depth == [1]
        if isinstance(result, Exception):
            raise result
        return result

    table = make_table(speak, outside=outside)
    yes, no = Verdict("pass"), Verdict("fail", detail="2 of 3")
    assert run(table.judge(rule(yes))) is yes
    assert run(table.judge(rule([no, yes]))) == [no, yes]
    assert run(table.judge(rule(0.75))) == 0.75
    with pytest.raises(RuntimeError):
        run(table.judge(rule(RuntimeError("broke"))))
    assert table.verdicts == [yes, no, yes]
    assert depth == [0], "a judge that breaks lets go"


def test_outcomes_take_rewards_by_seat_or_by_name():
    assert Outcome(x=1, o=-1).rewards == {"x": 1.0, "o": -1.0}
    outcome = Outcome({"seat one": 2}, facts={"end": "win"}, void="unfair")
    assert (outcome.rewards, outcome.facts, outcome.void) == (
        {"seat one": 2.0},
        {"end": "win"},
        "unfair",
    )


def test_a_forfeit_costs_the_offender_and_pays_the_others():
    outcome = Forfeit().outcome(("x", "o"), "o", "not a free cell", moves=[4])
    assert outcome.rewards == {"x": 0.5, "o": -1.5}
    assert outcome.facts == {
        "end": "invalid",
        "invalid": "o",
        "reason": "not a free cell",
        "moves": [4],
    }
    assert Forfeit(-1.0, 0.0).outcome(("x", "o"), "x", "").rewards == {"x": -1.0, "o": 0.0}


def test_a_game_without_rules_or_champions_says_so(speak):
    class Empty(Game):
        """Nothing."""

    with pytest.raises(TypeError, match="Empty is a game without a play method"):
        run(Empty().play(Empty().task(1), make_table(speak)))
    with pytest.raises(ValueError, match="Empty has no perfect player"):
        Empty().perfect(View("", ()), 0)
    assert Empty().task(5).data == {"seed": 5}

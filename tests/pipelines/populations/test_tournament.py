"""Tournaments: every pair, the same after a kill, a cycle shown as a cycle."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sparring.core.errors import ConfigError
from sparring.core.game import Game, Outcome
from sparring.core.table import Table
from sparring.core.types import Task, View, VoidGame
from sparring.pipelines.populations import commands
from sparring.pipelines.populations.report import section
from sparring.pipelines.populations.tournament import GAMES, Plan, hold, make_plan, summarize
from sparring.run.config import make_config
from sparring.view.rundata import read_run

HERE = f"{Path(__file__)}:Hands"
MOVES = ("rock", "paper", "scissors")


@dataclass
class Hands(Game):
    """Rock, paper, scissors; the three programs play one move each, one game in ten by chance."""

    seats = ("left", "right")
    zero_sum = True

    async def play(self, task: Task, table: Table) -> Outcome:
        if task.data["seed"] % 40 == 0:
            raise VoidGame("the table fell over")
        view = View(task.data["seed"], MOVES)
        moves = [MOVES.index((await table[seat].act("?", view=view)).text) for seat in self.seats]
        gap = {0: 0, 1: 1, 2: -1}[(moves[0] - moves[1]) % 3]
        return Outcome(left=gap, right=-gap)

    def perfect(self, view: View, seed: int) -> str:
        return MOVES[0] if seed % 10 else MOVES[seed % 3]

    def scripted(self, view: View, seed: int) -> str:
        return MOVES[1] if seed % 10 else MOVES[seed % 3]


def plan(*players: str, games: int = 60) -> Plan:
    return make_plan(players, games, game=HERE)


def test_a_tournament_of_programs(tmp_path: Path) -> None:
    summary = hold(plan("random", "perfect", "scripted"), tmp_path / "t")
    names = summary["players"]
    games = summary["games"]
    assert names == ["random", "perfect", "scripted"]
    assert summary["void"] > 0
    assert sum(map(sum, games)) // 2 + summary["void"] == 180
    assert summary["payoffs"][2][1] > 0.7  # paper beats rock
    assert {r["name"] for r in summary["ratings"]} == set(names)
    assert sum(summary["nash"].values()) == pytest.approx(1)
    assert json.loads((tmp_path / "t" / "population.json").read_text()) == summary


def test_games_in_which_a_seat_was_not_asked_and_void_ones_have_no_payoff() -> None:
    played = {"player": "a", "other": "b"}
    records = [
        played | {"id": "0-1-0", "result": [1, 0, 0], "rewards": {"x": 1.0, "o": 0.0}},
        played | {"id": "0-1-1", "result": [0, 0, 0], "rewards": {"x": 1.0}},
        played | {"id": "0-1-2", "result": [0, 0, 0], "rewards": {}, "void": "judge"},
    ]
    summary = summarize(Plan(["a", "b"], "kuhn", 3), ("x", "o"), records)
    assert summary["games"] == [[0, 1], [1, 0]] and summary["payoffs"] == [[0, 0.5], [-0.5, 0]]
    assert summary["void"] == 1


def test_payoffs_of_poker_are_chips_by_openspiels_expected_values(tmp_path: Path) -> None:
    pyspiel = pytest.importorskip("pyspiel", reason="OpenSpiel is not installed")
    from open_spiel.python.algorithms.expected_game_score import policy_value
    from open_spiel.python.policy import TabularPolicy, UniformRandomPolicy

    from sparring.bridges.openspiel import CFR_ITERATIONS, cfr_average

    game = pyspiel.load_game("kuhn_poker")
    cfr, uniform = TabularPolicy(game), UniformRandomPolicy(game)
    average = cfr_average("kuhn_poker", CFR_ITERATIONS)
    for state in cfr.states:
        key = state.information_state_string()
        cfr.policy_for_key(key)[:] = average[f"{state.current_player()} {key}"]
    first, _ = policy_value(game.new_initial_state(), [uniform, cfr])
    _, second = policy_value(game.new_initial_state(), [cfr, uniform])

    plan = make_plan(["random", "scripted"], 1000, game="openspiel:kuhn_poker")
    summary = hold(plan, tmp_path / "t")
    lines = (tmp_path / "t" / GAMES).read_text().splitlines()
    spread = np.std([json.loads(line)["rewards"]["first"] for line in lines]) / len(lines) ** 0.5
    exact = (first + second) / 2
    assert abs(summary["payoffs"][0][1] - exact) < 3 * spread
    (result,) = summary["results"]
    counted = (result["wins"] - result["losses"]) / 1000
    assert abs(counted - exact) > 3 * spread  # how often one wins is another number


def test_it_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    whole = hold(plan("random", "perfect", "scripted"), tmp_path / "whole")
    hold(plan("random", "perfect"), tmp_path / "part")
    lines = (tmp_path / "part" / GAMES).read_text().splitlines()
    (tmp_path / "part" / GAMES).write_text("\n".join(lines[:30]) + '\n{"id": "0-1-')  # torn
    with pytest.raises(ConfigError, match="add --resume to go on"):
        hold(plan("random", "perfect"), tmp_path / "part")
    with pytest.raises(ConfigError, match="games differ"):
        hold(plan("random", "perfect", games=20), tmp_path / "part", resume=True)
    again = hold(plan("random", "perfect", "scripted"), tmp_path / "part", resume=True)
    assert again == whole
    assert (tmp_path / "part" / GAMES).read_bytes() == (tmp_path / "whole" / GAMES).read_bytes()


@pytest.mark.parametrize("players", [["nano", "smollm2"], ["random", "scripted"]])
def test_a_game_that_is_won_together_has_no_tournament(players: list[str]) -> None:
    """Its players earn the same, so that all came out equal, whoever they were."""
    with pytest.raises(ConfigError, match="matching is won together"):
        make_plan(players, 2, game="matching")


@pytest.mark.parametrize(
    ("players", "message"),
    [
        (["random"], "two players or more"),
        (["random", "random"], "named once"),
        (["random", "nobody"], "nobody"),
    ],
)
def test_bad_players_leave_nothing_behind(players: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        hold(plan(*players), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no tournament"):
        hold(plan("random", "perfect"), tmp_path)


def test_an_exploiter_meets_a_tournaments_mixture(tmp_path: Path) -> None:
    hold(plan("perfect", "scripted"), tmp_path / "t")
    opponents = {"kind": "players", "population": str(tmp_path / "t"), "mixture": "nash"}
    config = make_config({"games": {"kuhn": {}}, "opponents": opponents})
    assert config.opponents.players == ["scripted"] and config.opponents.weights == [1.0]
    met = make_config({"games": {"kuhn": {}}, "opponents": {**opponents, "mixture": "uniform"}})
    assert met.opponents.players == ["perfect", "scripted"]
    with pytest.raises(ConfigError, match="there is no population"):
        make_config({"games": {"kuhn": {}}, "opponents": {**opponents, "population": "nowhere"}})
    with pytest.raises(ConfigError, match="kind `players`"):
        make_config({"games": {"kuhn": {}}, "opponents": {**opponents, "kind": "league"}})


def test_the_report_shows_the_matrix_and_the_cycle(tmp_path: Path) -> None:
    results = [
        {"player": a, "other": b, "wins": 90, "draws": 0, "losses": 10}
        for a, b in (("A", "B"), ("B", "C"), ("C", "A"))
    ]
    (tmp_path / "population.json").write_text(
        json.dumps({"players": ["A", "B", "C"], "results": results, "kind": "nash"})
    )
    part = section(read_run(tmp_path))
    assert part is not None
    (shown,) = part.sections
    assert "Cycle: A beats B beats C beats A" in shown.body
    assert shown.body.count("<td>0.33</td>") == 6  # Nash and alpha-rank of each
    assert shown.body.count("+0.80") == 3 and shown.body.count("−0.80") == 3


@pytest.mark.parametrize("text", ["", "{", '{"players": 3}', '{"players": ["A"], "results": [1]}'])
def test_a_strange_file_is_left_out_of_the_report(text: str, tmp_path: Path) -> None:
    (tmp_path / "population.json").write_text(text)
    assert section(read_run(tmp_path)) is None


def test_long_names_are_told_apart_at_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    folder = "/home/somebody/experiments/november/runs"
    players = [f"{folder}/kuhn@last", f"{folder}/kuhn@last:main@60", "perfect"]
    even = dict.fromkeys(players, 1 / 3)
    rows = [{"name": name, "elo": 0.0, "low": -100.0, "high": 100.0} for name in players]
    summary = {"players": players, "game": "kuhn", "payoffs": [[0.0] * 3] * 3, "ratings": rows}
    commands._print({**summary, "nash": even, "alpharank": even, "cycles": [], "void": 0})
    printed = capsys.readouterr().out
    assert "1 kuhn@last " in printed and "2 kuhn@last:main@60 " in printed and "…" in printed
    assert folder[:12] not in printed

"""OpenSpiel's games at our table: played as OpenSpiel plays them, and measured as it measures."""

import asyncio
import random
from typing import Any

import pytest
from lazily import imported

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError, UnknownName
from sparring.core.tree import TreeTooLarge
from sparring.core.types import Sampling, Turn, View
from sparring.evaluation.arena import match
from sparring.evaluation.best_response import exploit, mixed, uniform
from sparring.run.games import load_game
from sparring.training.loop import train

MISSING = "pip install 'sparring[openspiel]' adds OpenSpiel"
pyspiel = imported("pyspiel", MISSING)
bridge = imported("sparring.bridges.openspiel", MISSING)
policies = imported("open_spiel.python.policy", MISSING)
theirs = imported("open_spiel.python.algorithms.exploitability", MISSING)
scores = imported("open_spiel.python.algorithms.expected_game_score", MISSING)
loading = imported("sparring.bridges.openspiel_loading", MISSING)

SMALL = ["kuhn_poker", "leduc_poker", "liars_dice(dice_sides=4)", "kuhn_poker(players=3)"]


def tabular(game: Any, rows: dict[str, list[float]]) -> Any:
    """Our rows as OpenSpiel's policy, over the same information states."""
    table = policies.TabularPolicy(game.spiel)
    for state in table.states:
        player = state.current_player()
        where = table.policy_for_key(state.information_state_string())
        where[:] = 0
        for action, p in zip(state.legal_actions(), rows[game.key(state, player)], strict=True):
            where[action] = p
    return table


def random_rows(tree: Any, seed: int) -> list[list[float]]:
    rng = random.Random(seed)
    rows = [[rng.random() for _ in infoset.actions] for infoset in tree.infosets]
    return [[p / sum(row) for p in row] for row in rows]


@pytest.mark.parametrize(
    ("string", "nash_conv"),
    [("kuhn_poker", 0.9167), ("leduc_poker", 4.7472), ("liars_dice(dice_sides=4)", 1.3101)],
)
def test_uniform_play_has_the_known_nash_conv(string, nash_conv):
    tree = bridge.make_tree(load_game(f"openspiel:{string}", style="terse"))
    assert exploit(tree, uniform(tree)).nash_conv == pytest.approx(nash_conv, abs=5e-5)


@pytest.mark.parametrize("string", SMALL)
@pytest.mark.parametrize("kind", ["uniform", "random", "cfr"])
def test_best_responses_are_openspiels(string, kind):
    game = load_game(f"openspiel:{string}", style="terse")
    tree = bridge.make_tree(game)
    if kind == "cfr":
        if len(game.seats) > 2:
            return
        average = bridge.cfr_average(string, 3)
        rows = [average[infoset.key] for infoset in tree.infosets]
    else:
        rows = uniform(tree) if kind == "uniform" else random_rows(tree, 1)
    named = {i.key: row for i, row in zip(tree.infosets, rows, strict=True)}
    table = tabular(game, named)
    root = game.spiel.new_initial_state()
    want = theirs.nash_conv(game.spiel, table, return_only_nash_conv=False)
    found = exploit(tree, rows)
    assert found.nash_conv == pytest.approx(want.nash_conv, abs=1e-9)
    gains = [b - v for b, v in zip(found.best_responses, found.values, strict=True)]
    assert gains == pytest.approx(list(want.player_improvements), abs=1e-9)
    values = scores.policy_value(root, [table] * len(game.seats))
    assert found.values == pytest.approx(tuple(values), abs=1e-9)


@pytest.mark.parametrize("string", ["kuhn_poker", "leduc_poker"])
def test_a_mixture_is_the_policy_that_openspiel_aggregates(string):
    """Of a player who draws one of three policies before each game."""
    aggregator = pytest.importorskip("open_spiel.python.algorithms.policy_aggregator")
    game = load_game(f"openspiel:{string}", style="terse")
    tree = bridge.make_tree(game)
    keys = [infoset.key for infoset in tree.infosets]
    ours = [random_rows(tree, seed) for seed in range(3)]
    ours[1] = [[float(i == 0) for i, _ in enumerate(row)] for row in ours[1]]  # it never comes far
    weights = [0.5, 0.3, 0.2]
    whole = mixed(tree, ours, weights)
    tables = [tabular(game, dict(zip(keys, rows, strict=True))) for rows in ours]
    drawn = aggregator.PolicyAggregator(game.spiel).aggregate(
        range(2), [tables, tables], [weights, weights]
    )
    assert exploit(tree, whole).nash_conv == pytest.approx(
        theirs.nash_conv(game.spiel, drawn), abs=1e-9
    )


def test_more_of_cfr_is_less_exploitable():
    tree = bridge.make_tree(load_game("openspiel:kuhn_poker", style="terse"))
    few, many = (
        exploit(tree, [bridge.cfr_average("kuhn_poker", n)[i.key] for i in tree.infosets]).nash_conv
        for n in (5, 500)
    )
    assert many < few / 10 and many < 1e-3


def test_simultaneous_moves_are_a_tree_too():
    """OpenSpiel measures the game in which one moves after the other without seeing it."""
    game = load_game("openspiel:goofspiel(num_cards=3,imp_info=True)", style="terse")
    tree = bridge.make_tree(game)
    turns = pyspiel.convert_to_turn_based(game.spiel)
    want = theirs.nash_conv(turns, policies.UniformRandomPolicy(turns))
    assert exploit(tree, uniform(tree)).nash_conv == pytest.approx(want, abs=1e-9)


def jobs_of(name: str, count: int, seats: dict[str, str] | str = "random", **options: Any):
    game = load_game(name, **options)
    seating = dict.fromkeys(game.seats, seats) if isinstance(seats, str) else seats
    return [Job(str(i), name, game, game.task(i), i, seating) for i in range(count)]


async def nobody(request: Any) -> Turn:
    raise AssertionError("programs answer for themselves")


@pytest.mark.parametrize("style", ["terse", "short", "reason"])
@pytest.mark.parametrize(
    "string",
    [
        "kuhn_poker", "leduc_poker", "liars_dice", "tic_tac_toe", "connect_four", "matrix_rps",
        "goofspiel(num_cards=4)", "backgammon", "tiny_hanabi", "kuhn_poker(players=4)", "hanabi",
        "blotto", "pig", "oshi_zumo(horizon=5)", "first_sealed_auction",
    ],
)  # fmt: skip
def test_random_players_end_with_openspiels_returns(string, style):
    episodes = asyncio.run(collect(jobs_of(f"openspiel:{string}", 3, style=style), nobody))
    spiel = pyspiel.load_game(string)
    for episode in episodes:
        assert episode.void is None and episode.facts["end"] == "over"
        state = spiel.new_initial_state()
        moves = iter(episode.facts["moves"])
        while not state.is_terminal():
            if state.is_simultaneous_node():
                state.apply_actions([next(moves) for _ in range(spiel.num_players())])
            else:
                state.apply_action(next(moves))
        assert list(episode.rewards.values()) == state.returns()
        for turn in episode.turns:
            assert turn.prompt and "\n\n\n" not in turn.prompt


def test_no_prompt_of_a_hidden_game_tells_more_than_the_player_knows():
    """Prompts differ only where information states do."""
    for string in SMALL:
        for style in ("terse", "short"):
            tree = bridge.make_tree(load_game(f"openspiel:{string}", style=style))
            shown: dict[str, set[str]] = {}
            for infoset in tree.infosets:
                shown.setdefault(infoset.key, set()).add(infoset.prompt)
            assert all(len(prompts) == 1 for prompts in shown.values())
            assert len({(i.seat, i.prompt) for i in tree.infosets}) >= len(tree.infosets) / 4


def test_a_person_reads_words_and_what_the_codes_mean():
    game = load_game("openspiel:leduc_poker", style="terse")
    state = game.spiel.new_initial_state()
    for action in (0, 5, 2):  # a Jack, a King, a raise
        state.apply_action(action)
    view = View(game.position(state, 1), game.actions(state, 1))
    assert str(game.in_words(view)) == "Your card: King. First round: the other player raises."
    assert view.actions == ("f", "c", "r") and game.action_names(view) == ("fold", "call", "raise")


def test_an_illegal_action_costs_the_games_worst():
    async def rambles(request: Any) -> Turn:
        return Turn(request.seat, request.policy, "", "I would rather not")

    jobs = jobs_of("openspiel:leduc_poker", 2, {"first": "random", "second": "main"})
    for episode in asyncio.run(collect(jobs, rambles)):
        assert episode.rewards == {"first": 0.0, "second": -13.0}
        assert episode.facts["invalid"] == "second"


def test_the_perfect_player_never_loses_tic_tac_toe():
    game = load_game("openspiel:tic_tac_toe", style="terse")
    score, _ = asyncio.run(
        match("t", game, nobody, "perfect", "random", 40, sampling=Sampling(), seed=1)
    )
    assert score.losses == 0 and score.wins > 25


@pytest.mark.parametrize("string", ["leduc_poker", "connect_four"])
def test_the_scripted_player_beats_random_play(string, monkeypatch):
    monkeypatch.setattr("sparring.bridges.openspiel.CFR_ITERATIONS", 10)
    game = load_game(f"openspiel:{string}", style="terse")
    jobs = 200 if string == "leduc_poker" else 6
    _, episodes = asyncio.run(
        match("t", game, nobody, "scripted", "random", jobs, sampling=Sampling(), seed=1)
    )
    gains = [e.rewards[s] for e in episodes for s, who in e.seating.items() if who == "scripted"]
    assert sum(gains) / len(gains) > 0.4


def test_what_is_measured_is_what_a_player_is_asked():
    """A terse player of connect four is told the moves, and a board that several orders of them
    lead to is asked about in as many ways: 1,968 for 505 boards."""
    for style, states in (("terse", 1_968), ("short", 505)):
        game = load_game("openspiel:connect_four(rows=3,columns=3,x_in_row=3)", style=style)
        measured, asked = {infoset.prompt for infoset in game.tree().infosets}, set()

        def visit(state, game=game, asked=asked):
            if not state.is_terminal():
                asked.add(game.prompt(state, state.current_player()))
                for action in state.legal_actions():
                    visit(state.child(action))

        visit(game.spiel.new_initial_state())
        assert asked == measured and len(measured) == states


def test_of_three_players_one_may_fold_before_another_who_faces_the_bet():
    game = load_game("openspiel:kuhn_poker(players=3)", style="short")
    state = game.spiel.new_initial_state()
    for action in (0, 1, 2, 1, 0):  # the cards; the first bets, and the second folds
        state.apply_action(action)
    assert game.actions(state, 2) == ("fold", "call")


def test_an_unknown_game_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="leduc_poker"):
        load_game("openspiel:leduc_pokr")
    with pytest.raises(ConfigError, match="cannot load"):
        load_game("openspiel:leduc_poker(cards=7)")
    with pytest.raises(ConfigError, match="mean field"):
        load_game("openspiel:mfg_crowd_modelling")


def test_a_game_that_is_too_large_says_how_large():
    game = load_game("openspiel:connect_four", style="terse")
    assert game.tree() is None
    with pytest.raises(TreeTooLarge, match=r"more than 25,000 information states.*arena"):
        game.need_tree()


def test_a_game_that_goes_on_for_ever_is_void():
    jobs = jobs_of("openspiel:backgammon", 1, style="terse", cap=20)
    (episode,) = asyncio.run(collect(jobs, nobody))
    assert "more than 20 moves" in episode.void


def test_a_chance_node_without_outcomes_stops_no_run():
    """Go fish has such nodes: it can be played, and has no tree."""
    assert load_game("openspiel:go_fish", style="terse").tree() is None
    (episode,) = asyncio.run(collect(jobs_of("openspiel:go_fish", 1, style="terse"), nobody))
    assert episode.rewards or "no outcome of chance" in episode.void


def test_the_listing_names_what_can_be_played():
    found = loading.listing()
    assert len(found) > 90 and "leduc_poker" in found and "mfg_garnet" not in found


def test_what_openspiel_prints_about_a_game_is_one_line_of_the_log(capfd, caplog):
    loading.load_spiel("quoridor")
    assert capfd.readouterr().err == ""
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "OpenSpiel says of quoridor"
    ]
    caplog.clear()
    loading.load_spiel("kuhn_poker")
    assert not caplog.records


def test_a_missing_package_is_named_with_the_command_that_adds_it(monkeypatch):
    from importlib import util

    real = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda n, *a: None if n == "pyspiel" else real(n, *a))
    with pytest.raises(ConfigError, match=r"pip install 'sparring\[openspiel\]'"):
        load_game("openspiel:leduc_poker")


def test_a_run_learns_it_and_is_measured_exactly(tmp_path):
    from sparring.run.config import load_recipe

    config = load_recipe("openspiel:kuhn_poker", ["evaluate.final=0"], smoke=True)
    assert list(config.games) == ["openspiel:kuhn_poker"]
    seen: list[dict[str, float]] = []
    train(config, tmp_path / "run", progress=seen.append)
    last = [m for m in seen if "eval/openspiel:kuhn_poker/exploitability" in m][-1]
    assert 0 < last["eval/openspiel:kuhn_poker/exploitability"] < 2
    assert last["eval/openspiel:kuhn_poker/illegal_mass"] == pytest.approx(0, abs=1e-6)

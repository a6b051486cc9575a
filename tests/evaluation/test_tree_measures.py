"""Measures in Kuhn poker by the generic code: against brute force, with forfeits, from samples."""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import Counter
from typing import Any

import pytest
import torch

from sparring.core.answers import named
from sparring.core.game import Probe
from sparring.core.tree import Tree
from sparring.core.types import Request, Sampling, Turn, VoidGame
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.sampling import chances
from sparring.evaluation import best_response as solver
from sparring.evaluation.best_response import added, exploit, legal, observed, regrets
from sparring.evaluation.standard import evaluate
from sparring.evaluation.tree_measures import sample_replies, tree_measures
from sparring.games.kuhn import INFOSETS, KuhnPoker, nash
from sparring.games.tictactoe import TicTacToe, optimal, regret

# A strategy has the probabilities of check or fold and of bet or call; the rest is illegal.
Strategy = dict[str, tuple[float, float]]


def kuhn_tree(forfeit: float = 1.5) -> Tree:
    return KuhnPoker(style="terse", invalid=-forfeit).tree()


KEYS = [infoset.key for infoset in kuhn_tree().infosets]


def mixed(policy: dict[str, float]) -> Strategy:
    return {infoset: (1 - policy[infoset], policy[infoset]) for infoset in INFOSETS}


def rows(strategy: Any) -> list[Any]:
    return [strategy[key] for key in KEYS]


def best_response(strategy: Strategy, seat: int, forfeit: float = 1.5) -> float:
    return solver.best_response(kuhn_tree(forfeit), rows(strategy), seat)[0]


def exploitability(strategy: Strategy, forfeit: float = 1.5) -> float:
    return solver.exploit(kuhn_tree(forfeit), rows(strategy)).exploitability


def game_value(strategy: Strategy) -> float:
    return solver.exploit(kuhn_tree(), rows(strategy)).values[0]


def illegal_mass(strategy: Strategy) -> float:
    return solver.illegal_mass(rows(strategy))


def estimate(first: Any, second: Any) -> solver.Estimate:
    return solver.estimate(kuhn_tree(), rows(first), rows(second))


def kuhn_measures(game: KuhnPoker, probe: Probe) -> Any:
    return tree_measures(game.tree(), probe, zero_sum=True)


UNIFORM = dict.fromkeys(INFOSETS, 0.5)

# An independent account of Kuhn poker: all 64 pure strategies of a seat against the policy,
# the six ways a hand can go written out.

FIRST = ("J", "Q", "K", "Jpb", "Qpb", "Kpb")
SECOND = ("Jp", "Qp", "Kp", "Jb", "Qb", "Kb")


def by_hand(first, second):
    total = 0.0
    for a, b in itertools.permutations("JQK", 2):
        sign = 1 if "JQK".index(a) > "JQK".index(b) else -1
        bet, raised, called = first[a], second[b + "p"], second[b + "b"]
        total += bet * (called * 2 * sign + (1 - called))
        total += (1 - bet) * (1 - raised) * sign
        total += (1 - bet) * raised * (first[a + "pb"] * 2 * sign - (1 - first[a + "pb"]))
    return total / 6


def pure(infosets):
    return [dict(zip(infosets, p, strict=True)) for p in itertools.product((0, 1), repeat=6)]


def brute_force(policy):
    first = max(by_hand(strategy, policy) for strategy in pure(FIRST))
    second = max(-by_hand(policy, strategy) for strategy in pure(SECOND))
    return first, second


def test_the_uniform_policy_is_exploitable_by_what_brute_force_finds():
    first, second = brute_force(UNIFORM)
    assert best_response(mixed(UNIFORM), 0) == pytest.approx(first, abs=1e-12)
    assert best_response(mixed(UNIFORM), 1) == pytest.approx(second, abs=1e-12)
    assert exploitability(mixed(UNIFORM)) == pytest.approx(11 / 24, abs=1e-12)
    assert game_value(mixed(UNIFORM)) == pytest.approx(1 / 8, abs=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_any_policy_agrees_with_brute_force(seed):
    rng = random.Random(seed)
    draw = rng.random if seed % 2 else lambda: float(rng.random() < 0.5)
    policy = {infoset: draw() for infoset in INFOSETS}
    assert game_value(mixed(policy)) == pytest.approx(by_hand(policy, policy), abs=1e-12)
    assert exploitability(mixed(policy)) == pytest.approx(sum(brute_force(policy)) / 2, abs=1e-12)
    assert exploitability(mixed(policy)) > 0.005  # only an equilibrium has none


@pytest.mark.parametrize("alpha", [0, 0.1, 0.2, 1 / 3])
def test_every_equilibrium_has_none_and_the_value_of_the_game(alpha):
    policy = nash(alpha)
    assert set(policy) == set(INFOSETS) and len(INFOSETS) == 12
    assert exploitability(mixed(policy)) == pytest.approx(0, abs=1e-12)
    assert game_value(mixed(policy)) == pytest.approx(-1 / 18, abs=1e-12)
    assert best_response(mixed(policy), 0) == pytest.approx(-1 / 18)
    assert best_response(mixed(policy), 1) == pytest.approx(1 / 18)
    assert exploitability(mixed(policy | {"Q": 0.3})) > 0.001


def test_the_depth_of_calls_is_as_it_was() -> None:
    tree = KuhnPoker().tree()
    before = sys.getrecursionlimit()
    exploit(tree, [[0.5, 0.5]] * len(tree.infosets))
    assert sys.getrecursionlimit() == before


def test_what_is_illegal_costs_the_forfeit() -> None:
    """Who always forfeits loses 1.5 whenever it is its move: always as first, and always as second,
    where the first moves legally."""
    never = dict.fromkeys(INFOSETS, (0.0, 0.0))
    assert exploitability(never) == pytest.approx(1.5)
    assert exploitability(never, forfeit=4.0) == pytest.approx(4.0)
    assert illegal_mass(never) == 1 and legal(rows(never)) == [[0.5, 0.5]] * 12


def test_forfeits_in_one_place_by_hand() -> None:
    """An equilibrium that forfeits half the time where it holds the jack and moves first. Opposite
    it nothing is gained by other play: one hand in three it loses ½·1.5 more and ½ of what the
    jack would have lost, which in equilibrium (α = 0: it checks, and folds to a bet) is 1 chip."""
    policy = mixed(nash(0.0))
    spoiled = {**policy, "J": (0.5, 0.0)}
    assert exploitability(policy) == pytest.approx(0, abs=1e-12)
    more = best_response(spoiled, 1) - best_response(policy, 1)
    assert more == pytest.approx((0.5 * 1.5 - 0.5 * 1.0) / 3, abs=1e-12)
    assert best_response(spoiled, 0) == best_response(policy, 0)
    assert legal(rows(spoiled)) == [list(row) for row in rows(policy)]
    assert illegal_mass(spoiled) == pytest.approx(0.5 / 12)


def random_strategy(rng: random.Random) -> Strategy:
    found = {}
    for infoset in INFOSETS:
        a, b, c = (rng.random() for _ in range(3))
        found[infoset] = (a / (a + b + c), b / (a + b + c))
    return found


def with_forfeits(strategy: Any, pure_of: dict[str, int], seat: int) -> float:
    """The hand written out again, with forfeits: chips that `strategy` loses to a pure opponent."""
    total = 0.0
    for a, b in itertools.permutations("JQK", 2):
        sign = 1 if "JQK".index(a) > "JQK".index(b) else -1
        own = {i: (1.0 - c, float(c), 0.0) for i, c in pure_of.items()}
        whole = {i: (p, b, 1 - p - b) for i, (p, b) in strategy.items()}
        first, second = (own, whole) if seat == 0 else (whole, own)
        lost = sign if seat == 0 else -sign  # what the strategy loses at a showdown for one chip
        fold = 1 if seat == 0 else -1  # ... when the second folds
        p, b1, x = first[a]
        q, r, y = second[b + "p"]
        f, c, z = second[b + "b"]
        s, t, w = first[a + "pb"]
        total += 1.5 * x if seat == 1 else 0.0
        total += b1 * (c * 2 * lost + f * fold + (1.5 * z if seat == 0 else 0.0))
        total += p * (q * lost + (1.5 * y if seat == 0 else 0.0))
        total += p * r * (t * 2 * lost - s * fold + (1.5 * w if seat == 1 else 0.0))
    return total / 6


@pytest.mark.parametrize("seed", range(6))
def test_with_forfeits_it_agrees_with_brute_force(seed: int) -> None:
    strategy = random_strategy(random.Random(seed))
    for seat, infosets in ((0, FIRST), (1, SECOND)):
        worst = max(with_forfeits(strategy, choice, seat) for choice in pure(infosets))
        assert best_response(strategy, seat) == pytest.approx(worst, abs=1e-12)


def counted(strategy: Any, n: int, rng: random.Random) -> dict[str, tuple[int, int, int]]:
    found = {}
    for infoset in INFOSETS:
        p, b = strategy[infoset]
        kinds = Counter(rng.choices((0, 1, 2), (p, b, 1 - p - b), k=n))
        found[infoset] = (kinds[0], kinds[1], kinds[2])
    return found


def test_intervals_hold_the_truth() -> None:
    """At an equilibrium, where the plain figure can only be too high, and far from one."""
    rng, held, widths = random.Random(3), [], []
    for strategy in [mixed(nash(0.2)), mixed(UNIFORM), random_strategy(rng)] * 8:
        found = estimate(counted(strategy, 50, rng), counted(strategy, 50, rng))
        truth = exploitability(strategy)
        held.append(found.low - 1e-9 <= truth <= found.high + 1e-9)
        widths.append(found.high - found.low)
        assert found.low <= found.value <= found.high
    assert sum(held) >= 22 and max(widths) < 0.35  # of 24


def test_more_replies_are_surer_and_come_to_the_exact_figure() -> None:
    rng = random.Random(4)
    strategy = random_strategy(rng)
    few, many = (estimate(counted(strategy, n, rng), counted(strategy, n, rng)) for n in (20, 5000))
    assert many.high - many.low < (few.high - few.low) / 5
    assert many.value == pytest.approx(exploitability(strategy), abs=0.02)


class Bettor:
    """Reasons aloud, then bets or calls with a jack only; one time in ten it rambles."""

    def __init__(self, void: bool = False) -> None:
        self.asked: list[Request] = []
        self.void = void

    async def act(self, request: Request) -> Turn:
        self.asked.append(request)
        if self.void:
            raise VoidGame("no room")
        assert request.view is not None
        action = request.view.actions[request.view.state.startswith("J")]
        text = f"Let me think. A check is safe … so \\boxed{{{action}}}."
        if request.seed % 10 == 0:
            text = "Let me think for ever"
        return Turn(request.seat, request.policy, "", text, token_ids=[1], logprobs=[0.0])

    def probabilities(self, *args: Any) -> Any:
        raise AssertionError("what comes before an answer cannot be summed over")


def asked(engine: Any, sampling: Sampling, replies: int) -> Probe:
    return Probe("main", engine.act, sampling, engine.probabilities, replies)


@pytest.mark.parametrize(("style", "tokens"), [("reason", 2048), ("short", 4)])
def test_a_policy_that_says_more_than_a_token_is_sampled(style: str, tokens: int) -> None:
    engine, sampling = Bettor(), Sampling(temperature=0.7, top_p=0.9, max_tokens=2048)
    found, method = asyncio.run(kuhn_measures(KuhnPoker(style=style), asked(engine, sampling, 60)))
    assert len(engine.asked) == 12 * 60
    assert {r.sampling for r in engine.asked} == {Sampling(0.7, 0.9, 0, tokens)}
    assert method.startswith("estimated from 60 replies at each of 12 information states")
    honest = mixed({i: float(i.startswith("J")) for i in INFOSETS})
    assert found["illegal_mass"] == pytest.approx(0.1, abs=0.04)
    assert found["exploitability_legal"] == pytest.approx(exploitability(honest))
    spoiled = {i: (0.9 * p, 0.9 * b) for i, (p, b) in honest.items()}
    assert found["exploitability_low"] <= exploitability(spoiled) <= found["exploitability_high"]
    assert found["exploitability"] == pytest.approx(exploitability(spoiled), abs=0.15)


def test_where_nothing_could_be_said_nothing_is_measured() -> None:
    found, method = asyncio.run(kuhn_measures(KuhnPoker(), asked(Bettor(void=True), Sampling(), 4)))
    assert found == {} and method.startswith("not measured")


def test_one_token_is_read_off_the_model_as_the_game_reads_it(make_policies: Any) -> None:
    """Every token of the vocabulary, at the recipe's temperature, as the game reads it; and
    what is drawn agrees."""
    engine = TransformersEngine(make_policies("lora"))
    game, sampling = KuhnPoker(style="terse"), Sampling(temperature=0.5, max_tokens=1)
    found = engine.probabilities("main", game.tree().infosets, sampling)
    with torch.no_grad(), engine.policies.using("main") as model:
        ids = engine.chat.ids_of([{"role": "user", "content": "Qb"}])
        chance = (model(torch.tensor([ids])).logits[0, -1].double() / 0.5).softmax(-1)
    sums = Counter[Any]()
    for token, p in enumerate(chance.tolist()):
        sums[named(engine.chat.decode([token]), ("p", "b"))] += p
    assert found[KEYS.index("Qb")] == pytest.approx((sums[0], sums[1]), abs=1e-5)
    measures, method = asyncio.run(kuhn_measures(game, asked(engine, sampling, 1)))
    assert method == "exact, from the probability of every action at temperature 0.5"
    assert measures["exploitability"] == pytest.approx(
        exploitability(dict(zip(KEYS, found, strict=True)))
    )
    assert "exploitability_low" not in measures


def test_a_terse_game_that_reads_on_is_sampled(make_policies: Any) -> None:
    """A first token that is legal is not yet a legal reply: nano may go on."""
    engine = TransformersEngine(make_policies("lora"))
    game = KuhnPoker(style="terse", max_tokens=2)
    measures, method = asyncio.run(kuhn_measures(game, asked(engine, Sampling(), 2)))
    assert method.startswith("estimated") and "exploitability_high" in measures
    with pytest.raises(ValueError, match="2 tokens are too many"):
        engine.probabilities("main", game.tree().infosets, Sampling(max_tokens=2))


def test_the_score_that_ranks_charges_forfeits_and_both_figures_are_told(
    make_policies: Any,
) -> None:
    engine = TransformersEngine(make_policies("lora"))
    games = {"kuhn": KuhnPoker(style="terse")}
    found, _ = asyncio.run(evaluate(games, engine, count=2, sampling=Sampling()))
    exact = found["kuhn"]["exact"]
    assert {"exploitability", "exploitability_legal", "illegal_mass"} < set(exact)
    assert exact["illegal_mass"] > 0.9  # untrained: of its tokens two are legal
    assert exact["exploitability"] > 1.3 > exact["exploitability_legal"]
    assert found["kuhn"]["score"] == -exact["exploitability"]
    assert found["kuhn"]["method"].startswith("exact")


def test_the_chances_are_those_of_what_is_drawn() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    plain = torch.softmax(logits / 2, -1)[0].tolist()
    assert chances(logits, Sampling(temperature=2.0))[0].tolist() == pytest.approx(plain)
    assert chances(logits, Sampling(temperature=0.0))[0].tolist() == [1, 0, 0, 0]
    cut = chances(logits, Sampling(top_k=2))[0].tolist()
    assert cut[2:] == [0, 0] and sum(cut) == pytest.approx(1)
    assert cut[0] / cut[1] == pytest.approx(torch.e)


def test_what_rounding_leaves_is_no_illegal_mass() -> None:
    assert solver.illegal_mass([[0.1] * 10, [0.5, 0.5]]) == 0  # ten tenths are 1 - 1.1e-16
    assert solver.illegal_mass([[0.1] * 10, [0.5, 0.4]]) == pytest.approx(0.05)


def test_counts_are_shares() -> None:
    assert observed([(1, 2, 1)]) == [[0.25, 0.5]]


def test_masked_replies_of_several_tokens_are_exact(make_policies: Any) -> None:
    """What is read off the model is what is drawn, at every information state."""
    engine = TransformersEngine(make_policies("lora"))
    game, sampling = KuhnPoker(style="short"), Sampling(mask_actions=True)
    exact, method = asyncio.run(kuhn_measures(game, asked(engine, sampling, 1)))
    assert method.startswith("exact") and "among the legal actions" in method
    assert exact["illegal_mass"] == pytest.approx(0, abs=1e-9)
    tree = game.tree()
    found = engine.probabilities("main", tree.infosets, sampling)
    drawn = observed(
        added(*asyncio.run(sample_replies(tree, asked(engine, sampling, 150), sampling)))
    )
    for row, shares in zip(found, drawn, strict=True):
        assert sum(row) == pytest.approx(1) and shares == pytest.approx(row, abs=0.15)


def test_all_boards_of_tic_tac_toe_are_read_at_once(make_policies: Any) -> None:
    engine = TransformersEngine(make_policies("lora"))
    tree = TicTacToe(style="terse").tree()
    assert len(tree.infosets) == 4_520 and len(tree.nodes) == 5_478 and not tree.hidden
    found = engine.probabilities("main", tree.infosets, Sampling(max_tokens=1))
    for number in (0, 17, 4519):
        (alone,) = engine.probabilities("main", [tree.infosets[number]], Sampling(max_tokens=1))
        assert found[number] == pytest.approx(alone, abs=1e-6)
    perfect = [[float(int(a) == optimal(i.key)[0]) for a in i.actions] for i in tree.infosets]
    assert exploit(tree, perfect).nash_conv == 0
    assert sum(regrets(tree, perfect)) == 0
    spoiled = [row if any(row[1:]) else [0.5] + [0.0] * (len(row) - 1) for row in perfect]
    by_hand = [
        sum(p * regret(i.key, int(a)) for p, a in zip(row, i.actions, strict=True))
        + (1 - sum(row)) * regret(i.key, None)
        for i, row in zip(tree.infosets, spoiled, strict=True)
    ]
    assert regrets(tree, spoiled) == pytest.approx(by_hand)


def test_what_is_asked_twice_is_read_once(make_policies: Any) -> None:
    policies = make_policies("full")
    engine, read = TransformersEngine(policies), []
    with policies.using("main") as model:
        model.register_forward_pre_hook(
            lambda _, args, given: read.append(len(given["input_ids"])), with_kwargs=True
        )
    infosets = kuhn_tree().infosets
    once = engine.probabilities("main", infosets, Sampling(max_tokens=1))
    thrice = engine.probabilities("main", [*infosets, *infosets[::-1]] * 2, Sampling(max_tokens=1))
    assert thrice == [*once, *once[::-1]] * 2
    assert len(read) > 1 and sum(read) == 2 * len(infosets)

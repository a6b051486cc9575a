"""Action masking: only legal actions are drawn, and the learner renormalises as the engine did."""

import asyncio
import math

import pytest
import torch

from sparring.core.collect import Job, collect
from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling, Turn, View
from sparring.credit.samples import join
from sparring.engines.local.engine import TransformersEngine
from sparring.engines.local.sampling import Trie, mask_logits
from sparring.learn.batches import collate
from sparring.learn.learner import Learner
from sparring.run.config import LearnConfig, load_recipe
from sparring.run.games import load_game
from sparring.run.rundir import read_lines
from sparring.training.loop import train

ACTIONS = ("bet", "be", "call")  # one is a prefix of another


def ask(number: int, actions: tuple[str, ...] = ACTIONS, **sampling) -> Request:
    return Request(
        "s", "main", [{"role": "user", "content": "Qpb"}],
        Sampling(max_tokens=1, mask_actions=True, **sampling), seed=number, order=(number,),
        view=View(None, actions),
    )  # fmt: skip


def answers(engine: TransformersEngine, requests: list[Request]) -> list[Turn]:
    async def all_at_once() -> list[Turn]:
        return list(await asyncio.gather(*(engine.act(r) for r in requests)))

    return asyncio.run(all_at_once())


def sequence_logprob(engine: TransformersEngine, turn: Turn, text: str) -> float:
    """Worked out apart, with plain forward passes: each byte among those that a legal action may
    go on with, and after `be` the end among them."""
    end = engine.chat.end_id
    ids = {action: [*engine.chat.encode(action), end] for action in ACTIONS}
    total, said = 0.0, list[int]()
    while said != ids[text]:
        after = {i[len(said)] for i in ids.values() if i[: len(said)] == said}
        with torch.no_grad(), engine.policies.using("main") as model:
            logits = model(torch.tensor([turn.prompt_ids + said])).logits[0, -1]
        token = ids[text][len(said)]
        total += float(logits[token] - logits[sorted(after)].logsumexp(-1))
        said.append(token)
    return total


@pytest.fixture(params=[None, False], ids=["eager", "plain"])
def engine(request, policies) -> TransformersEngine:
    return TransformersEngine(policies, graphs=request.param)


def test_a_trie_names_what_may_come_next():
    trie = Trie([(5, 6, 7), (5, 6), (8,)], end=1)
    assert trie.allowed() == [5, 8]
    assert trie.allowed((5, 6)) == [7, 1]
    assert trie.allowed((8,)) == trie.allowed((5, 6, 1)) == trie.allowed((5, 6, 7)) == []
    assert trie.depth == 3


def test_logits_outside_the_mask_are_minus_infinity():
    logits = torch.arange(8.0).view(2, 4)
    masked = mask_logits(logits, [[1, 2], []])
    assert masked.tolist() == [[-math.inf, 1.0, 2.0, -math.inf], [4.0, 5.0, 6.0, 7.0]]
    assert mask_logits(logits, [[], []]) is logits


def test_only_legal_actions_are_drawn_with_their_renormalised_logprobs(engine):
    turns = answers(engine, [ask(i) for i in range(40)])
    assert {turn.text for turn in turns} == set(ACTIONS)
    for turn in turns:
        want = sequence_logprob(engine, turn, turn.text)
        assert sum(turn.logprobs) == pytest.approx(want, abs=1e-4)
        assert turn.finish == "stop" and len(turn.allowed) == len(turn.token_ids)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_learner_has_the_engines_logprobs(engine, temperature):
    masked = answers(engine, [ask(i, temperature=temperature) for i in range(6)])
    free = ask(7, temperature=temperature)
    free.sampling = Sampling(max_tokens=3, temperature=temperature)
    turns = [*masked, *answers(engine, [free])]
    learner = Learner(engine.policies, ["main"], LearnConfig())
    samples = [sample for turn in turns for sample in join([(turn, 1.0)])]
    batch = collate(samples, 0, "cpu")
    with engine.policies.using("main") as model:
        logprobs, entropy = learner.logprobs(model, batch)
        (logprobs.sum() + entropy.sum()).backward()
        gradients = [p.grad for p in engine.policies.parameters("main").values()]
    wanted = torch.tensor([x for turn in turns for x in turn.logprobs])
    assert torch.allclose(logprobs, wanted, atol=1e-4)
    assert torch.isfinite(entropy).all()
    assert all(g is None or torch.isfinite(g).all() for g in gradients)


def test_the_masked_entropy_is_that_of_the_legal_actions(engine):
    turn = answers(engine, [ask(0, ("p", "b"))])[0]
    (sample,) = join([(turn, 1.0)])
    learner = Learner(engine.policies, ["main"], LearnConfig())
    with torch.no_grad(), engine.policies.using("main") as model:
        _, entropy = learner.logprobs(model, collate([sample], 0, "cpu"))
        logits = model(torch.tensor([turn.prompt_ids])).logits[0, -1]
    two = logits[[engine.chat.encode(text)[0] for text in "pb"]].softmax(-1)
    assert float(entropy) == pytest.approx(float(-(two * two.log()).sum()), abs=1e-5)


def test_nobody_forfeits_a_masked_game(make_policies):
    game = load_game("kuhn", style="terse")
    jobs = [
        Job(str(i), "kuhn", game, game.task(i), i, dict.fromkeys(game.seats, "main"))
        for i in range(30)
    ]
    engine = TransformersEngine(make_policies("lora"))
    episodes = asyncio.run(
        collect(jobs, engine.act, sampling=Sampling(max_tokens=1, mask_actions=True))
    )
    assert not any("invalid" in episode.facts for episode in episodes)


def test_a_game_that_names_no_actions_cannot_be_masked(engine):
    with pytest.raises(ConfigError, match="no legal actions"):
        answers(engine, [ask(0, ())])


def test_a_masked_run_learns_with_the_canary_quiet(tmp_path):
    config = load_recipe("kuhn", ["sampling.mask_actions=true", "canary=0.001"], smoke=True)
    train(config, tmp_path / "run")
    canaries = [line["learn/canary"] for line in read_lines(tmp_path / "run/metrics.jsonl")]
    assert len(canaries) == 3 and max(canaries) < 0.001  # one that did not mask is off by nats


def test_other_engines_refuse(tmp_path):
    config = load_recipe("kuhn", ["sampling.mask_actions=true", "engine.kind=vllm"], smoke=True)
    with pytest.raises(ConfigError, match="embedded engine"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()

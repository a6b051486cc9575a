"""Several adapters in one batch: their voices, their positions, and what is refused."""

import asyncio

import pytest
from test_runner import OPENINGS, digits, runner_of, same, talk

from sparring.engines.local.engine import TransformersEngine


def test_adapters_share_a_batch_and_keep_their_voices(make_policies):
    policies = make_policies("lora", ("main", "rival"), spread=0.1)
    names = ("main", "rival", "base")
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 2, names))
    engine = TransformersEngine(policies)
    runner, passes = runner_of(engine), list[int]()
    decode = runner._decode
    runner._decode = lambda rows, steps: passes.append(len(rows)) or decode(rows, steps)
    same(asyncio.run(talk(engine, 2, names)), plain)
    assert passes == [len(OPENINGS)] * 10, "after the first token, five for each turn"


def test_adapters_keep_their_positions_when_weights_move(make_policies):
    """With another number of adapters every step is captured and timed anew."""
    policies = make_policies("lora", ("main", "rival"), spread=0.1)
    engine = TransformersEngine(policies)
    runner = runner_of(engine)
    asyncio.run(talk(engine, 1, ("main", "rival")))
    counts, forget = list[list[str]](), runner._counts.forget
    runner._counts.forget = lambda: counts.append(list(runner._adapters)) or forget()
    for names in (("main", "rival"), ("rival", "main"), ("main", "third"), ("third",), ("third",)):
        if "third" in names and "rival" in policies.names():
            policies.remove("rival")
            policies.add("third", "main")
        engine.publish()
        for name in names:  # one after another, as the turns of a game
            plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 1, (name,)))
            same(asyncio.run(talk(engine, 1, (name,))), plain)
    assert counts == [["third"]], "once, when nobody had asked for the other for a whole round"


def test_adapters_that_were_asked_for_in_vain_have_no_positions(make_policies):
    """Weights move before anything was computed with them: their requests were refused."""
    policies = make_policies("lora", ("main", "rival"), spread=0.1)
    engine = TransformersEngine(policies)
    runner = runner_of(engine)
    for name in ("main", "rival"):
        runner.adapter(name, (0, 0))
    runner.drop_cache()
    plain = asyncio.run(talk(TransformersEngine(policies, graphs=False), 1, ("rival",)))
    same(asyncio.run(talk(engine, 1, ("rival",))), plain)


def test_an_adapter_of_another_rank_is_refused_and_nothing_moves(make_policies):
    from sparring.models.loading import load_model
    from sparring.models.policies import LoraPolicies

    policies = make_policies("lora", ("main", "rival"))
    wide = LoraPolicies(*load_model("nano"), r=8, alpha=8)
    wide.add("main")
    engine = TransformersEngine(policies)
    before = asyncio.run(talk(engine, 1, ("main", "rival")))
    with pytest.raises(ValueError, match=r"lora_A.* is \(8, 192\) there and \(4, 192\) here"):
        policies.load("main", wide.state("main"))
    assert digits(asyncio.run(talk(engine, 1, ("main", "rival")))) == digits(before)

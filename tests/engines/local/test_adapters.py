"""Several adapters in one batch: their voices, their positions, and what is refused."""

import asyncio

import pytest
import torch
import torch.nn.functional as F
from test_runner import OPENINGS, digits, runner_of, same, talk

from sparring.engines.local import decoder, row_counts
from sparring.engines.local.decoder import CPU_ADAPTER_ROWS, in_pieces
from sparring.engines.local.engine import TransformersEngine
from sparring.models.policies import slot_name


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
    assert counts == [[slot_name("third")]], (
        "once, when nobody had asked for the other for a whole round"
    )


@pytest.mark.parametrize(("inputs", "outputs"), [(128, 4), (4, 384), (1536, 8), (16, 3072)])
def test_a_row_of_an_adapters_product_has_the_same_bits_among_any_number(inputs, outputs):
    """MKL's thin products do not, on some processors: fewer than 16 rows, more than 370."""
    step, most = CPU_ADAPTER_ROWS
    torch.manual_seed(0)
    x, weight = torch.randn(1024, inputs), torch.randn(outputs, inputs)
    whole = in_pieces(x, weight, step, most)
    for rows in (1, 4, 8, 12, 13, 40, 100, 300, 380, 384, 500, 700, 1000):
        assert torch.equal(in_pieces(x[:rows], weight, step, most), whole[:rows]), rows


def test_the_trial_of_numbers_of_rows_sees_adapters_that_have_not_learned_yet(
    make_policies, monkeypatch
):
    """They are zero, and what a library does to them would not show until they have."""
    policies = make_policies("lora", ("main", "rival"), spread=0)
    runner = runner_of(TransformersEngine(policies))
    runner.adapter(slot_name("main"), (0, 0))

    def rounds_otherwise(x, weight, step, most):
        return F.linear(x, weight) * (1 + 1e-6 * (len(x) == 8))

    runner._prepare()
    whole = runner._counts.padded(1)
    assert runner.row_invariant and not any(up.any() for _, up in adapters_of(runner))
    monkeypatch.setattr(decoder, "in_pieces", rounds_otherwise)
    row_counts._invariant_step.cache_clear()
    runner._counts.forget()
    runner._counts.find()
    assert runner._counts.padded(1) == max(whole, 16), "eight rows are no longer computed"
    row_counts._invariant_step.cache_clear()


def adapters_of(runner):
    return [pair for layer in runner.decoder.layers for pair in layer.qkv.adapters]


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


def test_a_policy_that_is_gone_is_in_nobodys_way(make_policies):
    """It was asked, and removed before weights moved: another policy is laid out beside it."""
    policies = make_policies("lora", ("main", "other"), spread=0.1)
    engine = TransformersEngine(policies)
    asyncio.run(talk(engine, 1, ("main", "other")))
    policies.remove("other")
    policies.add("third", source="main")
    third = asyncio.run(talk(engine, 1, ("third",)))
    same(third, asyncio.run(talk(TransformersEngine(policies, graphs=False), 1, ("third",))))


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

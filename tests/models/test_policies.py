"""Named sets of weights: kept apart, copied exactly, refused when they do not fit."""

import pytest
import torch
from peft import set_peft_model_state_dict

from sparring.models.loading import load_model
from sparring.models.policies import LoraPolicies, load_policies, slot_name
from sparring.run.config import LearnConfig

IDS = torch.tensor([[3, 60, 70, 80]])


def logits(policies, name: str) -> torch.Tensor:
    with torch.no_grad(), policies.using(name) as model:
        return model(IDS).logits[0, -1].clone()


def test_each_name_speaks_with_its_own_weights(policies):
    policies.add("other")
    base, main, other = (logits(policies, n) for n in ("base", "main", "other"))
    assert policies.names() == ["base", "main", "other"]
    assert (main - base).abs().max() > 1e-3
    torch.testing.assert_close(other, base)  # a fresh policy begins as the base
    torch.testing.assert_close(logits(policies, "main"), main)


def test_a_copy_is_exact_and_then_its_own(policies):
    policies.set_version("main", 7)
    policies.add("twin", "main")
    assert policies.version("twin") == 7
    before = logits(policies, "main")
    assert torch.equal(logits(policies, "twin"), before)
    with torch.no_grad():
        for parameter in policies.parameters("twin").values():
            parameter.add_(0.05)
    assert torch.equal(logits(policies, "main"), before)
    assert not torch.equal(logits(policies, "twin"), before)


def test_parameters_are_those_of_the_name_alone(make_policies):
    """A policy may bear the name of a part of the model."""
    policies = make_policies("lora", ("main", "layers"))
    main, layers = policies.parameters("main"), policies.parameters("layers")
    assert set(main) == set(layers)
    layers_of_nano = policies.config.num_hidden_layers
    assert len(main) == layers_of_nano * 7 * 2  # linear maps in each, A and B
    assert not {id(p) for p in main.values()} & {id(p) for p in layers.values()}


def test_a_dot_in_a_name_is_fine(policies):
    policies.add("run.1@20", "main")
    assert torch.equal(logits(policies, "run.1@20"), logits(policies, "main"))
    assert policies.parameters("run.1@20").keys() == policies.parameters("main").keys()


@pytest.mark.parametrize("name", ["norm", "base_layer", "train"])
def test_a_name_that_the_model_has_a_part_of_is_fine(make_policies, name):
    policies = make_policies("lora")
    policies.add("other")
    policies.add(name)
    assert set(policies.parameters(name)) == set(policies.parameters("other"))


def test_state_and_load_round_trip(policies):
    saved = {key: value.clone() for key, value in policies.state("main").items()}
    before = logits(policies, "main")
    policies.add("fresh")
    policies.load("fresh", saved)
    assert torch.equal(logits(policies, "fresh"), before)


def test_removing_leaves_the_others_alone(policies):
    policies.add("other", "main")
    base, main = logits(policies, "base"), logits(policies, "main")
    logits(policies, "other")  # in use last, so that the one in use is the one removed
    policies.remove("other")
    assert policies.names() == ["base", "main"]
    assert torch.equal(logits(policies, "base"), base)
    assert torch.equal(logits(policies, "main"), main)
    policies.remove("main")
    assert torch.equal(logits(policies, "base"), base)
    policies.add("main")
    torch.testing.assert_close(logits(policies, "main"), base)


def test_what_cannot_be_done_is_refused_in_words(policies):
    for wrong in (
        lambda: policies.remove("nobody"),
        lambda: policies.add("new", "nobody"),
        lambda: policies.parameters("nobody"),
        lambda: policies.state("nobody"),
        lambda: logits(policies, "nobody"),
    ):
        with pytest.raises(ValueError, match="no policy 'nobody'; there are: base, main"):
            wrong()
    with pytest.raises(ValueError, match="'main' already"):
        policies.add("main")
    with pytest.raises(ValueError, match="'base' is what all others stand on"):
        policies.remove("base")
    assert policies.names() == ["base", "main"]


def test_an_unknown_name_is_refused_before_there_is_any_adapter(make_policies):
    with pytest.raises(ValueError, match="no policy 'mian'"):
        logits(make_policies("lora", ()), "mian")


def test_weights_of_another_model_are_refused_and_nothing_is_touched(policies):
    before = logits(policies, "main")
    state = {key: value + 1 for key, value in policies.state("main").items()}
    last = list(state)[-1]
    with pytest.raises(ValueError, match=r"another model: .* is \(3, 3\) there"):
        policies.load("main", {**state, last: torch.zeros(3, 3)})
    with pytest.raises(ValueError, match="another model: extra differ"):
        policies.load("main", {**state, "extra": torch.zeros(1)})
    state.pop(last)
    with pytest.raises(ValueError, match="another model"):
        policies.load("main", state)
    assert torch.equal(logits(policies, "main"), before)


def test_an_adapter_travels_in_pefts_own_names(make_policies):
    ours, theirs = make_policies("lora"), make_policies("lora", ())
    config, state = ours.adapter("main")
    assert config.r == 4
    theirs.add("main")
    set_peft_model_state_dict(theirs._peft, state, adapter_name=slot_name("main"))
    torch.testing.assert_close(logits(theirs, "main"), logits(ours, "main"))


def test_a_new_adapter_is_random_by_seed_and_name_alone():
    def fresh(seed: int, *names: str) -> torch.Tensor:
        policies = LoraPolicies(*load_model("nano"), r=4, seed=seed)
        for name in names:
            policies.add(name)
        return torch.cat([p.flatten() for p in policies.state(names[-1]).values()])

    torch.manual_seed(1)
    one = fresh(0, "main")
    torch.manual_seed(2)
    assert torch.equal(fresh(0, "rival", "main"), one)
    assert not torch.equal(fresh(1, "main"), one)
    assert not torch.equal(fresh(0, "rival"), one)


def test_adapters_on_a_low_precision_base_are_float32():
    model, tokenizer = load_model("nano", dtype="bfloat16")
    policies = LoraPolicies(model, tokenizer, r=4)
    policies.add("main")
    policies.add("other", "main")
    for name in ("main", "other"):
        assert {p.dtype for p in policies.parameters(name).values()} == {torch.float32}


def test_the_first_policy_takes_the_bases_weights_and_the_base_is_loaded_again_when_asked():
    policies = load_policies("nano", LearnConfig(weights="full"), seed=3)
    with policies.using("base") as model:
        addresses = [p.data_ptr() for p in model.parameters()]
    base = logits(policies, "base")
    policies.add("main")
    assert [p.data_ptr() for p in policies.parameters("main").values()] == addresses
    with torch.no_grad():
        for parameter in policies.parameters("main").values():
            parameter.add_(0.05)
    assert list(policies._models) == ["main"]
    policies.add("other")
    for name in ("base", "other"):
        assert torch.equal(logits(policies, name), base)
    assert not torch.equal(logits(policies, "main"), base)
    twin = policies.twin()
    policies.remove("main")
    policies.remove("other")
    policies.add("main")
    assert torch.equal(logits(policies, "main"), base)
    assert not torch.equal(logits(twin, "main"), base)

"""Fused adapters compute what peft's own layers compute, and keep their input once; a quantized
base gives the gradients of the weights that it stands for."""

import sys

import pytest
import torch
from peft.tuners.lora import Linear
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from sparring.core.errors import ConfigError
from sparring.engines.local.decoder import unsupported
from sparring.learn.activation_checkpointing import recomputing
from sparring.models import lora
from sparring.models.loading import nano_tokenizer
from sparring.models.lora import AdaptedLinear
from sparring.models.policies import LoraPolicies, wrap_model
from sparring.models.quantized import QuantizedLinear
from sparring.run.config import LearnConfig

SIZE = {
    "vocab_size": 261,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
IDS = torch.arange(51).reshape(3, 17) * 5 % 261


def make(kind: str = "llama", **options: object) -> LoraPolicies:
    """Two layers with two adapters, one of which is at work."""
    torch.manual_seed(0)
    model = (
        LlamaForCausalLM(LlamaConfig(**SIZE))
        if kind == "llama"
        else Qwen2ForCausalLM(Qwen2Config(**SIZE))  # whose q, k and v have biases
    )
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    policies = wrap_model(model, nano_tokenizer(), LearnConfig(lora_r=4, **options))
    assert isinstance(policies, LoraPolicies)
    for name in ("main", "other"):
        policies.add(name)
        for weight in policies.parameters(name).values():
            nn.init.normal_(weight, std=0.1)
    return policies


def gradients(policies: LoraPolicies, *, again: bool = False) -> dict[str, torch.Tensor]:
    """Logits and gradients of one pass, with the dropout of one seed."""
    parameters = policies.parameters("main")
    for weight in parameters.values():
        weight.grad = None
    torch.manual_seed(1)
    with policies.fitting("main") as model:
        if again:
            with recomputing(model):
                logits = model(IDS).logits
        else:
            logits = model(IDS).logits
        logits.sin().sum().backward()
    return {"logits": logits.detach()} | {k: w.grad.clone() for k, w in parameters.items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys() and len(one) == 1 + 2 * 2 * 7
    for key, value in one.items():
        largest = float(value.abs().max())
        assert largest > 0.01
        torch.testing.assert_close(value, other[key], rtol=1e-3, atol=1e-4 * largest, msg=key)


DROPOUT = pytest.mark.parametrize("dropout", [0.0, 0.3])


@DROPOUT
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_values_and_gradients_are_those_of_peft(monkeypatch, kind, dropout):
    """Under dropout too: from one seed both draw the same masks, on a CPU."""
    policies = make(kind, lora_dropout=dropout)
    calls = []
    apply = lora._Products.apply
    monkeypatch.setattr(
        lora._Products, "apply", lambda x, p, s, *t: calls.append(s) or apply(x, p, s, *t)
    )
    fused = gradients(policies)
    # q, k and v; o; gate and up; down: four functions a layer.
    assert [len(specs) for specs in calls] == [3, 1, 2, 1] * 2
    checkpointed = gradients(policies, again=True)
    assert_same(fused, checkpointed)
    monkeypatch.setattr(AdaptedLinear, "forward", Linear.forward)
    calls.clear()
    assert_same(fused, gradients(policies))
    assert not calls


@DROPOUT
def test_a_compiled_layer_adds_in_place_and_computes_the_same(dropout):
    policies = make(lora_dropout=dropout)
    plain = gradients(policies)
    graphs = list[torch.fx.GraphModule]()

    def keep(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        from functorch.compile import make_boxed_func

        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    with policies.using("main") as model:
        for layer in model.base_model.layers[:1]:
            layer.forward = torch.compile(layer.forward, backend=backend)
    assert_same(plain, gradients(policies))
    calls = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert any("auto_functionalized" in call for call in calls)
    assert not any("addmm" in call for call in calls), "which copies what it adds to"


@DROPOUT
def test_an_input_is_kept_once_and_not_in_the_dtype_of_the_adapter(monkeypatch, dropout):
    policies = make(lora_dropout=dropout)
    for weight in policies.parameters("main").values():
        weight.data = weight.data.double()  # wider than the base, as float32 is beside bfloat16

    def kept() -> int:
        """Bytes that a forward pass keeps for the backward pass, besides weights."""
        seen = {}
        weights = {p.untyped_storage().data_ptr() for p in policies._base.parameters()}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                seen[storage.data_ptr()] = storage  # held, so that no address is used again
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor)
        with hooks, policies.fitting("main") as model:
            embeds = model.get_input_embeddings()(IDS).requires_grad_()  # as if captured
            model(inputs_embeds=embeds).logits.sum()
        return sum(storage.nbytes() for storage in seen.values())

    few, fused = kept(), gradients(policies)
    monkeypatch.setattr(AdaptedLinear, "forward", Linear.forward)
    # Of two layers, by position: peft widens the inputs of q, k, v, o, gate and up, and of down;
    # here those of q, of o, of gate and of down are kept. Under dropout peft keeps the noise and
    # what it left of the input, both wide; here a mask for each layer, a byte by number.
    wide, narrow = 8 * (6 * 64 + 96), 4 * (3 * 64 + 96)
    if dropout:
        wide, narrow = 2 * wide, narrow + 6 * 64 + 96
    assert few + 2 * IDS.numel() * (wide - narrow) <= kept()
    assert_same(fused, gradients(policies))


def test_dropout_is_at_work_in_fitting_only_and_each_adapter_is_its_own():
    policies = make(lora_dropout=0.5)
    with torch.no_grad():
        with policies.using("main") as model:
            main = model(IDS).logits
        with policies.using("other") as model:
            other = model(IDS).logits
        with policies.using("base") as model:
            base = model(IDS).logits
        with policies.fitting("main") as model:
            dropped = [model(IDS).logits for _ in range(2)]
    plain = make()
    with torch.no_grad(), plain.using("main") as model:
        torch.testing.assert_close(model(IDS).logits, main)
    assert len({float(x.sum()) for x in (main, other, base, *dropped)}) == 5


def test_each_layer_drops_its_inputs_apart_with_the_moments_of_inverted_dropout():
    policies, rate, rows = make(lora_dropout=0.3), 0.3, 4000
    torch.manual_seed(0)
    with torch.no_grad(), policies.fitting("main") as model:
        attention = model.get_decoder().layers[0].self_attn
        x_I = torch.randn(64)
        x_NI = x_I.expand(rows, -1)
        q_NO, k_NO = attention.q_proj(x_NI), attention.k_proj(x_NI)
        model.eval()
        # An output is a sum over inputs, each there with its own chance: the mean is the output
        # without dropout, and each input adds rate / (1 - rate) times its square to the variance.
        for y_NO, layer in ((q_NO, attention.q_proj), (k_NO, attention.k_proj)):
            name = layer.active_adapters[0]
            delta_OI = layer.scaling[name] * layer.lora_B[name].weight @ layer.lora_A[name].weight
            variance_O = rate / (1 - rate) * (delta_OI * x_I).square().sum(1)
            error_O = (y_NO.mean(0) - Linear.forward(layer, x_I)) / (variance_O / rows).sqrt()
            assert float(error_O.abs().max()) < 4.5
            torch.testing.assert_close(y_NO.var(0), variance_O, rtol=0.15, atol=0)
        together = torch.corrcoef(torch.cat([q_NO, k_NO], 1).T)[: q_NO.shape[1], q_NO.shape[1] :]
        assert float(together.abs().max()) < 5 / rows**0.5


def test_layers_that_are_given_different_inputs_are_computed_apart():
    policies = make()
    with torch.no_grad(), policies.using("main") as model:
        attention = model.get_decoder().layers[0].self_attn
        x, z = torch.randn(2, 5, 64)
        expected = Linear.forward(attention.k_proj, z)
        attention.q_proj(x)
        torch.testing.assert_close(attention.k_proj(z), expected)
        again = Linear.forward(attention.v_proj, x)
        torch.testing.assert_close(attention.v_proj(x), again)


def plain_twin(policies: LoraPolicies) -> None:
    """Whole weights in the place of the quantized ones."""
    for layer in policies._base.modules():
        if isinstance(layer, AdaptedLinear):
            layer.base_layer = layer.base_layer.whole()


BITS = ["8bit", "4bit"]


@DROPOUT
@pytest.mark.parametrize("bits", BITS)
def test_a_quantized_base_gives_the_gradients_of_what_it_stands_for(monkeypatch, bits, dropout):
    need(bits)
    policies = make("qwen2", quantize=bits, lora_dropout=dropout)
    layers = [m for m in policies._base.modules() if isinstance(m, QuantizedLinear)]
    assert len(layers) == 2 * 7
    whole = make("qwen2")
    error = [
        float((q.weight - p.base_layer.weight).norm() / p.base_layer.weight.norm())
        for q, p in zip(
            layers,
            [m for m in whole._base.modules() if isinstance(m, AdaptedLinear)],
            strict=True,
        )
    ]
    assert 0 < max(error) < {"8bit": 0.01, "4bit": 0.11}[bits]
    size = sum(p.numel() * p.element_size() for m in layers for p in (m.codes, m.scales))
    assert size < {"8bit": 0.28, "4bit": 0.16}[bits] * sum(4 * m.weight.numel() for m in layers)
    assert "quantized" in unsupported(policies._base)
    fused = gradients(policies)
    with monkeypatch.context() as patch:  # peft's own layers on the quantized ones
        patch.setattr(AdaptedLinear, "forward", Linear.forward)
        assert_same(fused, gradients(policies))
    plain_twin(policies)
    assert_same(fused, gradients(policies))


@pytest.mark.parametrize("bits", BITS)
def test_an_adapter_is_folded_into_the_weights_it_was_learned_on(bits):
    need(bits)
    policies = make(quantize=bits)
    with torch.no_grad(), policies.using("main") as model:
        before = model(IDS).logits
    merged = policies.merged("main")
    assert not any(isinstance(m, QuantizedLinear | AdaptedLinear) for m in merged.modules())
    with torch.no_grad():
        torch.testing.assert_close(merged(IDS).logits, before, rtol=1e-4, atol=1e-4)


def test_a_twin_shares_the_quantized_base():
    policies = make(quantize="8bit")
    twin = policies.twin()
    own, other = (
        next(m for m in p._base.modules() if isinstance(m, QuantizedLinear))
        for p in (policies, twin)
    )
    assert own is not other and own.codes.data_ptr() == other.codes.data_ptr()


def test_what_cannot_be_quantized_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(ConfigError, match=r"needs bitsandbytes.*pip install"):
        make(quantize="4bit")
    for odd in ({"weights": "full"}, {"shard": True}):
        with pytest.raises(ValueError, match="frozen base of adapters"):
            LearnConfig(quantize="8bit", **odd)


def need(bits: str) -> None:
    if bits == "4bit":
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: sparring[8bit]")

"""What vLLM's worker says of the weights it has, on adapters in the shape that vLLM keeps them in;
`test_vllm_real.py` asks vLLM's own."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sparring.engines.vllm_worker import LoadedWeights
from sparring.models.export import export_policy


def worker_of(adapters: dict[int, Any], model: Any = None) -> LoadedWeights:
    worker = LoadedWeights()
    manager = SimpleNamespace(_registered_adapters=adapters)
    lora = SimpleNamespace(_adapter_manager=manager)
    worker.model_runner = SimpleNamespace(lora_manager=lora, get_model=lambda: model)
    return worker


def loaded(state: dict[str, torch.Tensor], scale: float) -> Any:
    """An adapter as vLLM has it: the matrices of a fused layer in lists, scaled already."""
    layers: dict[str, list[str]] = {}
    for key in state:
        name = key.removesuffix(".lora_A.weight")
        if name != key:
            fused = name.replace("q_proj", "qkv").replace("k_proj", "qkv").replace("v_proj", "qkv")
            layers.setdefault(fused, []).append(name)
    loras = {}
    for fused, names in layers.items():
        downs = [state[f"{name}.lora_A.weight"].clone() for name in names]
        ups = [state[f"{name}.lora_B.weight"].clone() for name in names]
        if len(names) > 1:
            ups, scales = [up * scale for up in ups], [1] * len(names)
            loras[fused] = SimpleNamespace(lora_a=downs, lora_b=ups, scaling=scales)
        else:
            loras[fused] = SimpleNamespace(lora_a=downs[0], lora_b=ups[0], scaling=scale)
    return SimpleNamespace(loras=loras)


def test_an_adapter_with_other_weights_is_noticed(make_policies, tmp_path) -> None:
    policies = make_policies("lora")
    export_policy(policies, "main", "nano", tmp_path)
    _, state = policies.adapter("main")
    adapter = loaded(state, scale=2.0)
    worker = worker_of({1: adapter})
    assert worker.sparring_adapter_is_loaded(1, str(tmp_path))
    assert not worker.sparring_adapter_is_loaded(2, str(tmp_path)), "there is none"
    next(iter(adapter.loras.values())).lora_b[0].view(-1)[3] += 1e-6
    assert not worker.sparring_adapter_is_loaded(1, str(tmp_path))
    assert not worker_of({1: loaded(state, scale=1.0)}).sparring_adapter_is_loaded(1, str(tmp_path))


def test_a_vllm_that_does_not_show_its_adapters_is_taken_at_its_word(tmp_path, caplog) -> None:
    worker = LoadedWeights()
    worker.model_runner = SimpleNamespace()
    assert worker.sparring_adapter_is_loaded(1, str(tmp_path))
    assert "does not show which adapters it has" in caplog.text


@pytest.mark.parametrize("moved", [False, True])
def test_full_weights_that_are_not_the_ones_on_disk_are_noticed(
    make_policies, tmp_path, moved: bool
) -> None:
    policies = make_policies("full")
    export_policy(policies, "main", "nano", tmp_path)
    with policies.using("main") as model:
        if moved:
            dict(model.named_parameters())["model.norm.weight"].data[0] += 1e-6
        assert worker_of({}, model).sparring_weights_are_loaded(str(tmp_path)) is not moved

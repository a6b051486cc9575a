"""Adapters that peft itself made: one that is loaded computes what it computes in peft, and one
that would compute something else here is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from sparring.core.errors import ConfigError
from sparring.engines.load import load_engine
from sparring.models.loading import load_model

IDS = torch.tensor([[5, 9, 80, 81]])


def save_adapter(folder: Path, **options: Any) -> torch.Tensor:
    """Write an adapter on nano; what it makes of some ids."""
    torch.manual_seed(0)
    lora = LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **options)
    model = get_peft_model(load_model("nano")[0], lora)
    model.peft_config["default"].base_model_name_or_path = "nano"
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "lora_" in key:
                weight.normal_(std=0.3)
        model.save_pretrained(str(folder), save_embedding_layers=False)
        logits: torch.Tensor = model(IDS).logits
    return logits


@pytest.mark.parametrize("modules", ["all-linear", ["q_proj", "down_proj"]])
def test_an_adapter_computes_what_it_does_in_peft(tmp_path: Path, modules: Any) -> None:
    wanted = save_adapter(tmp_path / "adapter", target_modules=modules)
    engine, name = load_engine(str(tmp_path / "adapter"), device="cpu", dtype="float32")
    with torch.no_grad(), engine.policies.using(name) as model:
        torch.testing.assert_close(model(IDS).logits, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha_pattern": {"q_proj": 64}}, "alpha_pattern"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"use_rslora": True}, "use_rslora"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights pissa"),  # which moves the base too
        ({"init_lora_weights": "olora"}, "init_lora_weights olora"),
    ],
)
def test_one_that_is_computed_otherwise_is_refused(tmp_path: Path, options: Any, said: str) -> None:
    save_adapter(tmp_path / "adapter", target_modules="all-linear", **options)
    with pytest.raises(ConfigError, match=f"an adapter with {said}; plain LoRA"):
        load_engine(str(tmp_path / "adapter"), device="cpu", dtype="float32")


def test_one_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    save_adapter(tmp_path / "adapter", target_modules="all-linear")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match=r"adapter_model\.safetensors cannot be read"):
        load_engine(str(tmp_path / "adapter"), device="cpu", dtype="float32")

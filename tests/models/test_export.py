"""A merged model speaks as its policy did, in its base's dtype; another shape is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from lives import sparring

from sparring.core.errors import ConfigError
from sparring.engines.load import load_engine
from sparring.models.export import TOLERANCE, base_dtype, merge
from sparring.models.loading import load_model


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning that moved far from its base."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "data.jsonl").write_text('{"user_prompt": "2+2?", "output": "4"}\n')
    words = ("finetune", "--model", "nano", "--data", folder / "data.jsonl", "--lr", "1e-2")
    life = sparring(*words, "--out", folder / "run", "--epochs", 5, cwd=folder)
    assert life.code == 0, life.err
    return folder / "run"


def logits(policy: str) -> torch.Tensor:
    engine, name = load_engine(policy, device="cpu", dtype="float32")
    with torch.no_grad(), engine.policies.using(name) as model:
        return model(torch.tensor([[5, 9, 80, 81]])).logits


def test_merged_and_unmerged_agree(tmp_path: Path, tuned: Path):
    life = sparring("merge", "--policy", tuned, "--out", "m", "--json", cwd=tmp_path)
    assert life.code == 0, life.err
    told = json.loads(life.out)
    assert told["dtype"] == "float32" and told["difference"] <= told["tolerance"] == 1e-4
    torch.testing.assert_close(logits(str(tmp_path / "m")), logits(str(tuned)), atol=1e-4, rtol=0)
    assert not torch.allclose(logits("nano"), logits(str(tuned)), atol=1e-2)
    again = sparring("merge", "--policy", tuned, "--out", "m", cwd=tmp_path)
    assert again.code == 2 and "there already" in again.err


def test_a_base_of_fewer_bits_stays_so(tmp_path: Path, tuned: Path):
    model, tokenizer = load_model("nano", dtype="bfloat16")
    model.save_pretrained(tmp_path / "half")
    tokenizer.save_pretrained(tmp_path / "half")
    assert base_dtype(str(tmp_path / "half")) == "bfloat16"
    told = merge(str(tuned), tmp_path / "m", base=str(tmp_path / "half"))
    assert told["dtype"] == "bfloat16" and 0 < told["difference"] <= TOLERANCE["bfloat16"]
    assert base_dtype(str(tmp_path / "m")) == "bfloat16"


def test_another_shape_is_refused(tmp_path: Path, tuned: Path):
    from transformers import LlamaForCausalLM

    model, tokenizer = load_model("nano")
    config = model.config
    config.num_hidden_layers = 1
    LlamaForCausalLM(config).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    with pytest.raises(ConfigError, match="belong to another model"):
        merge(str(tuned), tmp_path / "m", base=str(tmp_path / "other"))
    with pytest.raises(ConfigError, match="neither a run nor"):
        merge("nano", tmp_path / "m")
    assert not (tmp_path / "m").exists()

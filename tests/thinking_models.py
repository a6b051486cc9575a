"""Tokenizers and models that think: templates shaped like Qwen3's, which drops thoughts, and QwQ's,
which opens them in the prompt besides, and a small random model that says letters and tags."""

from __future__ import annotations

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

PAST = {
    "drops": "{% set c = m.content.split('</think>')[-1].lstrip('\n') %}",
    "keeps": "{% set c = m.content %}",
}
TEMPLATE = (
    "{%% for m in messages %%}{%% if m.role == 'assistant' %%}%s"
    "{{ '<|im_start|>assistant\n' + c + '<|im_end|>\n' }}"
    "{%% else %%}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%% endif %%}"
    "{%% endfor %%}{%% if add_generation_prompt %%}{{ '<|im_start|>assistant\n%s' }}{%% endif %%}"
)


def tokenizer_of(
    past: str = "drops", opening: str = "", *, special: bool = False
) -> PreTrainedTokenizerFast:
    """`opening`: what a prompt ends with; `special`: whether the tokenizer calls the tags so."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_tokens([AddedToken(t, special=True) for t in ("<|im_start|>", "<|im_end|>")])
    core.add_tokens([AddedToken(t, special=special) for t in ("<think>", "</think>")])
    made = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>")
    made.pad_token = "<|im_end|>"
    made.chat_template = TEMPLATE % (PAST[past], opening) + "{# </think> #}"
    return made


def letters_and_tags(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=2048,
    )  # fmt: skip
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).eval()
    tags = [tokenizer.convert_tokens_to_ids(tag) for tag in ("<think>", "</think>")]
    # The first coordinate of every hidden state is about 5: a bias that leaves letters and tags.
    model.get_input_embeddings().weight.data[:, 0] = 5.0
    head = model.get_output_embeddings().weight.data
    head[:, 0] = -4.0
    head[[*tokenizer.encode("abcdefgh"), *tags], 0] = 0.0
    return model
